"""What gradients and training steps of lazily revealed weights take, against their estimates."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

import shaped_attention as sa
from shaped_attention.lazy import deep_runs, networks, training_run
from tests.test_memory import Live

PLAIN: dict[str, Any] = {"centring": False, "identity": False, "scaled_temperature": False}
ATTENTION = sa.ShapedAttention(0.5, heads=2, output_projection=True, **PLAIN)
LAYERS: dict[str, Any] = {
    "attention": ATTENTION,
    "transformer": [
        sa.Normalised(ATTENTION, norm="layer"),
        sa.Normalised(sa.ShapedMLP(0.6, activation="gelu", hidden_ratio=4.0), norm="layer"),
    ],
}
V0 = sa.equicorrelated(4, 0.2)
SAMPLES = 4


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the bytes that were expected of a sample in each call."""
    noted: list[float] = []
    real = networks.chunk_of_samples

    def chunk_of_samples(entries: int, spec: Any, *rest: Any) -> int:
        noted.append(networks.of_rows(entries, spec.dtype.itemsize))
        return real(entries, spec, *rest)

    for module in (deep_runs, training_run):
        monkeypatch.setattr(module, "chunk_of_samples", chunk_of_samples)
    return noted


@pytest.mark.parametrize(
    ("name", "optimizer", "width", "steps", "dtype"),
    [
        ("attention", sa.SGD(0.1, momentum=0.9), 10**5, 3, "float64"),
        ("transformer", sa.Muon(0.02), 2000, 4, "float32"),
        ("transformer", sa.AdamW(0.001), 500, 3, "float64"),
    ],
)
def test_training(
    name: str, optimizer: Any, width: int, steps: int, dtype: str, estimates: list[float]
) -> None:
    with Live() as live:
        sa.simulate_training(
            LAYERS[name], V0, [0, 1, 2, 1], width=width, depth=2, samples=SAMPLES, steps=steps,
            optimizer=optimizer, dtype=dtype,
        )  # fmt: skip
    ratio = estimates[-1] / (live.peak / SAMPLES)
    assert 1.0 <= ratio <= 4.0, ratio


@pytest.mark.parametrize("name", LAYERS)
def test_gradients(name: str, estimates: list[float]) -> None:
    with Live() as live, sa.eager():
        sa.gradient_norms(
            LAYERS[name], V0, width=2000, depth=6, samples=SAMPLES, loss="cross-entropy:3"
        )
    ratio = estimates[-1] / (live.peak / SAMPLES)
    assert 1.0 <= ratio <= 4.0, ratio


def test_compiled_gradients(estimates: list[float]) -> None:
    """Without the buffers of compiled code, which do not depend on the samples."""
    samples = 2048
    run: dict[str, Any] = {"width": 2000, "depth": 30, "samples": samples}
    sa.gradient_norms(LAYERS["attention"], V0, **run)  # code is compiled once
    tracemalloc.start()
    sa.gradient_norms(LAYERS["attention"], V0, **run)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    ratio = estimates[-1] / (peak / samples)
    assert 1.0 <= ratio <= 4.0, ratio
