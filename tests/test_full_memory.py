"""Products by blocks of columns, as on a device; what happens where memory is full."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.samplers import loop
from shaped_attention.samplers.network import WeightProduct

KEY = stream_key(5, "network")
LAYER = sa.ShapedAttention(0.3)
V0 = sa.equicorrelated(3, 0.2)


@pytest.mark.parametrize("most", [1, 40, 10**6])
def test_products_by_blocks_of_columns_are_those_of_the_cpu(most: int) -> None:
    x = torch.linspace(-1.0, 1.0, 3 * 2 * 5, dtype=torch.float64).reshape(3, 2, 5)
    product = WeightProduct(Draws(KEY, torch.arange(4, 7), 2))
    expected = WeightProduct(Draws(KEY, torch.arange(4, 7), 2))(x, 9)
    found = product.by_blocks(x, 9, 0, most)
    assert torch.allclose(found, expected, rtol=0.0, atol=1e-13)
    assert not torch.allclose(product.by_blocks(x, 9, 1, most), expected, atol=0.1)


class FullMemory:
    """A stepper's chunk that does not fit until it is small."""

    def __init__(self, fits: int) -> None:
        self.fits, self.asked = fits, list[int]()

    def __call__(self, stepper: Any, first: int, count: int) -> Any:
        self.asked.append(count)
        if count > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return STARTING(stepper, first, count)


STARTING = loop.Paths


def run() -> Any:
    return sa.simulate_chain(LAYER, V0, width=16, depth=2, samples=80, chunk=64, progress=False)


def test_chunks_are_smaller_once_where_memory_is_full(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = run()
    memory = FullMemory(8)
    monkeypatch.setattr(loop, "Paths", memory)
    with caplog.at_level(logging.WARNING, logger="shaped_attention"):
        assert run().equals(expected)
    assert set(memory.asked) >= {64, 8}
    assert (
        "the memory of cpu is full; the run goes on in chunks of 8 samples instead of 64"
        in caplog.text
    )
    # Only once: then it is the caller's to choose.
    monkeypatch.setattr(loop, "Paths", FullMemory(7))
    with pytest.raises(
        MemoryError,
        match=r"^chain: the memory of cpu is full even with 8 samples at a time; wait for "
        r"other programs there to end, or pass a smaller chunk$",
    ):
        run()
