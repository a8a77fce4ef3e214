"""The chain derived from branches has the paths of the chain written by hand, to rounding.

Both draw the same random numbers by name, so nothing is left to chance: equal paths mean equal
laws. That the derived chain has the law of networks with real weights is shown in
`test_chain_law.py`, `test_attention_variants.py`, `test_normalised.py` and `test_layer_norm.py`.
"""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.derived.state import State
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.primitives import cholesky
from tests.example_linear import Linear
from tests.hand_written import ByHand

V0 = sa.equicorrelated(3, 0.3)
A, M = sa.ShapedAttention, sa.ShapedMLP


@dataclass(frozen=True, eq=False, repr=False)
class Attention(ByHand, sa.ShapedAttention):
    """Attention whose step is written by hand."""

    limit = "not needed"


@dataclass(frozen=True, eq=False, repr=False)
class MLP(ByHand, sa.ShapedMLP):
    """An MLP whose step is written by hand."""

    limit = "not needed"


@dataclass(frozen=True, eq=False, repr=False)
class Normalised(ByHand, sa.Normalised):
    """A normalised block whose step is written by hand."""

    limit = "not needed"


class Parallel(ByHand, sa.Parallel):
    """Parallel branches whose step is written by hand."""

    limit = "not needed"


def both(make: Any) -> tuple[Any, Any]:
    """Return a layer, and the same written by hand."""
    own = (sa.ShapedAttention, sa.ShapedMLP, sa.Normalised, sa.Parallel)
    return make(*own), make(Attention, MLP, Normalised, Parallel)


HEADS = {"output_projection": True}
ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {},
    "heads": {"heads": 2},
    "heads, W_O": {"heads": 2, **HEADS},
    "grouped keys": {"heads": 4, "kv_heads": 2, **HEADS},
    "narrow heads": {"heads": 8, "kv_heads": 2, "head_size": 3, **HEADS},
    "few keys": {"key_size": 2},
    "causal": {"mask": "causal"},
    "biases": {"query_bias": 0.3, "key_bias": 0.2},
    "biases, grouped keys": {
        "heads": 4, "kv_heads": 2, "query_bias": 0.3, "key_bias": 0.2, **HEADS,
    },
    "rope": {"heads": 2, "rope": 10_000.0, "head_size": 8, **HEADS},
    "qk norm": {"heads": 2, "qk_norm": "head", **HEADS},
    "qk norm over heads": {"heads": 4, "kv_heads": 2, "qk_norm": "all", **HEADS},
    "qk norm, one head": {"qk_norm": True},
    "rope, qk norm": {
        "heads": 4, "kv_heads": 2, "rope": 10_000.0, "head_size": 8, "qk_norm": True, **HEADS,
    },
    "soft cap": {"softcap": 2.0},
    "alibi": {"heads": 4, "position_bias": "alibi", **HEADS},
    "without identity": {"identity": False},
}  # fmt: skip
HIDDEN: dict[str, dict[str, Any]] = {
    "relu": {},
    "gelu": {"activation": "gelu"},
    "shaped tanh": {"activation": "tanh", "scale": 1.0},
    "gated": {"activation": "silu", "gated": True},
    "shaped gate": {"activation": "silu", "gated": True, "scale": 1.0, "gate_bias": 0.5},
    "few units": {"activation": "gelu", "hidden": 2},
    "more units": {"hidden_ratio": 2.0},
    "input scale": {"activation": "gelu", "input_scale": 2.0},
}
INNER = {
    "attention": lambda a, m: a(0.5),
    "heads": lambda a, m: a(0.5, heads=2),
    "gelu": lambda a, m: m(0.5, activation="gelu"),
}
LAYERS: dict[str, tuple[Any, Any]] = {
    **{f"attention, {k}": both(lambda a, m, n, p, o=o: a(0.5, **o)) for k, o in ATTENTION.items()},
    **{f"mlp, {k}": both(lambda a, m, n, p, o=o: m(0.5, **o)) for k, o in HIDDEN.items()},
    **{
        f"{place}, {norm}, eps={eps}, {name}": both(
            lambda a, m, n, p, place=place, norm=norm, eps=eps, make=make: n(
                make(A, M), place, norm, eps=eps, gain=1.3
            )
        )
        for place in ("before", "after", "sandwich", "branch")
        for norm in ("rms", "layer")
        for eps in (0.0, 0.01)
        for name, make in INNER.items()
    },
    "parallel": both(lambda a, m, n, p: p(A(0.5), M(0.5))),
    "parallel, heads": both(lambda a, m, n, p: p(A(0.4, heads=2), A(0.4, heads=4), M(0.4))),
    "parallel, LayerNorm": both(
        lambda a, m, n, p: n(sa.Parallel(A(0.5, heads=2), M(0.5)), norm="layer", eps=1e-3)
    ),
    "two blocks": both(lambda a, m, n, p: [a(0.5, heads=2), m(0.5)]),
    "LayerNorm and a block without": both(lambda a, m, n, p: [n(A(0.5), norm="layer"), m(0.5)]),
    "schedule": both(lambda a, m, n, p: a(sa.Schedule([(0.0, 0.2), (1.0, 0.6)]))),
}


def paths(layer: Any, width: int, seed: int = 3, *, eager: bool = False) -> Any:
    with sa.eager() if eager else nullcontext():
        return sa.simulate_chain(
            layer, V0, width=width, depth=3, samples=20, seed=seed, save_every=1, progress=False
        )["V"].to_numpy()


@pytest.mark.quick
@pytest.mark.parametrize("name", LAYERS)
def test_same_paths(name: str) -> None:
    """In compiled code and in torch, in a narrow layer too where there is one."""
    derived, written = LAYERS[name]
    narrow = "heads" in name or "parallel" in name or "two" in name
    for width in (24,) if narrow else (24, 4):
        for eager in (False, True):
            found, expected = (paths(x, width, eager=eager) for x in (derived, written))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_other_numbers_are_noticed() -> None:
    """Negative control: with another seed paths differ by far more than rounding."""
    derived, written = LAYERS["attention, plain"]
    assert np.abs(paths(derived, 24) - paths(written, 24, seed=4)).max() > 0.1


class OwnRoot(Linear):
    """A linear branch with a root in place of the derived one."""

    limit = "not needed"

    def root(self, p: Any, factor: Any, numbers: Any, width: int) -> Any:
        return factor


def test_roots_of_their_own_are_parts_of_other_blocks() -> None:
    """In parallel branches, in all places of a norm, and with its means."""
    for make in (
        lambda x: sa.Parallel(x(0.5), M(0.5)),
        *(
            lambda x, place=place, norm=norm: sa.Normalised(x(0.5), place, norm)
            for place in ("before", "after", "sandwich", "branch")
            for norm in ("rms", "layer")
        ),
    ):
        np.testing.assert_allclose(paths(make(OwnRoot), 24), paths(make(Linear), 24), rtol=1e-9)


@pytest.mark.parametrize("name", ["attention, grouped keys", "mlp, few units", "mlp, gated"])
def test_what_was_drawn_is_freed_with_the_step(name: str) -> None:
    """Nothing refers to itself, so that no memory waits for the collector of cycles."""
    layer, p = LAYERS[name][0], at_depth(LAYERS[name][0], 0.0)
    drawn = []

    class Watched(TorchNumbers):
        def normal(self, *arguments: Any) -> Any:
            numbers = super().normal(*arguments)
            drawn.append(weakref.ref(numbers))
            return numbers

    start = State((cholesky(torch.tensor(V0))[None],))
    gc.collect()
    gc.disable()
    try:
        layer.step(p, start, Watched(Keys(0, "chain"), torch.arange(1), 0), 24)
        assert drawn
        assert [x for x in drawn if x() is not None] == []
    finally:
        gc.enable()
