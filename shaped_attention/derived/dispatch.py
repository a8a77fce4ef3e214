"""Functions of torch and primitives of descriptions when an operand is rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shaped_attention.derived.parts import same
from shaped_attention.derived.spaces import DerivationError
from shaped_attention.numerics.primitives import constant


def is_rows(x: Any) -> bool:
    """Return whether an operand is rows."""
    return hasattr(x, "reveal")


def of_torch(name: str, args: Any, named: dict[str, Any]) -> Any:
    """Apply a function of torch."""
    if name in ("cat", "concat", "concatenate"):
        rows, dim = args if len(args) == 2 else (args[0], named.pop("dim", 0))
        if dim not in (-1, 2) or not all(is_rows(x) for x in rows):
            raise DerivationError("rows are joined side by side: torch.cat([x, y], dim=-1)")
        return joined(rows)
    operator = _OPERATORS.get(name)
    if operator is not None and not named:
        a, b = args
        return getattr(a, f"__{operator}__")(b) if is_rows(a) else getattr(b, f"__r{operator}__")(a)
    raise DerivationError(
        f"{name} of rows has no exact chain; shaped_attention.numerics.primitives has "
        "functions of single entries"
    )


def of_primitive(rows: Any, function: Callable[..., Any], args: Any, named: Any) -> Any:
    """Apply a primitive, of which `rows` is an operand."""
    name = function.__name__
    if name == "concatenate":
        return joined(args[0])
    if name == "constant":
        return constant(args[0], like=rows.reveal.like)
    if name == "columns":
        return rows.columns_of_parts(args[1], args[2])
    if name == "row_squares":
        return rows.squares()
    if name == "row_sums":
        return float(rows.columns) * rows.mean(-1, keepdim=True)
    if name == "unit_rows":
        return rows.by_length(0.0)
    return rows.reveal.of_entries(function, args, named)


def joined(rows: Sequence[Any]) -> Any:
    """Concatenate rows along their columns: rows of the direct sum of their spaces."""
    first = rows[0]
    if all(x.power == first.power and same(x.value, first.value) for x in rows):
        return first.like([p for x in rows for p in x.parts], first.value, first.power)
    power = max(x.power for x in rows)
    return first.like([part for x in rows for part in x.scaled(power)], 1.0, power)


_OPERATORS = {
    "add": "add", "radd": "add", "mul": "mul", "rmul": "mul", "multiply": "mul", "sub": "sub",
    "subtract": "sub", "div": "truediv", "true_divide": "truediv", "truediv": "truediv",
    "matmul": "matmul", "rmatmul": "matmul",
}  # fmt: skip
"""Operators of torch, which rows take over from a tensor on the left."""
