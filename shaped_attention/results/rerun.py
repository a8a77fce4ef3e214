"""Make the call of a result again, from the record that it carries."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import xarray as xr

from shaped_attention.checks import check_keywords
from shaped_attention.results.provenance import call_of, function_of, record
from shaped_attention.version import versions

_GRID = {"save_every", "width", "depth", "horizon", "step"}


def rerun(result: xr.Dataset, /, *, trust: Sequence[str] = (), **changes: Any) -> xr.Dataset:
    """Repeat the call that made a result, with `changes` to its arguments.

    Without changes the result is bit-identical on the same kind of machine with the same versions
    of the packages; a UserWarning names versions that differ from the record. The stored times of a
    sampler are kept unless a change affects the grid of times. In that case give `times` too;
    otherwise only the first and the last are stored.

    Arguments that are not recorded must be given: a lambda or a function of `__main__`, a model, or
    a Dataset, such as the two results that `compare` requires.

    Parameters
    ----------
    result
        Dataset of a public function, which may come from a file.
    trust
        Modules from which classes and functions that the record names may be imported, besides this
        package; see the page *Security*. What this process itself recorded needs none.
    changes
        Arguments by name, in place of those recorded.

    Raises
    ------
    ValueError
        If `result` carries no record of this package or an invalid one, it names code of a module
        that `trust` lacks, an unrecorded argument is
        missing, or a change is not an argument of the function (to change parameters of a block,
        give a new `layer`) or is not allowed.
    """
    check_keywords(function_of(result, trust), changes)
    function, arguments = call_of(result, changes, trust)
    recorded, now = record(result)["versions"], versions()
    differing = [f"{name} {recorded[name]}, now {now[name]}" for name in recorded
                 if name in now and recorded[name] != now[name]]  # fmt: skip
    if differing:
        warnings.warn(
            f"versions differ from the record ({'; '.join(differing)}): numbers may differ",
            stacklevel=3,
        )
    # The stored times may be off the new grid; the default replaces them.
    if changes.keys() & _GRID:
        arguments.pop("times", None)
    return function(**(arguments | changes))
