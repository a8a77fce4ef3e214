"""Formulas of memory against what is allocated; runs that do not fit are refused in a sentence."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

import shaped_attention as sa
from shaped_attention import memory_sizes
from shaped_attention.numerics.draws import Draws
from shaped_attention.samplers import torchsde_steps
from shaped_attention.samplers.network import WeightStepper
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import Specification, specify
from shaped_attention.samplers.steppers import Stepper
from shaped_attention.samplers.steppers.torch_descriptions import DescriptionStepper

ATTENTION, MLP = sa.ShapedAttention(0.3), sa.ShapedMLP(0.3)
LAYERS: dict[str, Any] = {
    "attention": ATTENTION,
    "8 heads": sa.ShapedAttention(0.3, heads=8),
    "transformer": [ATTENTION, MLP],
    "wide": sa.ShapedMLP(0.3, hidden_ratio=4.0),
    "LayerNorm": sa.Normalised(ATTENTION, norm="layer"),
}
SIZES = [(6, 96), (16, 384)]
PATHS = 16


class Live(TorchDispatchMode):
    """The bytes of all tensors that exist at a time, and the most so far."""

    def __init__(self) -> None:
        super().__init__()
        self.peak, self._live, self._most = 0, dict[int, tuple[Any, int]](), 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), named: Any = None):
        result = function(*args, **(named or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor) and not value.is_meta:
                storage = value.untyped_storage()
                reference = StorageWeakRef(storage)
                if reference.cdata not in self._live:
                    self._most += storage.nbytes()
                self._live[reference.cdata] = reference, storage.nbytes()
        if self._most > self.peak:
            # Those that are gone are counted out only here, which is faster.
            self._live = {k: v for k, v in self._live.items() if not v[0].expired()}
            self._most = sum(size for _, size in self._live.values())
            self.peak = max(self.peak, self._most)
        return result


@pytest.fixture
def numbers_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all numbers by operations of torch, as on a device."""
    monkeypatch.setattr(Draws, "_on_host", False)


def specified(name: str, kind: str, m: int, width: int, dtype: str) -> Specification:
    of_width = kind in ("chain", "network")
    return specify(
        LAYERS[name], sa.equicorrelated(m, 0.2), width=width if of_width else None, steps=3,
        dt=0.01, samples=PATHS, seed=0, dtype=dtype, save_every=1,
    )  # fmt: skip


def made(name: str, kind: str, m: int, width: int, dtype: str) -> Stepper:
    """Return a stepper of torch that moves all paths together, as it would on a device."""
    spec = specified(name, kind, m, width, dtype)
    if kind == "network":
        stepper = WeightStepper(spec)
        stepper.size = PATHS
        return stepper
    return DescriptionStepper(replace(spec, method=kind) if kind in LIMITS else spec, PATHS)


def measured(stepper: Stepper) -> float:
    """Return the bytes of a path after two steps, at the moment with most."""
    with Live() as live:
        paths = Paths(stepper, 0, PATHS)
        for _ in range(2):
            if stepper.spec.method == "torchsde":
                torchsde_steps.advance(paths, 3, 1)
            else:
                paths.advance(3)
        paths.factors()
    return live.peak / PATHS


LIMITS = ("direct", "clock", "torchsde")
CASES = [
    *(("chain", name, "float64") for name in LAYERS if name != "wide"),
    ("chain", "attention", "float32"),
    *((kind, "transformer", "float64") for kind in LIMITS),
    *((kind, "attention", "float32") for kind in LIMITS),
    *(("network", name, "float64") for name in ("attention", "transformer", "wide", "LayerNorm")),
    ("network", "attention", "float32"),
]


@pytest.mark.parametrize(("kind", "name", "dtype"), CASES)
def test_formulas_of_torch(kind: str, name: str, dtype: str, numbers_of_torch: None) -> None:
    for m, width in SIZES:
        stepper = made(name, kind, m, width, dtype)
        ratio = stepper.bytes_of_one() / measured(stepper)
        assert 1.0 <= ratio <= 1.5, (m, width, ratio)


def test_more_results_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_sizes, "free_memory", lambda: 2**21)
    run: dict[str, Any] = {"width": 16, "depth": 4, "save_every": 1, "progress": False}
    with pytest.raises(
        ValueError,
        match=r"^samples must be at most 1618 in 0.000977 GiB of memory \(keep='V' at 5 times "
        r"takes 648 bytes a sample; fewer tokens or stored times, or keep='observables', need "
        r"less\); got 1619$",
    ):
        sa.simulate_chain(ATTENTION, sa.equicorrelated(4, 0.2), samples=1619, **run)
    kept = sa.simulate_chain(
        ATTENTION, sa.equicorrelated(4, 0.2), samples=1619, keep="observables", **run
    )
    assert kept.sizes["sample"] == 1619


REFUSED: dict[str, tuple[Any, str]] = {
    "layers of a chain": (
        lambda: sa.simulate_chain(ATTENTION, np.eye(2), width=8, depth=2 * 10**9, samples=1),
        r"^depth must be at most \d+ in 0\.5 GiB of memory \(fewer steps .*; got 2000000000$",
    ),
    "layers of a configuration": (
        lambda: sa.model_from_config("gpt2", num_hidden_layers=2**31),
        r"^config\.n_layer must be at most \d+ in 0\.5 GiB of memory .*; got 2147483648$",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_fit_is_refused_before_it_is_allocated(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_sizes, "free_memory", lambda: 2**30)
    call, message = REFUSED[what]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=message):
        call()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18
