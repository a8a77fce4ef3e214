"""Run the sampler of a result again, from the specification that it carries."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import xarray as xr

from shaped_attention.checks import check_keywords
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.results import FORMAT, layer_of, specification
from shaped_attention.samplers.sde import integrate_sde

_SAMPLERS: dict[str, Callable[..., xr.Dataset]] = {
    "chain": simulate_chain,
    "network": simulate_network,
    "sde": integrate_sde,
}
"""Functions of a layer and a starting covariance."""

_FROM_START = {
    "sphere": "shaped_attention.sphere.flow",
    "sphere network": "shaped_attention.sphere.layers",
    "noisy chain": "shaped_attention.sphere.noisy_layers",
    "noisy network": "shaped_attention.sphere.noisy_layers",
}
"""Modules whose `run_again` takes a result, its specification and changes."""


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
    if result.attrs["format"] != FORMAT and "layer" in stored:
        raise ValueError(
            f"result has format {result.attrs['format']}, whose random numbers this version does "
            "not draw; it can be compared, but not run again"
        )
    sampler = stored.pop("sampler")
    if sampler in _FROM_START:
        return import_module(_FROM_START[sampler]).run_again(result, stored, changes)
    if sampler not in _SAMPLERS:
        raise ValueError(f"result comes from {sampler!r}, whose specification does not tell all")
    check_keywords(_SAMPLERS[sampler], changes)
    stored["layer"] = layer_of(result)
    # With another grid the stored times may be off it; the default takes their place.
    if changes.keys() & {"save_every", "width", "depth", "horizon", "step"}:
        stored.pop("times")
    arguments = {**stored, **changes}
    return _SAMPLERS[sampler](arguments.pop("layer"), arguments.pop("v0"), **arguments)
