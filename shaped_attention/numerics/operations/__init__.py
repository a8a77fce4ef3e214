"""The operations of descriptions, a file for each or for a few of one kind.

A file has all faces of its operations: the function of torch tensors, what it does to matrices of a
trace and to tangents, compiled code for tiles, and library routines on stacks of matrices.
`registry` says what is needed; `dispatch` imports all files of this folder, which register their
operations, and makes the branches of the interpreter.
"""

from shaped_attention.numerics.operations import dispatch, hidden

__all__ = ["dispatch", "hidden"]
