"""Gradients by recorded programs: the same numbers as torch, and what cannot be recorded."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention.lazy import deep_runs

A, N, M = sa.ShapedAttention, sa.Normalised, sa.ShapedMLP
RISING = sa.Schedule([(0.0, 0.2), (1.0, 0.5)])
MIXED: dict[str, Any] = {"heads": 4, "output_projection": True}
LAYERS: dict[str, Any] = {
    "attention": A(0.5),
    "heads side by side": A(0.5, heads=2),
    "grouped keys": A(0.5, kv_heads=2, **MIXED),
    "rotations": A(0.5, rope=10000.0, key_size=16, **MIXED),
    "norms of heads": A(0.5, qk_norm="head", **MIXED),
    "soft cap": A(0.5, softcap=2.0),
    "RMSNorm before": N(A(0.5), norm="rms", eps=1e-5),
    "LayerNorm after": N(A(0.5), norm="layer", place="after"),
    "LayerNorm in groups": N(A(0.5, heads=2), norm="layer"),
    "GELU": M(0.5, activation="gelu"),
    "gated": M(0.5, activation="silu", gated=True),
    "schedules of several blocks": [N(A(RISING), norm="layer"), M(RISING), N(M(0.3), norm="rms")],
    "pattern": sa.Pattern([[A(0.5, **MIXED)], [A(0.3, **MIXED), M(0.2)]]),
}
V0 = np.array(
    [[1.0, 0.2, 1.0, 0.1], [0.2, 1.0, 0.2, 0.3], [1.0, 0.2, 1.0, 0.1], [0.1, 0.3, 0.1, 2.0]]
)
"""Tokens 0 and 2 are equal."""
RUN: dict[str, Any] = {"width": 64, "depth": 3, "samples": 70, "seed": 3}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Return the log, in which a message says why torch takes gradients back, if it does."""
    caplog.set_level(logging.INFO, deep_runs.__name__)
    return caplog


def largest_difference(a: xr.DataArray, b: xr.DataArray) -> float:
    """Return the largest difference, relative to the largest number of each sample."""
    others = [dim for dim in b.dims if dim != "sample"]
    return float((abs(a - b).max(others) / abs(b).max(others)).max())


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_those_of_torch(name: str, log: pytest.LogCaptureFixture) -> None:
    """The same random numbers, so the same gradients in every sample."""
    run = RUN | {"loss": "cross-entropy:3", "of": ["weights", "tokens", "input"]}
    compiled = sa.gradient_norms(LAYERS[name], V0, **run)
    assert log.messages == []
    with sa.eager():
        other = sa.gradient_norms(LAYERS[name], V0, **run)
    xr.testing.assert_allclose(compiled.loss, other.loss, rtol=1e-10)
    assert compiled.parameter.equals(other.parameter)
    assert largest_difference(compiled.gradient_norm, other.gradient_norm) < 1e-9


@pytest.mark.portability
@pytest.mark.parametrize("name", ["LayerNorm in groups", "pattern"])
def test_exponents_and_kernels(name: str, log: pytest.LogCaptureFixture) -> None:
    """Several gradients that go back together, through both layers of a pattern."""
    run = RUN | {"depth": 2}
    compiled = sa.lyapunov(LAYERS[name], V0, exponents=3, **run)
    kernel = sa.neural_tangent_kernel(LAYERS[name], V0, **run)
    assert log.messages == []
    with sa.eager():
        other = sa.lyapunov(LAYERS[name], V0, exponents=3, **run)
        by_torch = sa.neural_tangent_kernel(LAYERS[name], V0, **run)
    assert largest_difference(compiled.exponent, other.exponent) < 1e-9
    assert largest_difference(kernel.kernel, by_torch.kernel) < 1e-9


@pytest.mark.quick
def test_another_seed_has_other_numbers() -> None:
    a, b = (sa.gradient_norms(A(0.5), V0, **RUN | {"seed": seed}) for seed in (3, 4))
    assert largest_difference(a.gradient_norm, b.gradient_norm) > 0.1


@pytest.mark.quick
def test_chunks_and_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    run = RUN | {"samples": 200}
    whole = sa.gradient_norms(A(0.5), V0, **run)
    xr.testing.assert_identical(whole.drop_attrs(), sa.gradient_norms(
        A(0.5), V0, chunk=70, **run).drop_attrs())  # fmt: skip
    monkeypatch.setattr("shaped_attention.lazy.compiled_network.thread_count", lambda place: 3)
    xr.testing.assert_identical(whole.drop_attrs(), sa.gradient_norms(
        A(0.5), V0, **run).drop_attrs())  # fmt: skip


def test_what_torch_takes_back(log: pytest.LogCaptureFixture) -> None:
    data = sa.gradient_norms(A(0.5), V0, **RUN | {"width": 6, "depth": 4})
    (message,) = log.messages
    assert "its gradients span the width" in message
    assert np.isfinite(data.gradient_norm).all()


@dataclass(frozen=True)
class Unused(sa.Block):
    """Three matrices, of which only the last is used."""

    gamma: float = 0.5
    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        _ = project(tokens, 5) + project(2.0 * tokens, 5)
        return project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5


def test_a_matrix_without_use_has_no_gradient() -> None:
    norms = sa.gradient_norms(Unused(), V0, **RUN).gradient_norm
    assert (norms.sel(parameter=["0.0.0", "0.0.1", "2.0.0"]) == 0.0).all()
    assert (norms.sel(parameter="2.0.2") > 0.0).all()
