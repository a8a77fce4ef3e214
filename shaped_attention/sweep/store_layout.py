"""The arrays of a sweep's store: dimensions, sizes and chunks, coordinates and attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.summaries import BINS, STOPPING_BINS

if TYPE_CHECKING:
    import xarray as xr

MISSING = (
    "NaN in values, V, stopping_time and moments marks samples that are not drawn: their unit is "
    "still to do, was given up, or was not needed to reach the target. A stopping_time of infinity "
    "belongs to a path that did not reach the radius. stopping and histogram count 0 where nothing "
    "is drawn."
)
"""Conventions of a store, stated in its attribute `comment`."""

_ABOUT = {
    "values": "observable of a sample at a time",
    "V": "token covariance V of a sample at a time",
    "stopping_time": "time at which the path reached the radius; infinite if it did not",
    "moments": "sum over the samples of a block, and sum of squared deviations from its mean",
    "stopping": "number of paths of a block by bin of their stopping time; last bin: not stopped",
    "histogram": "number of samples of a block by bin",
    "sampler": "sampler",
    "time": "time t",
    "observable": "observable, and whether the path stopped",
    "kept": "observable",
    "layer": "layer",
    "tokens": "number of tokens m",
    "width": "width n",
    "depth": "depth L",
    "horizon": "horizon T",
    "step": "step of the SDE",
    "radius": "radius at which paths stop",
    "rho": "initial correlation",
    "scale": "scale of the initial covariance",
    "covariance": "initial covariance",
    "gamma": "weight gamma of the branch",
    "mlp_gamma": "weight gamma of the MLP",
    "tau0": "temperature tau_0",
    "heads": "number of heads",
    "mask": "attention mask",
    "output_projection": "whether attention has an output projection",
    "key_size": "size of the keys",
    "query_bias": "query bias",
    "key_bias": "key bias",
    "c_plus": "slope c_+ of the activation",
    "c_minus": "slope c_- of the activation",
    "kv_heads": "number of heads of keys and values",
    "head_size": "columns of a head",
    "value_ratio": "ratio of all heads' columns to the width, in the limit",
    "rope": "base of the rotations",
    "rope_share": "share of a head's columns that is rotated",
    "qk_norm": "norm of queries and keys",
    "softcap": "bound of the logits",
    "activation": "activation of the MLP",
    "activation_scale": "scale a of the activation",
    "gated": "whether the MLP is gated",
    "gate_bias": "bias of the gate",
    "hidden": "number of hidden units",
    "hidden_ratio": "ratio of hidden units to the width",
    "norm": "norm of the blocks",
    "norm_place": "place of the norm",
    "norm_eps": "eps of the norm",
    "beta": "inverse temperature beta",
    "dimension": "dimension d",
}
"""Descriptions of variables and coordinates, stated in their attribute `long_name`."""


_NAN = float("nan")

_ARRAYS: dict[str, tuple[tuple[str, ...], str, float | None]] = {
    "moments": (("block", "time", "observable", "power"), "<f8", _NAN),
    "stopping": (("block", "stopping_bin"), "<i8", None),
    "stopping_time": (("sample",), "<f8", _NAN),
    "values": (("time", "sample", "kept"), "<f8", _NAN),
    "V": (("time", "sample", "row", "col"), "<f8", _NAN),
    "histogram": (("block", "time", "kept", "bin"), "<u4", None),
}
"""Dimensions after sampler and axes, data type, and value where nothing is drawn."""

_KEPT = {
    "observables": ("moments", "stopping", "stopping_time", "values"),
    "V": ("moments", "stopping", "stopping_time", "V"),
    "reductions": ("moments", "stopping", "histogram"),
}


@dataclass(frozen=True)
class Layout:
    """Dimensions and sizes after sampler and axes, sizes of a unit's chunk, and data type."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: str
    fill: float | None


def layouts(sweep: Sweep) -> dict[str, Layout]:
    """Return the layouts of a store's arrays by name; `run_unit` describes what they hold."""
    sizes = {
        "block": sweep.blocks, "sample": sweep.samples, "time": len(sweep.fractions),
        "observable": len(sweep.observed), "kept": len(sweep.observed) - 1, "power": 2,
        "stopping_bin": STOPPING_BINS + 1, "bin": BINS,
        **dict.fromkeys(("row", "col"), max(sweep.tokens)),
    }  # fmt: skip
    chunks = sizes | {"block": 1, "sample": sweep.block}
    return {
        name: Layout(
            dims, tuple(sizes[dim] for dim in dims), tuple(chunks[dim] for dim in dims), dtype, fill
        )
        for name, (dims, dtype, fill) in _ARRAYS.items()
        if name in _KEPT[sweep.keep]
    }


def attributes(name: str) -> dict[str, str]:
    """Return the attributes of a variable or coordinate; everything here is dimensionless."""
    return {"long_name": _ABOUT.get(name, f"parameter {name} of the layer")}


def coordinates(sweep: Sweep, versions: Mapping[str, str]) -> xr.Dataset:
    """Return coordinates and attributes of the store, so that xarray can read it by itself.

    `versions` are those of the packages that made the first units.
    """
    # Only a store that is made or repaired needs these; to show its state takes no xarray.
    import xarray as xr

    from shaped_attention.results.provenance import attribute

    scale = 1.0 if sweep.horizon is None else sweep.horizon
    names = list(sweep.observed)
    labels: dict[str, list[Any]] = {
        "sampler": list(sweep.samplers),
        "time": [scale * fraction for fraction in sweep.fractions],
        "observable": names,
        "kept": names[:-1],
        **{name: _labels(values) for name, values in sweep.axes.items()},
    }
    about = {name: attributes(name) for name in labels}
    if sweep.horizon is None:
        about["time"] = {"long_name": "time as a fraction of the horizon"}
    grid = " x ".join(f"{name} ({len(values)})" for name, values in sweep.axes.items())
    return xr.Dataset(
        coords={name: (name, values, about[name]) for name, values in labels.items()},
        attrs={
            "title": f"Sweep of {', '.join(sweep.samplers)} over {grid or 'one cell'}",
            "comment": MISSING,
            "sweep": sweep.to_json(),
            "seed": attribute(sweep.seed),
            "block_samples": sweep.block,
            "versions": json.dumps(versions, sort_keys=True),
        },
    )


def _labels(values: Sequence[Any]) -> list[Any]:
    """Return values of an axis as coordinates: text unless all are numbers or all are bool."""
    kinds = {isinstance(value, bool) for value in values}
    numbers = len(kinds) == 1 and all(isinstance(value, int | float) for value in values)
    return list(values) if numbers else [str(value) for value in values]
