"""Document 002 of the notes: corrected verdicts, and a wrong formula for each of its claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

import pytest
from sympy import Expr, Matrix, Symbol, diff, exp, expand_log, log, symbols

from symbolic.claims import (
    CLAIMS,
    Claim,
    Verdict,
    clustering,
    continuity,
    judge,
    lengths,
    repulsion,
    resnets,
    sublayers,
    tokens,
)
from symbolic.claims import attention_weights as weights_module
from symbolic.claims.book import select
from symbolic.claims.coverage import problems, rows


def named(key: str) -> Claim:
    return next(claim for claim in CLAIMS if claim.key == key)


def turned(key: str) -> bool:
    """Whether the verdict changes, or the correction no longer holds."""
    try:
        return judge(named(key)).changed
    except ArithmeticError:
        return True


def test_corrected_verdicts() -> None:
    """The ratio as printed, not with y in its numerator; energy and force are two statements.

    Until now the ratio had the verdict of its corrected form, proven, and the energy the single
    verdict imprecise.
    """
    verdicts = {
        "ratio-of-integrals-lacks-y": Verdict.FALSE,
        "two-energies": Verdict.PROVEN,
        "repulsive-energy": Verdict.FALSE,
    }
    for key, verdict in verdicts.items():
        assert judge(named(key)).finding.verdict is verdict
    assert {p.first for p in named("ratio-of-integrals-lacks-y").passages} >= {59, 73}


def test_every_line_is_judged_and_two_displays_are_one() -> None:
    """Lines 140 and 142 print the same, so the second is no model without the denominator."""
    assert not [problem for problem in problems(CLAIMS) if "002:" in problem]
    digests = {row.passage.first: row.digest for row in rows("002")}
    assert digests[140] == digests[142] != digests[134]
    assert {claim.key for claim in select("002:142")} >= {"simplified-attention"}


def test_layers_of_004_are_judged_by_their_own_formula() -> None:
    """Until now x' = w sigma(a x + b) had the statement and correction of 002, x' = g(W x + b)."""
    assert [c.key for c in select("004:203")] == ["residual-layers-in-continuous-time"]
    assert "w(t) sigma(a(t) x + b(t))" in named("residual-layers-in-continuous-time").statement
    assert {p.document for p in named("resnet-continuous-time").passages} == {"002"}


def test_the_rate_of_an_undefined_quantity_is_not_judged() -> None:
    """It was false, but M = exp(exp(t^2/2)) satisfies it; M = e^(ct) does not."""
    t, c = symbols("t c", positive=True)
    assert diff(log(log(exp(exp(t**2 / 2)))), t).simplify() == t
    assert diff(log(expand_log(log(exp(c * t)))), t).simplify() == 1 / t
    assert judge(named("log-log-rate")).finding.verdict is Verdict.NOT_JUDGED


def test_a_misprint_is_not_listed_as_right() -> None:
    """Line 96 prints x_2 for the derivative of x_i; the corrected form is no verdict on it."""
    assert [c.key for c in select("002:96")] == ["velocity-printed-as-second-token"]


def test_a_range_that_begins_at_zero_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resnets, "FIRST_PRINTED", 0)
    assert turned("resnet-indices")


def test_a_long_key_of_length_one_is_no_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_module, "LONG_KEY", Matrix([3, 4]) / 5)
    assert turned("inner-product-as-similarity")


def _wrong_empirical(prompt: tuple[tokens.Point, ...]) -> Mapping[tokens.Point, Expr]:
    return dict.fromkeys(prompt, exp(0))


def _wrong_scores(query: Matrix, key: Matrix, x: Matrix, y: Matrix) -> tuple[Expr, ...]:
    inner, form, transposed = RIGHT_SCORES(query, key, x, y)
    return inner, transposed, form


RIGHT_SCORES = weights_module.scores
A, M, X = sublayers.ATTENTION, sublayers.PERCEPTRON, Symbol("x", real=True)

WRONG: list[tuple[ModuleType, str, Callable[..., object], tuple[str, ...]]] = [
    (
        resnets,
        "euler",  # steps that are 1 % too long converge to another time
        lambda field, start, step, count, right=resnets.euler: right(
            field, start, 1.01 * step, count
        ),
        ("resnet-continuous-time", "residual-layers-in-continuous-time"),
    ),
    (resnets, "layer", lambda x, step: x + step, ("resnet-flow-map",)),
    (
        tokens,
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
        tokens,
        "token_velocity",  # faster for later tokens
        lambda prompt, i, causal=False, right=tokens.token_velocity: (
            (i + 1) * right(prompt, i, causal)
        ),
        ("tokens-have-position-encodings", "transformer-maps-measures", "mean-field-system"),
    ),
    (
        tokens,
        "attended",  # without the token itself
        lambda measure, x, right=tokens.attended: right(
            {y: mass for y, mass in measure.items() if y != x} or dict(measure), x
        ),
        ("mean-field-of-the-others",),
    ),
    (
        continuity,
        "follows_the_flow",  # the wrong sign
        lambda sign, dimension, right=continuity.follows_the_flow: right(-sign, dimension),
        ("sign-of-the-divergence", "continuity-equation"),
    ),
    (
        weights_module,
        "integrals",
        lambda places, numerator, y, right=weights_module.integrals: (
            right(places, numerator, y) / len(places)
        ),
        ("ratio-of-integrals-lacks-y", "attention-of-the-empirical-measure"),
    ),
    (
        weights_module,
        "scores",  # the transpose where it does not belong
        _wrong_scores,
        ("scores-without-transpose", "simplified-attention"),
    ),
    (
        lengths,
        "weights",  # of any sum
        lambda count: list(symbols(f"p_1:{count + 1}")),
        ("sums-make-norms-explode",),
    ),
    (
        lengths,
        "gradient_of_unit_vector",
        lambda x, right=lengths.gradient_of_unit_vector: right(x) * x.norm(),
        ("sums-make-norms-explode",),
    ),
    (lengths, "average_of_orthogonal", lambda _count: 1, ("sums-make-norms-explode",)),
    (
        repulsion,
        "bipyramid",  # the widest layout
        repulsion.widest_seven,
        ("repulsion-balances-attraction",),
    ),
    (
        lengths,
        "lengths",
        lambda depth, normalise_the_sum: [5] + [1] * depth,
        ("layer-norm-prevents-explosion",),
    ),
    (lengths, "average", lambda x, y: x, ("velocity-printed-as-position",)),
    (lengths, "projected", lambda x, y: y, ("velocity-printed-as-second-token",)),
    (sublayers, "speed_of_two_sublayers", lambda: M(A(X)), ("mlp-in-between",)),
    (sublayers, "relu", lambda x: x, ("mlp-of-each-head",)),
    (
        clustering,
        "two_clusters",  # repulsion
        lambda a, b, sign=1, right=clustering.two_clusters: right(a, b, -sign),
        ("clusters-in-the-long-run", "two-clusters-last"),
    ),
    (
        clustering,
        "pace",
        lambda right=clustering.pace: 2 * right(),
        ("linear-pace",),
    ),
    (
        repulsion,
        "gaussian_energy",  # beta where beta/2 belongs
        lambda cosine, right=repulsion.gaussian_energy: 2 * right(cosine) ** 2,
        ("two-energies", "repulsion-balances-attraction"),
    ),
    (
        repulsion,
        "energy_of",  # a mean
        lambda prompt, right=repulsion.energy_of: right(prompt) / len(prompt) ** 2,
        ("energy-of-a-measure", "energy-explodes"),
    ),
    (
        repulsion,
        "angular_field",  # USA only
        lambda angles, normalised, right=repulsion.angular_field: right(angles, False),
        ("gradient-flow-of-the-energy",),
    ),
    (
        repulsion,
        "rate_of_the_energy",
        lambda sign, right=repulsion.rate_of_the_energy: right(-sign),
        ("repulsive-energy",),
    ),
    (repulsion, "at_distance", lambda r: 1 / r, ("energy-explodes",)),
    (
        repulsion,
        "rate_of_the_cosine",
        lambda unnormalised, right=repulsion.rate_of_the_cosine: -right(unnormalised),
        ("attraction-gathers", "repulsion-balances-attraction"),
    ),
]
"""A wrong formula in the place of one of a module, and the claims whose verdicts it turns."""


@pytest.mark.parametrize(
    ("module", "name", "wrong", "keys"), WRONG, ids=[name for _, name, _, _ in WRONG]
)
def test_a_wrong_formula_turns_the_verdict(
    module: ModuleType,
    name: str,
    wrong: Callable[..., object],
    keys: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: each of these verdicts depends on the formula named."""
    assert not any(map(turned, keys))
    monkeypatch.setattr(module, name, wrong)
    for key in keys:
        assert turned(key), key


def test_every_verdict_has_a_negative_control() -> None:
    """All claims of the document that are computed, but for those of other modules."""
    controlled = {key for _, _, _, keys in WRONG for key in keys}
    controlled |= {"resnet-indices", "inner-product-as-similarity"}
    computed = {c.key for c in select("002") if c.expected is not Verdict.NOT_JUDGED}
    assert computed <= controlled
