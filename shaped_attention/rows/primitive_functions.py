"""The primitives in which blocks are written, of rows (`numerics.primitives`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shaped_attention.libraries import torch
from shaped_attention.numerics.primitives import unit_rows
from shaped_attention.rows.entries import explicitly, rsqrt_or_one
from shaped_attention.rows.joining import summands
from shaped_attention.rows.tape import recording

if TYPE_CHECKING:
    from shaped_attention.rows.rows import Rows


def of_primitive(
    x: Rows, function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]
) -> Any:
    """Return a primitive of rows: an operation of rows, or a function of their entries."""
    match function.__name__:
        case "row_squares":
            return x.squares()
        case "row_sums":
            return float(x.shape[-1]) * x.mean()
        case "constant":
            return x.plain(np.asarray(args[0], dtype=np.float64))
        case "unit_rows" if recording() is None:
            return x.like(unit_rows(x.settled().coordinates))
        case "unit_rows":
            return x * rsqrt_or_one(x.squares())
        case "concatenate":
            return torch.cat(args[0], dim=-1)
        case "columns" if len(tuple(x.space)) > 1:
            return summands(x, args[1], args[2])
    return explicitly(function, *args, **named)
