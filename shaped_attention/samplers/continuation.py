"""Continue a run to a later time, bit-identical to the longer run."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import xarray as xr

from shaped_attention.blocks.base import blocks_of
from shaped_attention.blocks.parameters import scheduled
from shaped_attention.checks import shown
from shaped_attention.results.provenance import call_of, function_of
from shaped_attention.samplers.arguments import Resumed
from shaped_attention.samplers.specification import SamplerOptions

_OPTIONS = tuple(
    name
    for name in SamplerOptions.__annotations__
    if name not in ("radius", "device", "dtype")  # These are part of the law, or of its rounding.
)


def continue_run(
    result: xr.Dataset,
    *,
    depth: int | None = None,
    horizon: float | None = None,
    trust: Sequence[str] = (),
    **options: Any,
) -> xr.Dataset:
    """Continue a run to a later time.

    The random numbers of a path depend only on the step, so the result is bit-identical to the end
    of one longer run.

    Parameters
    ----------
    result
        Result of a sampler called with ``keep_state=True``.
    depth, horizon
        New total: `depth` for networks and chains, `horizon` for the limit.
    trust
        Modules from which what the result names may be imported, as in `rerun`.
    options
        Options of the sampler, except `radius`, `device` and `dtype`.

    Returns
    -------
    xarray.Dataset as from the sampler, with times from the end of `result` on.

    Raises
    ------
    ValueError
        If the result has no state, the layer has schedules (which depend on the
        total depth), or an argument is outside its range or not listed above.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, equicorrelated, simulate_chain
    >>> block, v0 = ShapedAttention(gamma=0.4), equicorrelated(tokens=2, rho=0.2)
    >>> half = simulate_chain(block, v0, width=20, depth=5, samples=3, keep_state=True)
    >>> whole = simulate_chain(block, v0, width=20, depth=10, samples=3)
    >>> bool((continue_run(half, depth=10).V[-1] == whole.V[-1]).all())
    True
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            raise ValueError(
                f"{name} must stay as in the run (only {', '.join(_OPTIONS)} can change); got "
                f"{shown(value)}"
            )
    function = function_of(result, trust)
    sampler = result.attrs.get("sampler", function.__name__)
    if "keep_state" not in inspect.signature(function).parameters:
        raise ValueError(f"result must come from 'chain', 'network' or 'sde'; got {sampler!r}")
    _, arguments = call_of(result, trust=trust)
    length = "depth" if "depth" in arguments else "horizon"
    lengths = {"depth": depth, "horizon": horizon}
    total = lengths.pop(length)
    if total is None or any(value is not None for value in lengths.values()):
        raise ValueError(
            f"only {length} must be given to continue a result of {sampler!r}; got "
            f"depth={depth!r}, horizon={horizon!r}"
        )
    for block in blocks_of(arguments["layer"]):
        if scheduled(block):
            raise ValueError(
                "layer must have no schedules, which depend on the total depth; it contains "
                f"{block!r}"
            )
    arguments |= {"v0": Resumed.of(result), "times": None, "keep_state": False, length: total}
    return function(**(arguments | options))
