"""Values along an axis of a sweep: a list, or a table that gives its ends and their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from shaped_attention.checks import check_finite, check_positive, check_range, did_you_mean

MOST_CELLS = 100_000

_SPACES: dict[str, tuple[Callable[..., NDArray[np.float64]], Callable[[str, float], None]]] = {
    "linspace": (np.linspace, check_finite),
    "logspace": (np.geomspace, check_positive),
}
"""For each table that gives the values of an axis, a function and the check of its ends."""


def _axis(given: Any) -> Any:
    """Return the values of an axis, given as such or as a table `linspace` or `logspace`."""
    if not isinstance(given, Mapping):
        return given
    kind = next(iter(given), None)
    if len(given) != 1 or kind not in _SPACES:
        lists = "a list, {linspace = [first, last, number]} or {logspace = [...]}"
        raise ValueError(f"give {lists}; {did_you_mean(kind, _SPACES)}")
    space, check_end = _SPACES[kind]
    try:
        first, last, number = given[kind]
        check_range("the number of values", number, 1, MOST_CELLS)
        check_end("the first", first)
        check_end("the last", last)
        exact = space(first, last, number)
    except (TypeError, ValueError) as error:
        raise ValueError(f"give {{{kind} = [first, last, number]}} ({error})") from None
    # 0.3 and not 0.30000000000000004, so that one can select it.
    short = np.array([float(f"{x:.12g}") for x in exact])
    values = np.where(np.isclose(short, exact, rtol=1e-14, atol=0.0), short, exact).tolist()
    whole = isinstance(first, int) and isinstance(last, int) and all(map(float.is_integer, values))
    return list(map(int, values)) if whole else values


Axis = Annotated[list[Any], BeforeValidator(_axis)]
