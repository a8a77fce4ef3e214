"""Document 002 of the notes: a wrong formula for each of its claims."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from sympy import Expr, Matrix, Symbol, exp, symbols

from symbolic.claims import bilinear_forms, clustering, particles, transport
from symbolic.claims.ledger import Verdict, select
from tests.ledger import wrong_formulas_turn_verdicts


def _wrong_empirical(
    prompt: tuple[bilinear_forms.Point, ...],
) -> Mapping[bilinear_forms.Point, Expr]:
    return dict.fromkeys(prompt, exp(0))


def _wrong_scores(query: Matrix, key: Matrix, x: Matrix, y: Matrix) -> tuple[Expr, ...]:
    inner, form, transposed = RIGHT_SCORES(query, key, x, y)
    return inner, transposed, form


RIGHT_SCORES = particles.scores
A, M, X = bilinear_forms.SUBLAYER, bilinear_forms.PERCEPTRON, Symbol("x", real=True)

WRONG: list[tuple[ModuleType, str, object, tuple[str, ...]]] = [
    (bilinear_forms, "FIRST_PRINTED", 0, ("resnet-indices",)),
    (particles, "LONG_KEY", Matrix([3, 4]) / 5, ("inner-product-as-similarity",)),
    (
        bilinear_forms,
        "euler",  # steps that are 1 % too long converge to another time
        lambda field, start, step, count, right=bilinear_forms.euler: right(
            field, start, 1.01 * step, count
        ),
        ("resnet-continuous-time", "residual-layers-in-continuous-time"),
    ),
    (bilinear_forms, "layer", lambda x, step: x + step, ("resnet-flow-map",)),
    (
        bilinear_forms,
        "empirical",  # an indicator, not masses
        _wrong_empirical,
        (
            "tokens-as-a-measure",
            "point-masses-as-indicators",
            "mean-field-system",
            "labels-of-input-and-output",
        ),
    ),
    (
        bilinear_forms,
        "token_velocity",  # faster for later tokens
        lambda prompt, i, causal=False, right=bilinear_forms.token_velocity: (
            (i + 1) * right(prompt, i, causal)
        ),
        ("tokens-have-position-encodings", "transformer-maps-measures", "mean-field-system"),
    ),
    (
        bilinear_forms,
        "attended",  # without the token itself
        lambda measure, x, right=bilinear_forms.attended: right(
            {y: mass for y, mass in measure.items() if y != x} or dict(measure), x
        ),
        ("mean-field-of-the-others",),
    ),
    (
        transport,
        "follows_the_flow",  # the wrong sign
        lambda sign, dimension, right=transport.follows_the_flow: right(-sign, dimension),
        ("sign-of-the-divergence", "continuity-equation"),
    ),
    (
        particles,
        "integrals",
        lambda places, numerator, y, right=particles.integrals: (
            right(places, numerator, y) / len(places)
        ),
        ("ratio-of-integrals-lacks-y", "attention-of-the-empirical-measure"),
    ),
    (
        particles,
        "scores",  # the transpose where it does not belong
        _wrong_scores,
        ("scores-without-transpose", "simplified-attention"),
    ),
    (
        bilinear_forms,
        "weights",  # of any sum
        lambda count: list(symbols(f"p_1:{count + 1}")),
        ("sums-make-norms-explode",),
    ),
    (
        bilinear_forms,
        "gradient_of_unit_vector",
        lambda x, right=bilinear_forms.gradient_of_unit_vector: right(x) * x.norm(),
        ("sums-make-norms-explode",),
    ),
    (bilinear_forms, "average_of_orthogonal", lambda _count: 1, ("sums-make-norms-explode",)),
    (
        clustering,
        "bipyramid",  # the widest layout
        clustering.widest_seven,
        ("repulsion-balances-attraction",),
    ),
    (
        bilinear_forms,
        "lengths",
        lambda depth, normalise_the_sum: [5] + [1] * depth,
        ("layer-norm-prevents-explosion",),
    ),
    (
        bilinear_forms,
        "token_velocity",
        lambda tokens, i: Matrix(tokens[i]),
        ("velocity-printed-as-position",),
    ),
    (bilinear_forms, "projected", lambda x, y: y, ("velocity-printed-as-second-token",)),
    (bilinear_forms, "speed_of_two_sublayers", lambda: M(A(X)), ("mlp-in-between",)),
    (bilinear_forms, "relu", lambda x: x, ("mlp-of-each-head",)),
    (
        clustering,
        "two_clusters",  # repulsion
        lambda a, b, sign=1, right=clustering.two_clusters: right(a, b, -sign),
        ("clusters-in-the-long-run", "two-clusters-last"),
    ),
    (clustering, "pace", lambda right=clustering.pace: 2 * right(), ("linear-pace",)),
    (
        clustering,
        "gaussian_energy",  # beta where beta/2 belongs
        lambda cosine, right=clustering.gaussian_energy: 2 * right(cosine) ** 2,
        ("two-energies", "repulsion-balances-attraction"),
    ),
    (
        clustering,
        "energy_of",  # a mean
        lambda prompt, right=clustering.energy_of: right(prompt) / len(prompt) ** 2,
        ("energy-of-a-measure", "energy-explodes"),
    ),
    (
        clustering,
        "angular_field",  # USA only
        lambda angles, normalised, right=clustering.angular_field: right(angles, False),
        ("gradient-flow-of-the-energy",),
    ),
    (
        clustering,
        "rate_of_the_energy",
        lambda sign, right=clustering.rate_of_the_energy: right(-sign),
        ("repulsive-energy",),
    ),
    (clustering, "at_distance", lambda r: 1 / r, ("energy-explodes",)),
    (
        clustering,
        "rate_of_the_cosine",
        lambda unnormalised, right=particles.rate_of_the_cosine: -right(unnormalised),
        ("attraction-gathers", "repulsion-balances-attraction"),
    ),
]

test_a_wrong_formula_turns_the_verdict = wrong_formulas_turn_verdicts(WRONG)


def test_every_verdict_has_a_negative_control() -> None:
    """All claims of the document that are computed, but for those of other modules."""
    controlled = {key for _, _, _, keys in WRONG for key in keys}
    computed = {c.key for c in select("002") if c.expected is not Verdict.NOT_JUDGED}
    assert computed <= controlled
