"""`explain` reports what runs each face, and eager runs execute the descriptions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.primitives import cholesky
from tests.example_gelu import GeluMLP
from tests.example_linear import Linear
from tests.own_roots import OwnRoot

BOTH = [sa.ShapedAttention(0.5, mask="causal"), sa.ShapedMLP(0.4)]
COMPILED = "compiled code on the CPU, torch otherwise"


@dataclass(frozen=True)
class Untraceable(OwnRoot, Linear):
    """A root that is written for torch alone."""

    limit = Linear.limit

    def root(self, p, factor, numbers, width):
        return torch.nn.functional.relu(factor)


@dataclass(frozen=True)
class Definite(OwnRoot, Linear):
    """A root in torch alone that needs a regular covariance."""

    limit = Linear.limit

    def root(self, p, factor, numbers, width):
        return torch.linalg.cholesky(factor @ factor.mT)


@dataclass(frozen=True)
class Counted(Linear):
    """A block that counts how often its description is entered."""

    entered = 0
    limit = Linear.limit

    def branch(self, p, tokens, project):
        type(self).entered += 1
        return super().branch(p, tokens, project)


def test_each_face_of_a_complete_layer():
    found = sa.explain(BOTH)
    assert found.network == "torch, with real weight matrices"
    assert found.chain == found.limit == COMPILED
    assert str(found).splitlines()[1] == f"chain    {COMPILED}"


@pytest.mark.parametrize(
    ("layer", "face", "words"),
    [
        (sa.ShapedAttention(0.5, centring=False), "limit", "by order 1, not 1/n"),
        (sa.ShapedMLP(0.5, skip=1.0), "limit", "its skip weight is not sqrt(1 - gamma^2)"),
        (sa.Normalised(sa.ShapedAttention(0.5, heads=8), norm="layer"), "chain", "LayerNorm"),
        (sa.ShapedAttention(0.5, heads=3), "chain", "must be a multiple of heads=3; got 8"),
        (sa.ShapedAttention(0.5, mask=np.eye(3, dtype=bool)), "limit", "must have shape (4, 4)"),
    ],
)
def test_what_is_missing_has_its_reason(layer, face, words):
    """Those of a block, and of a layer with a complete block besides."""
    for asked in (layer, [sa.ShapedMLP(0.4), layer]):
        text = getattr(sa.explain(asked, width=8), face)
        assert text.startswith("none: ")
        assert words in text


def test_a_description_that_cannot_be_traced_is_found():
    found = sa.explain(Untraceable(0.5))
    assert "whose description cannot be traced into a program (TypeError" in found.chain
    assert found.limit == COMPILED


def test_descriptions_are_tried_on_a_regular_covariance():
    """At a width below the number of tokens there is none, and such a description fails."""
    assert sa.explain(Definite(0.5)).chain.startswith("torch, in sa.eager() or on other dev")
    narrow = sa.explain(Definite(0.5), tokens=4, width=3).chain
    assert narrow.startswith("none: its description fails: ")


@pytest.mark.parametrize(("name", "value"), [("tokens", 0), ("width", 0), ("layer", 3)])
def test_what_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        sa.explain(**({"layer": BOTH} | {name: value}))


def runs(layer, v0):
    size = {"samples": 5, "progress": False}
    yield sa.simulate_chain(layer, v0, width=32, depth=6, seed=1, **size).V.values
    for method in ("torchsde", "direct"):
        yield sa.integrate_sde(
            layer, v0, horizon=0.3, step=0.1, seed=1, method=method, **size
        ).V.values


def test_eager_runs_are_the_same_to_rounding():
    v0 = sa.equicorrelated(3, 0.2, 1.3)
    compiled = list(runs(BOTH, v0))
    with sa.eager():
        eager = list(runs(BOTH, v0))
        assert sa.explain(BOTH).chain == "torch, as requested by shaped_attention.eager()"
    for ours, theirs in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
        assert (ours != theirs).any()


def test_eager_runs_enter_a_block_once_in_each_layer():
    """And compiled ones once in a run, to trace it, however deep it is."""
    v0 = sa.equicorrelated(3, 0.2)
    size = {"width": 32, "samples": 5, "chunk": 64, "progress": False}
    entered = []
    for depth in (3, 11):
        Counted.entered = 0
        sa.simulate_chain(Counted(0.5), v0, depth=depth, **size)
        entered.append(Counted.entered)
        Counted.entered = 0
        with sa.eager():
            sa.simulate_chain(Counted(0.5), v0, depth=depth, **size)
        entered.append(Counted.entered)
    assert entered == [1, 3, 1, 11]


def test_eager_mode_ends_with_an_error_too():
    with pytest.raises(ZeroDivisionError), sa.eager():
        _ = 1 / 0
    Counted.entered = 0
    sa.simulate_chain(Counted(0.5), np.eye(2), width=8, depth=5, samples=2, progress=False)
    assert Counted.entered == 1


def test_activations_that_are_none_are_refused():
    """An activation acts on single entries; what mixes them cannot be run on blocks of columns."""

    @dataclass(frozen=True)
    class WithRoot(OwnRoot, GeluMLP):
        limit = GeluMLP.limit

        def root(self, p, factor, numbers, width):
            return cholesky(numbers.activated_gram("hidden", factor, width, self.activation))

    @dataclass(frozen=True)
    class Mixed(WithRoot):
        def activation(self, x):
            return x @ x.mT @ x

    with pytest.raises(ValueError, match=r"function of single entries; it uses product$"):
        sa.simulate_chain(Mixed(0.5), np.eye(2), width=8, depth=5, samples=2)

    @dataclass(frozen=True)
    class Constant(WithRoot):
        def activation(self, x):
            return Graph().constant(np.ones((2, 1)))

    with pytest.raises(ValueError, match="an activation"):
        sa.simulate_chain(Constant(0.5), np.eye(2), width=8, depth=5, samples=2)


def test_many_tokens_have_another_executor():
    found = [sa.explain(BOTH, tokens=m, width=256).chain for m in (40, 96)]
    assert found[0] == COMPILED
    assert found[1].startswith("BLAS and LAPACK on the")
