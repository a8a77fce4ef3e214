"""Loss and gradients of a model at step 0, in words and as plain data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.architectures.layer_summary import LEVELS
from shaped_attention.architectures.model import Model
from shaped_attention.architectures.parameter_names import names_of
from shaped_attention.architectures.verdict import shown_layers

Array = NDArray[np.float64]

ADAM_EPS = 1e-8
"""Adam's eps in torch, which is added to the root mean square of a gradient."""

_MOST = 5
"""Parameters with the largest share of the gradient that are named."""


def step_zero_text(result: xr.Dataset, model: Model, every: int | None = None) -> str:
    """Return loss, logits and gradients of a result of `simulate_model` with targets, in words."""
    norm, total = result.gradient_norm, result.global_norm.to_numpy()
    shares = (norm**2).mean("sample").to_series() / (total**2).mean()
    largest = shares.sort_values(ascending=False).head(_MOST)
    rms = root_mean_squares(result)
    low, high = min(rms, key=lambda x: rms[x]), max(rms, key=lambda x: rms[x])
    log = math.log(model.embedding.vocabulary)
    lines = [
        f"loss {_band(result.loss.to_numpy())}; log(vocabulary) = {log:.4g}",
        f"standard deviation of the logits {_band(result.logit_std.to_numpy())}",
        f"total gradient norm (without gains of norms) {_band(total)}",
        "",
        "layer  norm of the gradient",
    ]
    by_layer = norms_by_layer(result, model)
    lines += [f"{k:5d}  {_band(by_layer[k - 1])}" for k in shown_layers(model.depth, every) if k]
    lines += ["", "largest shares of the squared norm"]
    lines += [f"{100.0 * share:5.1f} %  {name}" for name, share in largest.items()]
    lines += [
        "",
        f"root mean square of a gradient's entries: from {rms[low]:.2g} ({low}) to {rms[high]:.2g} "
        f"({high}); Adam's eps is {ADAM_EPS:g}",
    ]
    return "\n".join(lines)


def step_zero_data(result: xr.Dataset, model: Model) -> dict[str, Any]:
    """Return the same as plain data: quantiles over samples by name."""
    rms = root_mean_squares(result)
    return {
        "loss": quantiles(result.loss.to_numpy()),
        "log_vocabulary": math.log(model.embedding.vocabulary),
        "logit_std": quantiles(result.logit_std.to_numpy()),
        "gradient_norm": {
            "all": quantiles(result.global_norm.to_numpy()),
            "by_layer": [quantiles(x) for x in norms_by_layer(result, model)],
            "by_parameter": {
                str(name): quantiles(x.to_numpy()) | {"root_mean_square": rms.get(str(name), 0.0)}
                for name, x in zip(
                    result.parameter.to_numpy(), result.gradient_norm, strict=True
                )
            },
        },
        "tokens": result.token.to_numpy().tolist(),
        "targets": result.target.to_numpy().tolist(),
    }  # fmt: skip


def norms_by_layer(result: xr.Dataset, model: Model) -> Array:
    """Return the norms of the gradient of each layer (layer, sample)."""
    layers = names_of(model).layers
    names = [str(name) for name in result.parameter.to_numpy()]
    squares = result.gradient_norm.to_numpy() ** 2
    found = np.zeros((model.depth, squares.shape[1]))
    for name, square in zip(names, squares, strict=True):
        if name.startswith(f"{layers}."):
            found[int(name.removeprefix(f"{layers}.").partition(".")[0])] += square
    return np.sqrt(found)


def root_mean_squares(result: xr.Dataset) -> dict[str, float]:
    """Return the root mean square of the entries of each gradient, over samples too.

    Those that vanish up to rounding, as of biases of keys without positions, are left out.
    """
    squares = (result.gradient_norm**2).mean("sample")
    there = squares > 1e-28 * float((result.global_norm**2).mean())
    values = np.sqrt(squares / result["size"])[there]
    return {str(k): float(v) for k, v in values.to_series().items()}


def quantiles(values: Array) -> dict[str, float]:
    """Return the quantiles over samples by name."""
    found = np.quantile(values, list(LEVELS.values()))
    return {name: float(x) for name, x in zip(LEVELS, found, strict=True)}


def _band(values: Array) -> str:
    low, middle, high = (quantiles(values)[name] for name in ("5 %", "median", "95 %"))
    return f"{middle:.4g} [{low:.4g}, {high:.4g}]"
