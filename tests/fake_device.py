"""A CUDA device that is not there: torch's fake tensors have places, no numbers.

An operation on tensors of two devices fails, and so does any question about a number, for which
the host would have to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from shaped_attention.blocks import mlp
from shaped_attention.numerics import draws
from shaped_attention.numerics.draws import threefry
from shaped_attention.samplers import arguments, loop
from shaped_attention.samplers.network import WeightStepper
from shaped_attention.samplers.steppers.torch_descriptions import DeviceArrays


class Waits:
    """How often the host asked the device for numbers; it gets ones."""

    count = 0

    def ones(self, values: torch.Tensor) -> Any:
        """Answer a question."""
        assert isinstance(values, FakeTensor)
        assert values.device.type == "cuda"
        self.count += 1
        of_numpy = {torch.bool: bool, torch.int64: np.int64}
        return np.ones(tuple(values.shape), dtype=of_numpy.get(values.dtype, np.float64))


def _shape_of_entries(x: torch.Tensor, index: Any, value: Any = 0.0) -> torch.Size:
    """Return the shape of indexed entries, for which the host does not wait."""
    several = index if isinstance(index, tuple) else (index,)
    tensors = [part for part in (*several, value) if isinstance(part, torch.Tensor)]
    assert all(part.device == x.device for part in tensors)
    # Their number is that of entries that are true, which the host would have to know.
    assert not any(part.dtype == torch.bool for part in tensors[: len(several)])
    with _disable_current_modes():
        nowhere = [_like(part) if isinstance(part, torch.Tensor) else part for part in several]
        return _like(x)[tuple(nowhere)].shape


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device="meta")


def entries(x: torch.Tensor, index: Any) -> torch.Tensor:
    """Return indexed entries: torch's own function needs a build with CUDA."""
    return torch.empty(_shape_of_entries(x, index), dtype=x.dtype, device=x.device)


def in_turn(work: Callable[[Any, Callable[[], None]], None], parts: Iterable[Any], _: int) -> None:
    """Work on all parts in this thread."""
    for part in parts:
        work(part, lambda: None)


def on_the_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that works with numbers, before anything is on the device."""

    def call(*arguments: Any) -> Any:
        with _disable_current_modes():
            return function(*arguments)

    return call


PLACES: dict[Any, tuple[torch.dtype, torch.device]] = {}
"""Type and place of the random words of counters of some shapes, types and places."""


def words(key: Any, c0: torch.Tensor, c1: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Work through the 150 operations of `threefry` once for each kind of counters.

    Without numbers, shape, type and place are all that they depend on.
    """
    kind = tuple((x.shape, x.dtype, x.device) for x in (c0, c1))
    if kind not in PLACES:
        one, other = threefry(key, c0, c1)
        assert one.shape == other.shape == c0.shape
        assert (one.dtype, one.device) == (other.dtype, other.device)
        PLACES[kind] = one.dtype, one.device
        return one, other
    dtype, device = PLACES[kind]
    one, other = (torch.empty(c0.shape, dtype=dtype, device=device) for _ in range(2))
    return one, other


def fake_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Waits]:
    """Give tensors places and no numbers, and count what the host asks for."""
    asked, real = Waits(), torch.tensor
    monkeypatch.setattr(arguments, "check_device", torch.device)
    monkeypatch.setattr(draws, "threefry", words)
    # Each of the 16 is the same code.
    monkeypatch.setattr(draws, "_CHI_ATTEMPTS", 2)
    # The mode holds in its own thread.
    monkeypatch.setattr(loop, "on_threads", in_turn)
    for name in ("on_host", "factors"):
        monkeypatch.setattr(DeviceArrays, name, lambda _, values: asked.ones(values))
    owners = (loop, "start_states"), (WeightStepper, "starting"), (mlp, "mean_square")
    for owner, name in owners:
        monkeypatch.setattr(owner, name, on_the_host(getattr(owner, name)))
    monkeypatch.setattr(FakeTensor, "__getitem__", entries, raising=False)
    monkeypatch.setattr(FakeTensor, "__setitem__", _shape_of_entries, raising=False)
    monkeypatch.setattr(FakeTensor, "__invert__", lambda x: torch.eq(x, False), raising=False)
    with FakeTensorMode(allow_non_fake_inputs=True):

        def tensor(values: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
            # torch's own function needs a build with CUDA to copy to a device.
            with _disable_current_modes():
                copied = real(values, dtype=dtype)
            if device is None or torch.device(device).type == "cpu":
                return copied
            return torch.empty(copied.shape, dtype=copied.dtype, device=device)

        monkeypatch.setattr(torch, "tensor", tensor)
        monkeypatch.setattr(torch, "as_tensor", tensor)
        yield asked
