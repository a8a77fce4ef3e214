"""Models made by the `transformers` library from a configuration, against the law of `Model`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

import shaped_attention as sa
from shaped_attention.blocks.base import Block, Pattern
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parallel import Parallel
from shaped_attention.numerics.covariance import correlations

IDS = (5, 9, 5, 17, 23, 9, 31, 40)
"""Numbers of tokens, two of which occur twice."""

_TOKENS = (0, 4, 7)
_PAIRS = ((0, 1), (0, 2), (3, 7))


SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
"""Sizes of a configuration with RMSNorm."""


def small(family: str, std: float = 0.02, **fields: Any) -> Any:
    """Return a small configuration of a family with RMSNorm."""
    from transformers import AutoConfig

    return AutoConfig.for_model(family, **{**SMALL, "initializer_range": std, **fields})


def models_from_config(
    config: Any, models: int, seed: int, ids: Any = IDS, implementation: str = "eager"
) -> xr.Dataset:
    """Return V, V_final and entropies as `simulate_model` does, of models of the library.

    Entropies are those of the implementation "eager"; others do not report attention weights.
    """
    from transformers import AutoModel

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = (
            AutoModel.from_config(config, attn_implementation=implementation).double().eval()
            for _ in range(models)
        )
        return sa.record_covariances(made, list(ids))


def statistics(result: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    """Log diagonals and cosines of every layer, and entropies of its first and last head."""
    values: dict[str, NDArray[np.float64]] = {}
    covariances = [*result["V"].to_numpy(), result["V_final"].to_numpy()]
    for k, v in enumerate(covariances):
        diagonal = np.log(np.maximum(np.diagonal(v, axis1=1, axis2=2), 1e-300))
        values |= {f"log V_{k}[{a}]": diagonal[:, a] for a in _TOKENS}
        rho = correlations(v)
        values |= {f"rho_{k}[{a},{b}]": rho[:, a, b] for a, b in _PAIRS}
    entropy = result["attention_entropy"].to_numpy() if "attention_entropy" in result else ()
    for k, here in enumerate(entropy):
        for head in (0, -1):
            values |= {f"entropy_{k + 1}[{head},{a}]": here[head, :, a] for a in _TOKENS}
    return values


def p_values(first: xr.Dataset, second: xr.Dataset) -> dict[str, float]:
    """Return KS p-values of all statistics.

    What varies by less than 10^-5, such as a diagonal after RMSNorm, is left out: the library
    computes norms in single precision. If the other varies by more than 10^-3, it is another law.
    """
    a, b = statistics(first), statistics(second)
    found = {}
    for name in a:
        spreads = [float(np.ptp(x[name])) for x in (a, b)]
        if min(spreads) > 1e-5:
            found[name] = float(stats.ks_2samp(a[name], b[name]).pvalue)
        elif max(spreads) > 1e-3:
            found[name] = 0.0
    return found


def smallest(first: xr.Dataset, second: xr.Dataset) -> tuple[float, str]:
    """Return the smallest p-value times the number of tests (Bonferroni), and its statistic."""
    p = p_values(first, second)
    name = min(p, key=p.__getitem__)
    return min(1.0, len(p) * p[name]), name


def check_law(config: Any, *wrong: sa.Model, implementation: str = "eager") -> None:
    """Assert that 500 models of a configuration have its law, and not those of wrong twins."""
    models = models_from_config(config, 500, 1, IDS, implementation)
    for known in (sa.model_from_config(config), *wrong):
        law = sa.simulate_model(
            known, IDS, samples=2000, seed=1, progress=False, entropy=implementation == "eager",
            accept_approximation=bool(known.approximations),
        )  # fmt: skip
        p, statistic = smallest(models, law)
        assert (p < 1e-4) if known in wrong else (p > 0.01), f"{known}: p={p:.2g} for {statistic}"


Change = Callable[[Any], Any]


def changed(block: Any, change: Change) -> Any:
    """Return a block after a change of all blocks inside it."""
    block = change(block)
    if isinstance(block, Normalised):
        return replace(block, inner=changed(block.inner, change))
    if isinstance(block, Parallel):
        return Parallel([changed(x, change) for x in block.blocks], skip=block.skip)
    return block


def with_blocks(change: Change) -> Callable[[sa.Model], sa.Model]:
    return lambda model: replace(
        model, layer=Pattern([[changed(x, change) for x in blocks] for blocks in model.layers()])
    )


def with_fields(kind: type[Block], **new: Any) -> Callable[[sa.Model], sa.Model]:
    return with_blocks(lambda block: replace(block, **new) if isinstance(block, kind) else block)
