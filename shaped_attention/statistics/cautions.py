"""Cautions of a comparison, which follow from the specifications of the two results."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.numerics.result_axis import stopping_times

_COUPLED = (
    " CAUTION: both results come from one sampler with one seed and share random numbers; this test"
    " and the intervals of the Wasserstein and energy distances need different seeds."
)
_SHARED_WEIGHTS = (
    " CAUTION: samples of one recorded model share its weights; intervals and p-values assume "
    "independent samples, with one model each."
)
_DIFFERENCES = {
    "same_start": "start from different covariances",
    "same_layer": "have different layers",
    "same_radius": "stop at different radii",
}
_ROUNDING = 1e-9


def common_ground(first: xr.Dataset, second: xr.Dataset) -> dict[str, int]:
    """Return, as 1 or 0 by name, what two results have in common according to their attributes.

    `independent` is 0 if they drew the same random numbers, `own_weights` is 0 if samples of either
    were recorded from one model (`record_covariances`). `same_start` and `same_layer` are 0 if
    they are known to differ in V_0 or in the blocks. `same_radius` is 0 if paths of either were
    stopped and the radii differ for the same V_0.
    """
    start, layer = (_agree(first, second, key) for key in ("v0", "layer"))
    stopped = any(bool(np.isfinite(stopping_times(r)).any()) for r in (first, second))
    return {
        "independent": int(not _share_numbers(first, second)),
        "own_weights": int(all(_own_weights(result) for result in (first, second))),
        "same_start": int(start),
        "same_layer": int(layer),
        "same_radius": int(not (start and stopped) or _agree(first, second, "radius")),
    }


def caution_text(common: dict[str, Any]) -> str:
    """Return the sentences that follow from `common_ground`, possibly none."""
    found = [text for name, text in _DIFFERENCES.items() if not common[name]]
    text = f" NOTE: the results {' and '.join(found)}." if found else ""
    text += "" if common["own_weights"] else _SHARED_WEIGHTS
    return text if common["independent"] else text + _COUPLED


def _own_weights(result: xr.Dataset) -> bool:
    """Return whether no two samples come from models with the same weights, as far as known."""
    models = result["model"].to_numpy() if "model" in result.coords else np.arange(0)
    return len(np.unique(models)) == len(models)


def _agree(first: xr.Dataset, second: xr.Dataset, key: str) -> bool:
    """Return whether an entry of the specifications agrees up to rounding or is unknown."""
    stored = [json.loads(result.attrs.get("specification", "{}")) for result in (first, second)]
    a, b = (specification.get(key) for specification in stored)
    if a is None or b is None or key == "layer":
        return a is None or b is None or bool(a == b)
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return x.shape == y.shape and bool(np.abs(x - y).max() <= _ROUNDING * np.abs(x).max())


def _sampler(result: xr.Dataset) -> str | None:
    """Return the name of a sampler, or of the function that drew a result."""
    name = result.attrs.get("sampler", result.attrs.get("function"))
    return None if name is None else str(name)


def _share_numbers(first: xr.Dataset, second: xr.Dataset) -> bool:
    """Return whether two results drew the same random numbers."""
    a, b = ([_sampler(result), result.attrs.get("seed")] for result in (first, second))
    if None not in a and a == b:
        return True
    seeded = "sampler" in first.attrs and "seed" in first.attrs
    if seeded or "start" not in first or "start" not in second:
        return False
    # The only randomness of a flow is its initial condition.
    ours, others = ({row.tobytes() for row in r["start"].values} for r in (first, second))
    return bool(ours & others)
