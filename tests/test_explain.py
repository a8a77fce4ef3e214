"""`explain` reports what runs each face, and eager runs execute the descriptions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.numerics.graph import Graph
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.registry import code_of
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.samplers.steps import traced_chain
from tests.example_gelu import GeluMLP
from tests.example_linear import Linear

BOTH = [sa.ShapedAttention(0.5, mask="causal"), sa.ShapedMLP(0.4)]
COMPILED = "compiled code on tiles for float64 on the CPU, torch otherwise"


@dataclass(frozen=True)
class Untraceable(Linear):
    """A root that is written for torch alone."""

    limit = Linear.limit

    def root(self, p, factor, numbers, width):
        return torch.nn.functional.relu(factor)


@dataclass(frozen=True)
class Definite(Linear):
    """A root in torch alone that needs a regular covariance."""

    limit = Linear.limit

    def root(self, p, factor, numbers, width):
        return torch.linalg.cholesky(factor @ factor.mT)


@dataclass(frozen=True)
class Counted(Linear):
    """A block that counts how often its description is entered."""

    entered = 0
    limit = Linear.limit

    def root(self, p, factor, numbers, width):
        type(self).entered += 1
        return super().root(p, factor, numbers, width)


def test_each_face_of_a_complete_layer():
    found = sa.explain(BOTH)
    for faces in (*found.blocks, found.layer):
        assert faces.network == "torch, with real weight matrices"
        assert faces.chain == faces.limit == COMPILED
        assert faces.coupling == "chain and limit can be driven by the same numbers"
    assert str(found).count("network") == 3


@pytest.mark.parametrize(
    ("layer", "face", "words"),
    [
        (sa.ShapedAttention(0.5, centring=False), "limit", "(centring=False)"),
        (sa.ShapedMLP(0.5, skip=1.0), "limit", "its skip weight is not sqrt(1 - gamma^2)"),
        (sa.Normalised(sa.ShapedAttention(0.5, heads=256), norm="layer"), "chain", "LayerNorm"),
        (sa.ShapedAttention(0.5, heads=3), "chain", "must be a multiple of heads=3; got 256"),
        (sa.ShapedAttention(0.5, mask=np.eye(3, dtype=bool)), "limit", "must have shape (4, 4)"),
        (sa.ShapedAttention(0.5, key_size=2), "coupling", "with key_size=2"),
        (Linear(0.5), "coupling", "it does not map its random numbers to increments"),
    ],
)
def test_what_is_missing_has_its_reason(layer, face, words):
    """A block's own faces, those of the layer, and of a layer with a complete block besides."""
    for asked in (layer, [sa.ShapedMLP(0.4), layer]):
        text = getattr(sa.explain(asked).layer, face)
        assert text.startswith("none: ")
        assert words in text
    assert getattr(sa.explain([sa.ShapedMLP(0.4), layer]).blocks[0], face)[:5] != "none:"


def test_narrow_layers_are_not_coupled():
    assert (
        "width must be at least 10; got 9" in sa.explain(sa.ShapedMLP(0.4), width=9).layer.coupling
    )
    assert "none" not in sa.explain(sa.ShapedMLP(0.4), width=10).layer.coupling


def test_a_description_that_cannot_be_traced_is_found():
    found = sa.explain(Untraceable(0.5), program=True)
    assert "whose description cannot be traced into a program (TypeError" in found.layer.chain
    assert found.layer.limit == COMPILED
    assert list(found.programs) == ["limit: a step of length 0.01"]


def test_descriptions_are_tried_on_a_regular_covariance():
    """At a width below the number of tokens there is none, and such a description fails."""
    assert sa.explain(Definite(0.5)).layer.chain.startswith("torch, in sa.eager(), on other dev")
    narrow = sa.explain(Definite(0.5), tokens=4, width=3).layer.chain
    assert narrow.startswith("none: its description fails: ")


def test_a_root_in_place_of_the_derived_one_is_named():
    """An old block runs as before, and its chain says so; others say nothing."""
    assert "; Counted by a root of its own in place of" in sa.explain(Counted(0.5)).layer.chain
    assert "root" not in sa.explain(Linear(0.5)).layer.chain
    run = {"width": 8, "depth": 3, "samples": 4, "progress": False}
    old, new = (sa.simulate_chain(x, np.eye(2), **run) for x in (Counted(0.5), Linear(0.5)))
    np.testing.assert_allclose(old.V, new.V, rtol=1e-12)


def test_programs_have_a_line_for_each_instruction():
    """As many as the compiled code has, but for parts that are put together without being moved."""
    lines = sa.explain(BOTH, tokens=3, width=32, program=True).programs["chain: a step"]
    (program,) = traced_chain([BOTH], 3, 32, 1)
    kept = [n for n in program.nodes if n.kind not in ("input", "constant", "concatenate")]
    codes = [line[at.OP] for line in program.code]
    count = sum(code != code_of("concatenate") for code in codes)
    assert count == len(kept) + sum(n.kind == "activated_gram" for n in kept)
    own = [line for line in lines if line.strip()[0] in "rh" and "input" not in line]
    assert len([x for x in own if "constant(" not in x and "concatenate(" not in x]) == count
    text = "\n".join(lines)
    assert "wishart('queries', head 0, block 0, 32 degrees of freedom)" in text
    assert "activated_gram(r" in text
    assert "leaky(h, 1, 0.823223)" in text
    assert lines[-1] == "  new factor: r27"
    legend = str(sa.explain(Linear(0.5), tokens=3, width=32, program=True)).split("\n\n")[-1]
    assert legend.splitlines()[:2] == ["where", "  combine(a, b, s, t) = s a + t b"]
    assert "multiply_tn" not in legend
    assert "where" not in str(sa.explain(Linear(0.5)))


def test_units_of_two_projections_have_two_names():
    text = str(sa.explain(sa.ShapedMLP(0.5, activation="silu", gated=True), program=True))
    assert "sigmoid(h)" in text
    assert ", h')" in text


def test_scalars_that_change_with_depth_are_seen():
    layer = Linear(sa.Schedule([(0.0, 0.0), (1.0, 1.0)]))
    text = "\n".join(sa.explain(layer, program=True).programs["chain: a step"])
    assert "1..0" in text
    assert "0..0.0625" in text


def test_patterns_have_a_program_for_each_layer():
    found = sa.explain(sa.Pattern([Linear(0.3), GeluMLP(0.4)]), program=True)
    names = [f"chain, layer {k} of the pattern: a step" for k in (0, 1)]
    assert list(found.programs) == names
    assert "normal_cdf(h)" in "\n".join(found.programs[names[1]])


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
        assert sa.explain(BOTH).layer.chain == "torch, as requested by shaped_attention.eager()"
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
    class WithRoot(GeluMLP):
        limit = GeluMLP.limit

        def root(self, p, factor, numbers, width):
            return cholesky(numbers.activated_gram("hidden", factor, width, self.activation))

    @dataclass(frozen=True)
    class Mixed(WithRoot):
        def activation(self, x):
            return x @ x.mT @ x

    with pytest.raises(ValueError, match=r"function of single entries; it uses gram$"):
        sa.simulate_chain(Mixed(0.5), np.eye(2), width=8, depth=5, samples=2)

    @dataclass(frozen=True)
    class Constant(WithRoot):
        def activation(self, x):
            return Graph().constant(np.ones((2, 1)))

    with pytest.raises(ValueError, match="an activation"):
        sa.simulate_chain(Constant(0.5), np.eye(2), width=8, depth=5, samples=2)


def test_many_tokens_have_another_executor():
    found = [sa.explain(BOTH, tokens=m, width=256).layer.chain for m in (40, 96)]
    assert found[0] == COMPILED
    models = "(in simulate_model BLAS and LAPACK, since a layer draws so many numbers)"
    assert [models in sa.explain(BOTH, tokens=95, width=n).layer.chain for n in (256, 512)] == [
        True, True,
    ]  # fmt: skip
    assert found[1].startswith("BLAS and LAPACK for float64 on the")
