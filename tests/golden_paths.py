"""One small run of every sampler, whose paths are frozen in `golden_paths.json`.

``python -m tests.golden_paths`` writes the file anew: only when numbers are meant to change, with a
line in the change log.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shaped_attention as sa
from shaped_attention import sphere

FILE = Path(__file__).with_suffix(".json")
V0 = sa.equicorrelated(4, 0.3)
LARGE = sa.equicorrelated(100, 0.3)
LAYER = [sa.ShapedAttention(0.35, heads=2, output_projection=True), sa.ShapedMLP(0.35, 0.0, -1.0)]
CAUSAL = sa.ShapedAttention(0.5, 0.8, heads=2, mask="causal")
NORMED = [sa.Normalised(block, norm="layer") for block in LAYER]
GELU = sa.ShapedMLP(0.5, activation="gelu", scale=1.0)
HOT = sa.ShapedAttention(0.6, 0.5)
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16} | {
    "vocab_size": 64
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 64,
    "max_position_embeddings": 64,
}


def _chain(layer=LAYER, v0=V0, width=64, depth=6, **options):  # type: ignore[no-untyped-def]
    return sa.simulate_chain(layer, v0, width=width, depth=depth, samples=3, seed=7, **options)["V"]


def _sde(method, layer=LAYER, v0=V0, samples=3, **options):  # type: ignore[no-untyped-def]
    settings = {"horizon": 0.1, "step": 0.02} | options
    return sa.integrate_sde(layer, v0, samples=samples, seed=7, method=method, **settings)["V"]


RUNS: dict[str, Callable[[], object]] = {
    "network": lambda: sa.simulate_network(LAYER, V0, width=32, depth=3, samples=3, seed=7)["V"],
    "network, groups": lambda: sa.simulate_network(
        CAUSAL, V0, width=32, depth=3, samples=3, seed=7
    )["V"],
    "chain": _chain,
    "chain, groups": lambda: _chain(CAUSAL),
    "chain, LayerNorm": lambda: _chain(NORMED),
    "chain, smooth": lambda: _chain(GELU),
    "chain, narrow": lambda: _chain(LAYER, sa.equicorrelated(4, 1.0), width=2),
    "chain, float32": lambda: _chain(dtype="float32"),
    "chain, library routines": lambda: _chain(LAYER, LARGE, width=128, depth=2)[:, :, :4, :4],
    "SDE, torchsde": lambda: _sde("torchsde"),
    "SDE, direct": lambda: _sde("direct", CAUSAL),
    "SDE, clock": lambda: _sde("clock", HOT, samples=16, horizon=0.4, radius=50.0)[:, :6],
    "SDE, clock, float32": lambda: _sde("clock", HOT, dtype="float32"),
    "SDE, library routines": lambda: _sde("direct", HOT, LARGE)[:, :, :4, :4],
    "SDE, clock, library routines": lambda: _sde("clock", HOT, LARGE, horizon=0.04)[:, :, :4, :4],
    "GPT-2": lambda: sa.simulate_model(sa.model_from_config(GPT2), 5, samples=2, seed=7)["V"],
    "Llama": lambda: sa.simulate_model(sa.model_from_config(LLAMA), 5, samples=2, seed=7)["V"],
    "sphere, flow": lambda: sphere.sphere_flow(
        sphere.SphereAttention(1.0), sphere.uniform_start(3, 4, samples=2, seed=7), [0.0, 1.0]
    )["V"],
    "sphere, noisy chain": lambda: sphere.noisy_chain(
        sphere.SphereAttention(1.0), sphere.uniform_start(3, 8, samples=2, seed=7), 8, 0.5, 0.1, 3
    )["V"],
}


def values(name: str) -> NDArray[np.float64]:
    """Run a sampler, and return its numbers in one row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return np.asarray(RUNS[name](), dtype=np.float64).ravel()


if __name__ == "__main__":
    FILE.write_text(json.dumps({name: values(name).tolist() for name in RUNS}, indent=0) + "\n")
