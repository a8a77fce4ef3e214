"""Claims on the place of the norm and on long contexts: wrong formulas change the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from sympy import Expr, Integer, Rational

from symbolic.claims import CLAIMS, judge
from symbolic.claims import long_contexts as contexts
from symbolic.claims import normalisation_speeds as speeds
from symbolic.claims.gram_flow import COSINE, COUNT

ATTENTION, RATE = speeds.square, speeds.rate_of_the_cosine


def named(key: str) -> Any:
    return next(claim for claim in CLAIMS if claim.key == key)


def wrong_speed(scheme: str, place: int, factor: Expr) -> dict[str, tuple[Expr, ...]]:
    """The schemes with another divisor (2) or growth of the length (3)."""
    entries = list(speeds.SCHEMES[scheme])
    entries[place] = entries[place] * factor
    return {**speeds.SCHEMES, scheme: tuple(entries)}


@pytest.mark.parametrize(
    ("key", "name", "wrong"),
    [
        ("speeds", "SCHEMES", wrong_speed("Peri-LN", 2, 1 / speeds.SIZE)),
        ("speeds", "SCHEMES", wrong_speed("Pre-LN", 3, 1 / speeds.LENGTH)),
        ("speeds", "SCHEMES", wrong_speed("nGPT", 2, speeds.ALPHA)),
        ("equal-cosines", "square", lambda g=COSINE: ATTENTION(g) + speeds.P * speeds.Q),
        ("start", "square", lambda g=COSINE: ATTENTION(g) + speeds.Q**2),
        ("exponential", "rate_of_the_cosine", lambda unnormalised: 2 * RATE(unnormalised)),
        ("exponential", "SCHEMES", wrong_speed("nGPT", 2, speeds.ALPHA)),
        ("powers", "SCHEMES", wrong_speed("Peri-LN", 2, 1 / speeds.SIZE)),
        ("powers", "along", lambda g=COSINE: 2 * speeds.P + (COUNT - 1) * speeds.Q * g),
        ("order", "square", lambda g=COSINE: ATTENTION(g) + speeds.Q**2),
        ("order", "along", lambda g=COSINE: -speeds.P + (COUNT - 1) * speeds.Q * g),
    ],
)
def test_another_formula_of_a_scheme_changes_the_verdict(
    monkeypatch: pytest.MonkeyPatch, key: str, name: str, wrong: Any
) -> None:
    claim = named(f"normalisation-{key}")
    monkeypatch.setattr(speeds, name, wrong)
    assert judge(claim).changed


@pytest.mark.parametrize(
    ("key", "name", "wrong"),
    [
        ("step", "output_cosine", lambda: contexts.in_the_ratio(contexts.square())),
        ("orthogonal", "output_cosine", lambda: contexts.in_the_ratio(speeds.P)),
        ("flow", "relative_speed", lambda: contexts.in_the_ratio(speeds.P)),
    ],
)
def test_another_limit_of_long_contexts_is_seen(
    monkeypatch: pytest.MonkeyPatch, key: str, name: str, wrong: Callable[[], Expr]
) -> None:
    claim = named(f"long-context-{key}")
    monkeypatch.setattr(contexts, name, wrong)
    assert judge(claim).changed


def test_a_limit_that_depends_on_the_way_is_refused() -> None:
    """At rho = 0 the cosine is not continuous at x = 1/N = 0, and its threshold is another."""
    with pytest.raises(ArithmeticError, match="depends on how"):
        contexts.value(contexts.of_orthogonal_tokens(), Integer(0))


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_long_contexts_have_these_cosines(rho: float) -> None:
    """Softmax of N = 10^12 tokens, each power of N written out, to 0.02 away from the threshold.

    At rho = 0.4 it is gamma = 5/3, at rho = 0 gamma = 1/2; the cosine of orthogonal tokens has
    its value there exactly, and the threshold 1 of their weights is another.
    """
    count, critical = 1e12, 1.0 / (1.0 - rho) if rho else 0.5

    def cosine(gamma: float) -> float:
        own = count ** (gamma * (1.0 - rho))
        p, q = own / (own + count - 1.0), 1.0 / (own + count - 1.0)
        rest = 2.0 * p * q + (count - 2.0) * q * q
        size = p * p + (count - 1.0) * q * q
        mean = rho * (p + (count - 1.0) * q) ** 2
        return (mean + (1.0 - rho) * rest) / (mean + (1.0 - rho) * size)

    at_threshold = 4.0 * rho / (1.0 + 3.0 * rho) if rho else 0.5
    for gamma, known in (
        (0.8 * critical, 1.0), (critical, at_threshold), (1.4 * critical, rho),
    ):  # fmt: skip
        assert math.isclose(cosine(gamma), known, abs_tol=0.02)
    if rho:
        symbolic = contexts.value(contexts.output_cosine(), 1).subs(COSINE, Rational(2, 5))
        assert math.isclose(at_threshold, float(symbolic))
