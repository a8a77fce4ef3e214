"""Run the sampler of a result again, from the specification that it carries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xarray as xr

from shaped_attention.chain import simulate_chain
from shaped_attention.checks import check_keywords
from shaped_attention.network import simulate_network
from shaped_attention.results import layer_of, specification
from shaped_attention.sde import integrate_sde
from shaped_attention.sphere import bridge, flow, layers

_SAMPLERS: dict[str, Callable[..., xr.Dataset]] = {
    "chain": simulate_chain,
    "network": simulate_network,
    "sde": integrate_sde,
}
"""Functions of a layer and a starting covariance."""

_FROM_START: dict[str, Callable[..., xr.Dataset]] = {
    "sphere": flow.run_again,
    "sphere network": layers.run_again,
    "noisy chain": bridge.run_again,
    "noisy network": bridge.run_again,
}
"""Functions of a result, its specification and changes; the tokens they start from are in it."""


def rerun(result: xr.Dataset, **changes: Any) -> xr.Dataset:
    """Run the sampler of a result again, with `changes` to its keyword arguments.

    Without changes the covariances are the same to the last bit on the same kind of machine. The
    stored times are kept unless a change touches the grid of times; then give `times` too, or the
    first and the last are stored.

    Raises
    ------
    ValueError
        If `result` does not come from a sampler, its specification does not tell all, or a change
        is no argument of the sampler (parameters of a block change with a new `layer`) or is not
        allowed.
    """
    stored = specification(result)
    sampler = stored.pop("sampler")
    if sampler in _FROM_START:
        return _FROM_START[sampler](result, stored, changes)
    if sampler not in _SAMPLERS:
        raise ValueError(f"result comes from {sampler!r}, whose specification does not tell all")
    check_keywords(_SAMPLERS[sampler], changes)
    stored["layer"] = layer_of(result)
    # With another grid the stored times may be off it; the default takes their place.
    if changes.keys() & {"save_every", "width", "depth", "horizon", "step"}:
        stored.pop("times")
    arguments = {**stored, **changes}
    return _SAMPLERS[sampler](arguments.pop("layer"), arguments.pop("v0"), **arguments)
