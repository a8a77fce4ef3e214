"""What depth does to the tokens of a model: medians and bands by layer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.architectures.reading import as_model
from shaped_attention.blocks.positions import allowed
from shaped_attention.checks import argument_error
from shaped_attention.numerics.covariance import correlations
from shaped_attention.numerics.observables import observables
from shaped_attention.results.provenance import argument_of, recorded

Array = NDArray[np.float64]

LEVELS = {"5 %": 0.05, "median": 0.5, "95 %": 0.95}
"""Quantiles over samples, by name."""

LONG_NAMES = {
    "cosine": "mean cosine of different tokens",
    "effective_rank": "effective rank",
    "size": "root mean square of the tokens",
    "entropy": "entropy of attention, as a share of the largest",
}
"""The variables of a summary."""


class LayerNumbers:
    """The numbers of a covariance that a summary needs, for `simulate_model(keep=LAYER_NUMBERS)`.

    A result then holds three numbers for each layer and sample instead of V.
    """

    names = ("cosine", "effective_rank", "size")

    def __call__(self, v: Array) -> Array:
        """Return the numbers (samples, 3) of covariances (samples, m, m)."""
        m = v.shape[-1]
        rho = correlations(v)
        off = rho.sum(axis=(1, 2)) - np.trace(rho, axis1=1, axis2=2)
        cosine = off / (m * (m - 1)) if m > 1 else np.full(len(v), np.nan)
        size = np.sqrt(np.maximum(np.trace(v, axis1=1, axis2=2), 0.0) / m)
        return np.stack([cosine, observables(v, [0])["effective rank"], size], axis=-1)


layer_numbers = LayerNumbers()

LAYER_NUMBERS = f"{__name__}:layer_numbers"
"""Value of `keep` for results that are summarised and not needed otherwise."""


@recorded()
def model_summary(result: xr.Dataset) -> xr.Dataset:
    """Summarise the samples of a model layer by layer, as medians with 5 and 95 % quantiles.

    Parameters
    ----------
    result
        Result of `simulate_model` with ``keep="V"``, or, for many tokens,
        ``keep="shaped_attention.architectures.layer_summary:layer_numbers"``, which stores only
        what is needed here; or language models recorded by `record_covariances`.

    Returns
    -------
    xarray.Dataset of variables (position, level), where position 0 is the embedding and l the
    tokens after l layers, and `level` one of "5 %", "median", "95 %", over samples:

    - `cosine`: mean cosine of different tokens (NaN for a single token);
    - `effective_rank` of V, from 1 to m, as in `observables`;
    - `size`: root mean square of the entries of the tokens, the root of tr V / m;
    - `entropy`, if it was stored: entropy of attention, averaged over heads and over the tokens
      that see at least two tokens. Each token's entropy is divided by its largest possible value,
      the logarithm of the number of tokens that it sees. It is NaN for the embedding.

    Raises
    ------
    ValueError
        If `result` is not a result of `simulate_model`, or does not hold what is needed.
    """
    if "position" not in getattr(result, "dims", ()):
        raise argument_error("result", "a Dataset from simulate_model, with positions", result)
    numbers = _numbers(result)
    variables = {
        name: (("position", "level"), _quantiles(numbers[..., k]))
        for k, name in enumerate(layer_numbers.names)
    }
    if "attention_entropy" in result:
        entropy = _quantiles(_entropy(result))
        missing = np.full((result.sizes["position"] - len(entropy), len(LEVELS)), np.nan)
        variables["entropy"] = (("position", "level"), np.concatenate([missing, entropy]))
    summary = xr.Dataset(
        variables,
        coords={"position": result["position"].to_numpy(), "level": list(LEVELS)},
        attrs={
            "model": result.attrs.get("model", ""),
            "tokens": result.sizes["row"],
            "samples": result.sizes["sample"],
        },
    )
    summary["position"].attrs["long_name"] = "number of layers"
    for name in summary.data_vars:
        summary[name].attrs["long_name"] = LONG_NAMES[str(name)]
    return summary


def _numbers(result: xr.Dataset) -> Array:
    """Return the numbers (position, sample, 3) of every layer."""
    if "V" in result:
        v = result["V"].transpose("position", "sample", "row", "col").to_numpy()
        return np.stack([layer_numbers(x) for x in v])
    kept = list(result["observable"].to_numpy()) if "observable" in result else []
    if kept != list(layer_numbers.names):
        raise ValueError(f"result lacks V; simulate with keep='V' or keep={LAYER_NUMBERS!r}")
    numbers: Array = result["kept"].transpose("position", "sample", "observable").to_numpy()
    return numbers


def _quantiles(values: Array) -> Array:
    """Return the quantiles (position, level) of values (position, sample)."""
    return np.quantile(values, list(LEVELS.values()), axis=1).T


def _entropy(result: xr.Dataset) -> Array:
    """Return the shares (layer, sample) of the largest entropy."""
    entropy = result["attention_entropy"].transpose("layer", "sample", "head", "row").to_numpy()
    if "tokens_seen" in result:  # recorded from a model
        seen = result["tokens_seen"].transpose("layer", "sample", "row").max("sample").to_numpy()
    else:
        seen = tokens_seen(as_model(argument_of(result, "model")), entropy.shape[-1])
    shares = []
    for values, counts in zip(entropy, seen, strict=True):
        several = counts > 1
        if several.any():
            shares.append((values[..., several] / np.log(counts[several])).mean(axis=(1, 2)))
        else:
            shares.append(np.full(len(values), np.nan))
    return np.array(shares)


def tokens_seen(model: Model, tokens: int) -> NDArray[np.int64]:
    """Return how many tokens each token sees (layer, row), with the widest mask of a layer."""
    counts = [
        np.max([allowed(x.mask, tokens).sum(axis=1) for x in attention_of(blocks[0])], axis=0)
        for blocks in model.layers()
    ]
    return np.array(counts)
