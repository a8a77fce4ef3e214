"""The engine: derived coefficients against closed forms, by identity of polynomials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sympy import Expr, Matrix, Rational, Symbol, expand

import symbolic as sy
from benchmarks.derivation import plain_derivation
from symbolic import proof as proof_module
from symbolic.algebra import Algebra, Pair, Poly
from symbolic.claims import architectures, norms
from symbolic.claims.proportional_limit import ExplicitHeads
from symbolic.names import GAMMA, TAU
from symbolic.proof import expected

MASK = [[1, 0, 1], [1, 1, 0], [0, 1, 1]]
INVERSE_TAU = 1 / TAU

VARIANTS: list[dict[str, Any]] = [
    {},
    {"mask": "causal"},
    {"mask": MASK},
    {"heads": 3},
    {"output_projection": True},
    {"heads": 2, "output_projection": True},
    {"query_bias": "s_Q", "key_bias": "s_K"},
    {"mask": "causal", "heads": 2, "query_bias": "s_Q", "key_bias": "s_K", "key_size": 4},
    {"gamma": Rational(1, 2), "tau0": 2, "key_size": "n_k"},
]


def scores_covariance(algebra: Algebra, first: Pair, second: Pair) -> Poly:
    (a, b), (c, d) = first, second
    return algebra.entry(algebra.v, a, c) * algebra.entry(algebra.v, b, d)


class LinearAttention(sy.Block):
    """A block of a user: X' = lambda X + gamma (identity I + Y / tau) X W / sqrt n, no softmax."""

    scores = sy.Field("G", scores_covariance)
    fields = (scores,)

    def __init__(self, identity: bool = True, unit_skip: bool = False) -> None:
        self.identity = identity
        self.unit_skip = unit_skip

    def generators(self, v: Matrix) -> Sequence[Expr]:
        return [GAMMA, INVERSE_TAU]

    def recursion(self, algebra: Algebra, order: int = 1) -> sy.Recursion:
        gain = algebra[GAMMA] ** 2
        attention = sy.Series({sy.HALF: algebra.field(self.scores)}, order) * algebra[INVERSE_TAU]
        if self.identity:
            attention = attention + algebra.identity
        weight = algebra[1] if self.unit_skip else 1 - gain
        branch = attention * algebra.v * attention.T * gain
        return sy.Recursion(sy.skip_only(algebra, weight, order), branch)


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_attention_is_the_closed_form(options: dict[str, Any]) -> None:
    assert sy.prove(sy.ShapedAttention(**options), tokens=3).holds


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_the_mlp_is_the_closed_form(tokens: int) -> None:
    assert sy.prove(sy.ShapedMLP(), tokens).holds


def test_a_plain_derivation_agrees() -> None:
    """The benchmark's baseline expands sympy expressions and shares no line with the engine."""
    v = sy.derive(sy.ShapedAttention(), 3).algebra.v_expressions
    drift, diffusion = plain_derivation(3)
    limit = sy.derive(sy.ShapedAttention(gamma=1, tau0=1), 3)
    names = {Symbol(f"V_{min(a, b)}{max(a, b)}"): v[a, b] for a in range(3) for b in range(3)}
    for plain, ours in ((drift, limit.drift), (diffusion, limit.diffusion)):
        assert (plain.subs(names, simultaneous=True) - ours).expand().is_zero_matrix


@pytest.mark.parametrize(
    "layer",
    [
        [sy.ShapedAttention(output_projection=True), sy.ShapedMLP()],
        [sy.ShapedAttention(), sy.ShapedAttention(mask="causal", gamma="gamma_2")],
    ],
)
def test_layers_whose_blocks_have_fields_of_one_name(layer: list[sy.Block]) -> None:
    assert sy.prove(layer, 2).holds


@pytest.mark.parametrize(("heads", "projection"), [(2, False), (3, False), (4, True)])
def test_heads_written_out(heads: int, projection: bool) -> None:
    """The fields of every head against one head and division by H; and against one head more."""
    limit = sy.derive(ExplicitHeads(heads, projection), 2)
    for count in (heads, heads + 1):
        block = sy.ShapedAttention(heads=count, output_projection=projection)
        forms = expected(block, limit.algebra)
        assert forms is not None
        assert (limit.drift_polynomials - forms[0]).is_zero_matrix
        assert (limit.diffusion_polynomials - forms[1]).is_zero_matrix == (count == heads)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("at_points", [False, True])
def test_a_wrong_coefficient_is_caught(
    monkeypatch: pytest.MonkeyPatch, which: int, at_points: bool
) -> None:
    """Negative control: drift or diffusion of the closed form off by one part in a thousand."""
    right = proof_module.closed_form

    def wrong(block: sy.Block, algebra: Algebra) -> Any:
        forms = list(right(block, algebra) or ())
        forms[which] = forms[which].scalarmul(algebra[Rational(1001, 1000)])
        return tuple(forms)

    monkeypatch.setattr(proof_module, "closed_form", wrong)
    block = sy.ShapedAttention()
    proof = sy.check_at_points(block, 3) if at_points else sy.prove(block, 3)
    assert proof.holds is False
    assert "DISPROVED" in str(proof)


def test_a_block_of_a_user() -> None:
    """Linear attention by hand: b = (gamma/tau_0)^2 |V|_F^2 V and R = V^3 in the diffusion."""
    m = 3
    limit = sy.derive(LinearAttention(), m)
    v = limit.algebra.v_expressions
    gain = GAMMA**2
    drift = gain * INVERSE_TAU**2 * (v * v).trace() * v
    assert (limit.drift - drift).expand() == Matrix.zeros(m, m)
    r = v**3
    for a, b, c, d in [(0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 2, 1), (2, 2, 1, 1), (2, 0, 2, 0)]:
        linear = v[a, c] * v[b, d] + v[a, d] * v[b, c]
        extra = v[a, c] * r[b, d] + v[b, d] * r[a, c] + v[a, d] * r[b, c] + v[b, c] * r[a, d]
        expected = gain * (2 - gain) * linear + gain**2 * INVERSE_TAU**2 * extra
        assert expand(limit.diffusion_entry((a, b), (c, d)) - expected) == 0
    assert sy.prove(LinearAttention(), 2).holds is None


def test_a_mask_is_a_centre_with_zeros() -> None:
    """The two ways to write a causal mask have one limit, and another centre has another."""
    rows = [[1, 0, 0], [Rational(1, 2), Rational(1, 2), 0], [Rational(1, 3)] * 3]
    tilted = [[1, 0, 0], [Rational(1, 3), Rational(2, 3), 0], [Rational(1, 3)] * 3]
    masked = sy.derive(sy.ShapedAttention(mask="causal"), 3)
    for centre, same in ((rows, True), (tilted, False)):
        centred = sy.derive(sy.ShapedAttention(centre=centre), 3)
        assert (centred.drift_polynomials == masked.drift_polynomials) == same
        assert (centred.diffusion_polynomials == masked.diffusion_polynomials) == same


def test_rotations_without_an_angle_change_nothing() -> None:
    """At theta = 0 the rotary drift is that of plain attention; at a quarter turn it is not."""
    block = architectures.RotaryAttention(1, gamma=1, tau0=1)
    plain = sy.derive(sy.ShapedAttention(gamma=1, tau0=1), 2)
    difference = sy.derive(block, 2).drift - plain.drift
    names = (architectures.COSINES[0], architectures.SINES[0], architectures.SHARE)
    for cosine, sine in ((1, 0), (0, 1)):
        turned = difference.subs(dict(zip(names, (cosine, sine, 1), strict=True)))
        assert (turned.expand() == Matrix.zeros(2, 2)) == (sine == 0)


def test_lengths_do_not_matter_if_no_skip_keeps_them() -> None:
    """At lambda = 0 every layer forgets the lengths, so Pre-RMS is Post-RMS; at 1/2 it is not."""
    given = norms.correction_given_lengths()
    assert given.subs(norms.KEPT, 0) == 0
    assert given.subs(norms.KEPT, Rational(1, 2)) != 0
