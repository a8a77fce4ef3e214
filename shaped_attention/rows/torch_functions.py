"""Functions of torch when an operand is rows: the linear ones need no entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from shaped_attention.checks import shown
from shaped_attention.libraries import torch
from shaped_attention.numerics.operations.registry import operands_of
from shaped_attention.rows.coordinates import Coordinates
from shaped_attention.rows.entries import explicitly
from shaped_attention.rows.joining import joined
from shaped_attention.rows.spaces import RowsError


def of_rows(function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return a function of torch of rows: as operators of rows, or of their entries."""
    args = (*args, *(named.pop(key) for key in _OPERANDS if key in named))
    if not any(isinstance(x, Coordinates) for x in operands_of((*args, *named.values()))):
        raise RowsError(
            f"{function.__name__} needs rows: a Matrix multiplies rows only, x @ W; Space.rows "
            "makes rows of a tensor"
        )
    linear = _LINEAR.get(function.__name__.strip("_"))
    if linear is not None and named.keys() <= {"alpha", "dim"}:
        return linear(*args, **named)
    return explicitly(function, *args, **named)


def _product(left: Any, right: Any) -> Any:
    if isinstance(right, Coordinates) and not isinstance(left, Coordinates):
        return right.__rmatmul__(left)  # type: ignore[attr-defined]
    return left @ right


def _sum(left: Any, right: Any, alpha: float = 1.0) -> Any:
    # The sum of a tensor and rows would come back here.
    right = right if alpha == 1.0 else alpha * right
    return left + right if isinstance(left, Coordinates) else right + left


def _together(rows: Any, dim: int = 0) -> Any:
    """Put rows beside each other, or below each other, as torch's `cat`."""
    for x in rows:
        if not isinstance(x, Coordinates):
            raise RowsError(
                f"rows are joined with rows only; got {shown(x)}; Space.rows makes rows of a tensor"
            )
    if dim not in (1, -2):
        return joined(rows, dim)
    source = rows[0].space.source
    counts = [x.shape[1] for x in rows]
    eye = torch.eye(sum(counts), dtype=source.dtype, device=source.device)
    placed = [x.__rmatmul__(part) for x, part in zip(rows, eye.split(counts, 1), strict=True)]
    return reduce(add, placed)


def _stack(rows: Any, dim: int = 0) -> Any:
    raise RowsError(
        "rows stay rows (samples, r, n), without another dimension: torch.cat([x, y], dim=1) puts "
        "them below each other"
    )


_OPERANDS = ("tensors", "input", "other", "mat2")
"""What torch calls the operands that rows can be, in their order."""

_LINEAR: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "rmatmul"), _product),
    **dict.fromkeys(("add", "radd"), _sum),
    **dict.fromkeys(("sub", "subtract"), lambda x, y, alpha=1.0: _sum(x, -y, alpha)),
    **dict.fromkeys(
        ("mul", "rmul", "multiply"), lambda x, y: x * y if isinstance(x, Coordinates) else y * x
    ),
    **dict.fromkeys(
        ("div", "divide", "true_divide", "truediv"),
        lambda x, y: x / y if isinstance(x, Coordinates) else y.__rtruediv__(x),
    ),
    **dict.fromkeys(("neg", "negative"), lambda x: -x),
    **dict.fromkeys(("cat", "concat", "concatenate"), _together),
    "stack": _stack,
}
"""Functions of torch that need no entries."""
