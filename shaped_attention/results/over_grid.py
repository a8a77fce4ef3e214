"""Evaluate a function of parameters over a grid of values, as one Dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import xarray as xr

from shaped_attention.checks import check_values
from shaped_attention.progress import progress_bar


def over_grid(
    cell: Callable[..., xr.Dataset],
    axes: Mapping[str, Sequence[Any]],
    *,
    progress: bool | None = False,
) -> xr.Dataset:
    """Call `cell` for every point of a grid, and join its results along the axes.

    The arguments of `cell` are the axes' values by name; its Datasets have equal variables and
    coordinates. The new dimensions come first, in the order of `axes`, whose values are their
    coordinates; attributes that all cells share are kept.
    """
    for name, values in axes.items():
        check_values(name, values)
    results = iter(
        [
            cell(**dict(zip(axes, values, strict=True)))
            for values in progress_bar("cells", progress, list(product(*axes.values())))
        ]
    )

    def joined(names: list[str]) -> xr.Dataset:
        if not names:
            return next(results)
        parts = [joined(names[1:]) for _ in axes[names[0]]]
        whole = xr.concat(parts, names[0], combine_attrs="drop_conflicts")
        return whole.assign_coords({names[0]: list(axes[names[0]])})

    return joined(list(axes))
