"""The operations of descriptions, a file for each or for a few of one kind.

A file has all faces of its operations: the function of torch tensors, what it does to matrices of a
trace and to tangents, compiled code for tiles, and library routines on stacks of matrices.
`registry` says which faces an operation must have. All files of this folder are imported here,
which registers their operations, and the branches of the interpreter are made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from shaped_attention.numerics.jit import kernel
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.registry import OPERATIONS, code_of

# Every file of this folder registers its operations, but for hidden units, whose activations are
# run by what is made here.
for _path in sorted(Path(__file__).parent.glob("*.py")):
    if _path.stem not in ("__init__", "hidden"):
        import_module(f"{__name__}.{_path.stem}")


def _branches() -> Callable[..., None]:
    """Return the function that runs one instruction: compiled code cannot look one up in a table.

    Its text is made here, since a list of branches written by hand could lack one.
    """
    kinds: dict[Any, list[str]] = {}
    for kind, faces in OPERATIONS.items():
        if faces.tile is not None:
            kinds.setdefault(faces.tile, []).append(kind)
    lines = ["def simple(line, numbers, buf):", f"    op = line[{at.OP}]"]
    names: dict[str, Any] = {"__name__": __name__}
    for k, (tile, served) in enumerate(kinds.items()):
        names[f"tile_{k}"] = tile
        test = " or ".join(f"op == {code_of(kind)}" for kind in served)
        lines += [f"    {'elif' if k else 'if'} {test}:", f"        tile_{k}(line, numbers, buf)"]
    lines += ["    else:", "        raise ValueError('unknown operation in a program')"]
    exec(compile("\n".join(lines), __file__, "exec"), names)
    made: Callable[..., None] = names["simple"]
    return made


simple = kernel(_branches())
"""Run one instruction that needs no random numbers: ``simple(line, numbers, buf)``."""
