"""Runs on a device, of which torch's meta device takes the place.

Its tensors have no numbers, but a place and a graph of derivatives: an operation on tensors of two
places fails, and so does a question about a number, for which the host would have to wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics import draws
from shaped_attention.rows import directions
from shaped_attention.samplers import arguments

V0 = sa.equicorrelated(4, 0.3)
ATTENTION = sa.ShapedAttention(0.3, mask="causal", heads=2, output_projection=True)
LAYERS: dict[str, Any] = {
    "attention": sa.ShapedAttention(0.3),
    "heads": sa.ShapedAttention(0.3, heads=2, output_projection=False),
    "rope, shared keys, QK-norm": sa.ShapedAttention(
        0.3, heads=4, kv_heads=2, head_size=4, rope=10.0, qk_norm=True, output_projection=True
    ),
    "GPT": [
        sa.Normalised(ATTENTION, norm="layer"),
        sa.Normalised(sa.ShapedMLP(0.3, activation="gelu", hidden=8), norm="layer"),
    ],
    "gated": sa.ShapedMLP(0.3, activation="silu", gated=True, hidden=8),
    "parallel": sa.Parallel(ATTENTION, sa.ShapedMLP(0.3)),
}
RUN: dict[str, Any] = {"width": 16, "samples": 3, "device": "meta", "progress": False}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Run a test on the meta device; list what is copied to the host, which gets ones.

    Of the generator's rounds and attempts, all alike, one remains: each operation takes Python.
    """
    copied: list[torch.Size] = []

    def cpu(values: torch.Tensor) -> torch.Tensor:
        if values.device.type == "cpu":
            return values
        copied.append(values.shape)
        return torch.ones(values.shape, dtype=values.dtype)

    monkeypatch.setattr(draws, "_CHI_ATTEMPTS", 1)
    monkeypatch.setattr(draws, "threefry", lambda key, c0, c1: (c0 ^ int(key[1] >> 1), c0 + c1))
    monkeypatch.setattr(arguments, "check_device", torch.device)
    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    return copied


@pytest.mark.parametrize("sampler", [sa.simulate_network, sa.simulate_chain])
def test_the_host_waits_only_when_it_stores(
    sampler: Callable[..., Any], read: list[torch.Size]
) -> None:
    counts = []
    for depth in (1, 2):
        read.clear()
        sampler(LAYERS["attention"], V0, depth=depth, dtype="float32", **RUN)
        counts.append(len(read))
    assert counts[0] == counts[1] > 0


@pytest.mark.filterwarnings("ignore:method=")  # Every answer is 1, times of explosions too.
@pytest.mark.parametrize("method", ["direct", "clock"])
def test_limits(method: Any, read: list[torch.Size]) -> None:
    run = {key: value for key, value in RUN.items() if key != "width"}
    sa.integrate_sde(LAYERS["attention"], V0, horizon=0.04, step=0.02, method=method, **run)
    assert read


@pytest.mark.parametrize(
    ("name", "loss"),
    [*((name, "readout") for name in LAYERS), ("gated", "quadratic"), ("gated", "cross-entropy:3")],
)
def test_gradients(name: str, loss: str, read: list[torch.Size]) -> None:
    norms = sa.gradient_norms(LAYERS[name], V0, depth=2, loss=loss, **RUN)
    # The loss, and the norms of all parameters once they are there.
    assert len(read) == 1 + norms.sizes["parameter"]


SGD, MUON = sa.SGD(0.1, momentum=0.9, clip=1.0), sa.Muon(0.02)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("gated", SGD), ("gated", MUON), ("heads", MUON), ("rope, shared keys, QK-norm", SGD),
     ("GPT", MUON), ("parallel", SGD)],
)  # fmt: skip
def test_training(name: str, optimizer: Any, read: list[torch.Size]) -> None:
    run = sa.simulate_training(
        LAYERS[name], V0, [0, 1, 0, 1], depth=2, steps=2, optimizer=optimizer, **RUN
    )
    assert run.loss.shape == (3, 3)


def test_a_tensor_on_the_host_is_noticed(
    read: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a matrix in the wrong place, and a question about a number."""
    orthonormal = directions.orthonormal

    def elsewhere(rows: torch.Tensor, length: torch.Tensor, *known: torch.Tensor) -> Any:
        whole = orthonormal(rows, length, *known)
        return whole + torch.zeros(whole.shape[1:], dtype=rows.dtype)

    monkeypatch.setattr(directions, "orthonormal", elsewhere)
    with pytest.raises(RuntimeError):
        sa.gradient_norms(LAYERS["attention"], V0, depth=2, **RUN)
    monkeypatch.setattr(
        directions, "orthonormal",
        lambda rows, length, *more: orthonormal(rows, length, *more) if length.sum() > 0 else None,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="meta"):
        sa.gradient_norms(LAYERS["attention"], V0, depth=2, **RUN)
