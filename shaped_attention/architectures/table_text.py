"""A summary of a model's samples as a table of text."""

from __future__ import annotations

import numpy as np
import xarray as xr

from shaped_attention.architectures.table import check_summary
from shaped_attention.checks import check_count

FEW = 20
"""Number of layers up to which a table has them all."""

ROWS = 16
"""Number of rows of a table with more layers."""

_COLUMNS = {
    "cosine": ("mean cosine", "{:.2f}"),
    "effective_rank": ("effective rank", "{:.1f}"),
    "size": ("root mean square", "{:#.3g}"),
    "entropy": ("entropy, % of largest", "{:.1f}"),
}


def shown_layers(depth: int, every: int | None = None) -> list[int]:
    """Return the layers of a table: 0 for the embedding, up to the last.

    Parameters
    ----------
    depth
        Number of layers.
    every
        Distance of two rows; by default all layers up to 20, else 16 evenly spaced rows.
    """
    if every is not None:
        check_count("every", every)
        return sorted({*range(0, depth + 1, every), depth})
    if depth <= FEW:
        return list(range(depth + 1))
    return sorted({round(x) for x in np.linspace(0, depth, ROWS)})


def summary_table(summary: xr.Dataset, every: int | None = None) -> str:
    """Return a table by layer, with a median and the 5 and 95 % quantiles in each cell.

    Parameters
    ----------
    summary
        Result of `model_summary`.
    every
        As in `shown_layers`.

    Raises
    ------
    ValueError
        If `summary` is not such a result, or `every` is not a whole number >= 1.
    """
    check_summary(summary)
    names = [name for name in _COLUMNS if name in summary]
    layers = shown_layers(summary.sizes["position"] - 1, every)
    rows = [
        ["layer", *(_COLUMNS[name][0] for name in names)],
        *([str(k), *(_cell(summary[x].isel(position=k), x) for x in names)] for k in layers),
    ]
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if j == 0 else cell.ljust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cell(values: xr.DataArray, name: str) -> str:
    low, middle, high = values.sel(level=["5 %", "median", "95 %"]).to_numpy()
    if np.isnan(middle):
        return "-"
    factor = 100.0 if name == "entropy" else 1.0
    low, middle, high = (
        _COLUMNS[name][1].format(factor * x).replace("-0.00", "0.00") for x in (low, middle, high)
    )
    return f"{middle} [{low}, {high}]"
