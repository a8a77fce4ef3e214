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
from shaped_attention.lazy.compiled import layer_programs
from shaped_attention.lazy.compiled.recorder import RULES, Recorder, RecordingSource
from shaped_attention.lazy.compiled.translator import RecordingError
from shaped_attention.libraries import torch
from shaped_attention.numerics.program import assemble
from tests.emitted import run_program

A, N, M = sa.ShapedAttention, sa.Normalised, sa.ShapedMLP
RISING = sa.Schedule([(0.0, 0.2), (1.0, 0.5)])
MIXED: dict[str, Any] = {"heads": 4, "output_projection": True}
LAYERS: dict[str, Any] = {
    "attention": A(0.5),
    "heads side by side": A(0.5, heads=2),
    "heads and a mask": A(0.5, mask="causal", **MIXED),
    "many heads": A(0.5, heads=32, output_projection=True),
    "grouped keys": A(0.5, kv_heads=2, **MIXED),
    "rotations": A(0.5, rope=10000.0, key_size=16, **MIXED),
    "norms of keys": A(0.5, qk_norm="all", **MIXED),
    "norms of heads": A(0.5, qk_norm="head", **MIXED),
    "biases": A(0.5, query_bias=0.3, **MIXED),
    "soft cap": A(0.5, softcap=2.0),
    "position bias": A(0.5, position_bias=sa.alibi(4, 0.5), mask="causal"),
    "standard softmax": A(0.5, identity=False, centring=False),
    "RMSNorm before": N(A(0.5), norm="rms", eps=1e-5),
    "RMSNorm after": N(A(0.5), norm="rms", place="after"),
    "LayerNorm before": N(A(0.5), norm="layer"),
    "LayerNorm after": N(A(0.5), norm="layer", place="after"),
    "LayerNorm in groups": N(A(0.5, heads=2), norm="layer"),
    "ReLU": M(0.5),
    "GELU": M(0.5, activation="gelu"),
    "gated": M(0.5, activation="silu", gated=True),
    "softplus": M(0.5, activation="softplus"),
    "two blocks": [A(0.5), N(M(0.3, activation="tanh"), norm="layer")],
    "schedules": A(RISING, RISING, **MIXED),
    "schedules of several blocks": [N(A(RISING), norm="layer"), M(RISING), N(M(0.3), norm="rms")],
    "a schedule in parallel": sa.Parallel([A(0.5, **MIXED), M(RISING)]),
    "parallel": sa.Parallel([A(0.5, **MIXED), M(0.3)]),
    "pattern": sa.Pattern([[A(0.5, **MIXED)], [A(0.3, **MIXED), M(0.2)]]),
}
V0 = np.array(
    [[1.0, 0.2, 1.0, 0.1], [0.2, 1.0, 0.2, 0.3], [1.0, 0.2, 1.0, 0.1], [0.1, 0.3, 0.1, 2.0]]
)
"""Tokens 0 and 2 are equal."""
RUN: dict[str, Any] = {"width": 64, "depth": 4, "samples": 70, "seed": 3}


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
@pytest.mark.parametrize("name", ["attention", "LayerNorm in groups", "parallel", "pattern"])
def test_exponents_and_kernels(name: str, log: pytest.LogCaptureFixture) -> None:
    """Several gradients that go back together."""
    compiled = sa.lyapunov(LAYERS[name], V0, exponents=3, **RUN)
    kernel = sa.neural_tangent_kernel(LAYERS[name], V0, **RUN)
    assert log.messages == []
    with sa.eager():
        other = sa.lyapunov(LAYERS[name], V0, exponents=3, **RUN)
        by_torch = sa.neural_tangent_kernel(LAYERS[name], V0, **RUN)
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
    monkeypatch.setattr("shaped_attention.lazy.compiled.network.thread_count", lambda place: 3)
    xr.testing.assert_identical(whole.drop_attrs(), sa.gradient_norms(
        A(0.5), V0, **run).drop_attrs())  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "layer", "changes"),
    [
        ("gradients that span the width", A(0.5), {"width": 6}),
    ],
)
def test_what_torch_takes_back(
    reason: str, layer: Any, changes: dict[str, Any], log: pytest.LogCaptureFixture
) -> None:
    data = sa.gradient_norms(layer, V0, **RUN | changes)
    (message,) = log.messages
    assert reason in message
    assert np.isfinite(data.gradient_norm).all()


@pytest.mark.parametrize("scale", [1.0, 1e-8])
def test_a_program_that_differs_is_not_used(
    scale: float, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """The control: a wrong translation, which the comparison with torch notices."""
    right = RULES["_softmax_backward_data"]
    monkeypatch.setitem(
        RULES, "_softmax_backward_data",
        lambda *arguments: 1.001 * right(*arguments),
    )  # fmt: skip
    sa.gradient_norms(A(0.5), scale * V0, **RUN)
    (message,) = log.messages
    assert "compiled code that differs by" in message


@dataclass(frozen=True)
class Peeking(sa.Block):
    """A branch that takes a number out of torch without its knowledge."""

    gamma: float = 0.5
    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        scores = project(tokens, 4) @ project(tokens, 4).mT / tokens.shape[-1]
        number = float(scores.detach().numpy()[0, 0, 0])
        return number * (project(tokens, tokens.shape[-1]) / tokens.shape[-1] ** 0.5)


def test_a_number_taken_from_some_samples_is_noticed(log: pytest.LogCaptureFixture) -> None:
    sa.gradient_norms(Peeking(), V0, **RUN)
    (message,) = log.messages
    assert "compiled code that differs by" in message


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
    assert (norms.sel(parameter=["0.0.0", "0.0.1", "3.0.0"]) == 0.0).all()
    assert (norms.sel(parameter="3.0.2") > 0.0).all()


# The recorder.


def recorded(function: Any, *shape: int) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Record a function of a tensor; return its argument, value, and program."""
    recorder = Recorder(64)
    x = recorder.input(torch.from_numpy(np.random.default_rng(0).normal(size=(64, *shape))))
    with recorder:
        y = function(x)
    matrix, result = recorder.value(x), recorder.value(y)
    return x, y, assemble(recorder.graph, [matrix], [result.value()])


FUNCTIONS: dict[str, Any] = {
    "rows": lambda x: x[:, 1:] + x[:, :2] * x[:, 2:],
    "columns": lambda x: torch.cat([x[..., 2:], 2.0 * x[..., :1]], -1) - 1.0,
    "entries": lambda x: (x[:, :, 1] / x[:, 0, :3].exp())[:, None],
    "sums": lambda x: x.sum((1, 2))[:, None, None] + x.mean(-1, keepdim=True),
    "lengths": lambda x: torch.linalg.vector_norm(x, dim=-1)[..., None] * x.square().sqrt(),
    "powers": lambda x: -x + x**3 + (x * x) ** 0.5 - 1.0 / (2.0 + x * x).rsqrt(),
    "signs": lambda x: torch.where(x > 0.5, x, -2.0) + (x <= 0.0).to(x.dtype) + x.clamp(max=0.0),
    "padding": lambda x: torch.nn.functional.pad(x, (1, 2)).mT @ x,
    "repeats": lambda x: x[:, :1].expand(-1, 3, -1) * x[..., :1].expand(-1, -1, 4),
    "diagonal": lambda x: (x @ x.mT).diagonal(dim1=1, dim2=2)[..., None],
    "stacks": lambda x: torch.stack([x[:, 0], x[:, 2]], 1) @ torch.stack([x[:, 1]] * 2, -1),
    "splits": lambda x: torch.split(x, [1, 3], -1)[1] * torch.split(x, [1, 3], -1)[0],
    "functions": lambda x: torch.tanh(x) + torch.sigmoid(x) * torch.erfc(x)
    + torch.logaddexp(x, torch.zeros_like(x)),
    "masks": lambda x: torch.softmax(x.masked_fill(torch.eye(3, 4) > 0, -torch.inf), -1),
    "written in place": lambda x: torch.empty_like(x).copy_(x).add_(x.mT.mT, alpha=2.0),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.portability
@pytest.mark.parametrize("name", FUNCTIONS)
def test_translations(name: str) -> None:
    x, y, program = recorded(FUNCTIONS[name], 3, 4)
    (result,) = run_program(program, x.numpy())
    np.testing.assert_allclose(result, y.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["rows", "columns", "powers", "signs", "functions", "masks"])
def test_ways_back(name: str) -> None:
    """What torch's autograd does is recorded as well."""

    def gradient(x: torch.Tensor) -> torch.Tensor:
        y = x.detach().requires_grad_()
        value = FUNCTIONS[name](y)
        (value * value).backward(torch.ones_like(value))
        assert y.grad is not None
        return y.grad

    x, y, program = recorded(gradient, 3, 4)
    (result,) = run_program(program, x.numpy())
    np.testing.assert_allclose(result, y.numpy(), rtol=1e-11, atol=1e-11)


REFUSED: dict[str, tuple[Any, str]] = {
    "a sum over samples": (lambda x: x.sum(0, keepdim=True), "an operation across samples"),
    "a single sample": (lambda x: x[0], "an operation across samples"),
    "an unknown function": (lambda x: torch.special.bessel_j0(x), "special_bessel_j0"),
    "a number that reaches Python": (
        lambda x: x * float(x[0, 0, 0]), "an operation across samples",
    ),
    "a number of all samples": (lambda x: x if bool((x > 0).all()) else -x, "torch's all"),
    "other entries for each sample": (
        lambda x: x + torch.arange(64.0)[:, None, None], "differs between samples"
    ),
    "an unknown form": (lambda x: torch.div(x, 2.0, rounding_mode="floor"), "div in this form"),
    "an order": (lambda x: x.sort(-1).values, "torch's sort"),
    "a view of what was changed": (
        lambda x: [y := x * 1.0, z := y[:, :1], y.add_(x), z + 1.0][-1], "not recorded"
    ),
    "masked scores without a softmax": (
        lambda x: x.masked_fill(torch.eye(3, 4) > 0, -torch.inf) + 1.0, "masked scores"
    ),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_recorded(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(RecordingError, match=message):
        recorded(function, 3, 4)


@pytest.mark.quick
def test_random_numbers_are_operations() -> None:
    """Every kind of random number that a space draws becomes a node of the graph."""
    recorder = Recorder(3)
    source = RecordingSource(recorder, 5)
    with source.inside(2), recorder:
        draws = source.stream("name").draws()
        drawn = [draws.normal(2, 3), draws.wishart_factor(2, 9), draws.wishart_factor(3, 4)]
    kinds = [recorder.value(x).node.kind for x in drawn]
    assert kinds == ["normal", "wishart", "normal"]
    assert [recorder.value(x).node.lower for x in drawn] == [False, True, False]


@pytest.mark.quick
def test_vectors_of_parts() -> None:
    parts = [np.random.default_rng(k).normal(size=(70, 2, k + 1)) for k in range(2)]
    state = layer_programs.in_vectors(parts, 16)
    assert state.shape == (5, 6, 16)
    for part, other in zip(parts, layer_programs.apart(state, [(2, 1), (2, 2)], 70), strict=True):
        np.testing.assert_array_equal(part, other)
