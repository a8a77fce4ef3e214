"""Samples of large models: the same bits for all chunks and threads, in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention.architectures.configurations import read_config
from shaped_attention.samplers.steppers import blas
from tests.laws import threads

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 4000, "vocab_size": 1000,
    "initializer_range": 0.02, "rms_norm_eps": 1e-5, "hidden_act": "silu",
    "max_position_embeddings": 2048, "rope_theta": 10000.0,
}  # fmt: skip
NARROW = LLAMA | {"intermediate_size": 1000, "num_hidden_layers": 2}
GPT2 = read_config("gpt2")[0] | {"n_layer": 1, "n_embd": 384, "n_head": 6}


def run(config: dict[str, Any], tokens: int = 16, **options: Any) -> xr.Dataset:
    arguments = {"samples": 3, "seed": 4, "progress": False}
    return sa.simulate_model(config, tokens, **(arguments | options))


@pytest.mark.parametrize("tokens", [pytest.param(16, marks=pytest.mark.portability), 130])
def test_executors_agree(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Library routines against torch: states, entropies, final norm."""
    monkeypatch.setattr(blas, "FEWEST_LARGE_NUMBERS", 1)
    fast = run(NARROW, tokens, samples=2)
    with sa.eager():
        slow = run(NARROW, tokens, samples=2)
    for name in ("V", "V_final", "attention_entropy"):
        size = np.abs(slow[name]).max().item()
        np.testing.assert_allclose(fast[name], slow[name], rtol=0.0, atol=1e-11 * size)


@pytest.mark.parametrize("tokens", [pytest.param(16, marks=pytest.mark.portability), 300])
def test_the_same_bits_for_all_chunks_and_threads(tokens: int) -> None:
    """One sample on several threads, several samples on one thread each, and both."""
    config = LLAMA if tokens == 16 else NARROW
    with threads(1):
        alone = run(config, tokens, chunk=1)
        one = run(config, tokens, samples=1)
    for number, chunk in ((1, 3), (2, 1), (3, 3), (2, None)):
        with threads(number):
            found = run(config, tokens, chunk=chunk)
        for name in ("V", "V_final", "attention_entropy"):
            np.testing.assert_array_equal(found[name], alone[name])
    with threads(4):
        np.testing.assert_array_equal(run(config, tokens, samples=1).V, one.V)
    np.testing.assert_array_equal(alone.V[:, :1], one.V)


def test_more_tokens_than_features_in_little_memory() -> None:
    """512 tokens of a small GPT-2: the state has 384 columns; a matrix of its tokens, 2 MiB."""
    tracemalloc.start()
    try:
        result = run(GPT2, 512, samples=1, entropy=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.isfinite(result.V).all()
    assert int(np.linalg.matrix_rank(result.V.values[-1, 0])) <= 384
    assert peak < 2**28
