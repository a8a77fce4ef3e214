"""Operations that library routines do in parts, on threads: hidden units, and wide factorisations.

The parts depend on sizes alone, so that the order of every sum does not depend on the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from shaped_attention.numerics.blas_operations import COLUMNS, is_large
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.jit import LANES

_LARGEST_PARTS = 16
_FEWEST_NUMBERS = 2**15
"""Random numbers of a part for few tokens, which take ten times as long as a call."""

_PART_ENTRIES = 2**24
"""Entries of all partial sums of a Gram matrix together."""

_FEWEST_ENTRIES = 2**18
"""Entries of a matrix from which on it is factorised in parts."""


def in_parts(nodes: Sequence[Node], results: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return operations, in order, that give the same results."""
    new: dict[int, Node] = {}
    found: list[Node] = []

    def add(node: Node) -> Node:
        found.append(node)
        return node

    for node in nodes:
        here = replace(node, inputs=tuple(new[id(x)] for x in node.inputs)) if node.inputs else node
        if node.kind == "activated_gram":
            parts = tuple(add(part) for part in _hidden_parts(here))
            here = Node("mirrored_sum", parts, node.shape)
        elif node.kind == "lower":
            (root,) = here.inputs
            here = replace(here, inputs=(_narrowed(root, add),))
        new[id(node)] = add(here)
    return found, [new[id(node)] for node in results]


def _hidden_parts(node: Node) -> list[Node]:
    slot, count, copies = node.integers
    tokens, columns = node.inputs[0].shape
    if is_large(tokens):
        units, most = COLUMNS, _PART_ENTRIES // tokens**2
    else:
        units, most = LANES, count * copies * columns // _FEWEST_NUMBERS
    blocks = -(-count // units)
    parts = max(1, min(_LARGEST_PARTS, blocks, most))
    ends = [min(count, blocks * k // parts * units) for k in range(parts + 1)]
    return [
        replace(node, kind="activated_part", integers=(slot, first, last, copies))
        for first, last in pairwise(ends)
    ]


def _narrowed(root: Node, add: Callable[[Node], Node]) -> Node:
    """Return a matrix with the same Gram matrix: triangular factors of parts of the columns."""
    rows, columns = root.shape
    parts = min(4, columns // (4 * rows))
    if parts < 2 or rows * columns < _FEWEST_ENTRIES:
        return root
    ends = [columns * k // parts for k in range(parts + 1)]
    factors = []
    for first, last in pairwise(ends):
        part = add(Node("columns", (root,), (rows, last - first), (), (first,)))
        factors.append(add(Node("lower", (part,), (rows, rows), lower=True)))
    return add(Node("concatenate", tuple(factors), (rows, parts * rows), (1.0,) * parts))
