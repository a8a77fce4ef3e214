"""Make the call of a result again, from the record that it carries."""

from __future__ import annotations

from typing import Any

import xarray as xr

from shaped_attention.checks import check_keywords
from shaped_attention.results.provenance import call_of, function_of

_GRID = {"save_every", "width", "depth", "horizon", "step"}


def rerun(result: xr.Dataset, /, **changes: Any) -> xr.Dataset:
    """Make the call that made a result again, with `changes` to its arguments.

    Without changes the numbers are the same to the last bit on the same kind of machine. The stored
    times of a sampler are kept unless a change touches the grid of times; then give `times` too, or
    the first and the last are stored.

    An argument that is not recorded has to be given: a lambda or a function of `__main__`, a model,
    or a Dataset, such as the two results that `compare` takes.

    Raises
    ------
    ValueError
        If `result` carries no record of this package or one that is not valid, an argument that is
        not recorded is not given, or a change is no argument of the function (parameters of a block
        change with a new `layer`) or is not allowed.
    """
    check_keywords(function_of(result), changes)
    function, arguments = call_of(result, changes)
    # With another grid the stored times may be off it; the default takes their place.
    if changes.keys() & _GRID:
        arguments.pop("times", None)
    return function(**(arguments | changes))
