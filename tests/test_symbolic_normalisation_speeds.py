"""Claims on the place of the norm and on long contexts: wrong formulas change the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from sympy import Expr, Integer, Rational

from symbolic.claims import particles, random_layers
from symbolic.claims.particles import COSINE, COUNT
from tests.ledger import turned

ATTENTION, RATE = random_layers.square, particles.rate_of_the_cosine


def wrong_speed(scheme: str, place: int, factor: Expr) -> dict[str, tuple[Expr, ...]]:
    """The schemes with another divisor (2) or growth of the length (3)."""
    entries = list(random_layers.SCHEMES[scheme])
    entries[place] = entries[place] * factor
    return {**random_layers.SCHEMES, scheme: tuple(entries)}


def more_square(term: Expr) -> Any:
    return lambda g=COSINE: ATTENTION(g) + term


def other_along(factor: int) -> Any:
    return lambda g=COSINE: factor * random_layers.P + (COUNT - 1) * random_layers.Q * g


def twice_the_rate(unnormalised: bool) -> Expr:
    return 2 * RATE(unnormalised)


def ratio_of(value: Callable[[], Expr]) -> Any:
    return lambda: random_layers.in_the_ratio(value())


@pytest.mark.parametrize(
    ("key", "module", "name", "wrong"),
    [
        (
            "normalisation-speeds",
            random_layers,
            "SCHEMES",
            wrong_speed("Peri-LN", 2, 1 / random_layers.SIZE),
        ),
        (
            "normalisation-speeds",
            random_layers,
            "SCHEMES",
            wrong_speed("Pre-LN", 3, 1 / random_layers.LENGTH),
        ),
        (
            "normalisation-speeds",
            random_layers,
            "SCHEMES",
            wrong_speed("nGPT", 2, random_layers.ALPHA),
        ),
        (
            "normalisation-equal-cosines",
            random_layers,
            "square",
            more_square(random_layers.P * random_layers.Q),
        ),
        ("normalisation-start", random_layers, "square", more_square(random_layers.Q**2)),
        ("normalisation-exponential", random_layers, "rate_of_the_cosine", twice_the_rate),
        (
            "normalisation-exponential",
            random_layers,
            "SCHEMES",
            wrong_speed("nGPT", 2, random_layers.ALPHA),
        ),
        (
            "normalisation-powers",
            random_layers,
            "SCHEMES",
            wrong_speed("Peri-LN", 2, 1 / random_layers.SIZE),
        ),
        ("normalisation-powers", random_layers, "along", other_along(2)),
        ("normalisation-order", random_layers, "square", more_square(random_layers.Q**2)),
        ("normalisation-order", random_layers, "along", other_along(-1)),
        ("long-context-step", random_layers, "output_cosine", ratio_of(random_layers.square)),
        (
            "long-context-orthogonal",
            random_layers,
            "output_cosine",
            ratio_of(lambda: random_layers.P),
        ),
        ("long-context-flow", random_layers, "relative_speed", ratio_of(lambda: random_layers.P)),
    ],
)
def test_another_formula_changes_the_verdict(
    monkeypatch: pytest.MonkeyPatch, key: str, module: Any, name: str, wrong: Any
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert turned(key)


def test_a_limit_that_depends_on_the_way_is_refused() -> None:
    """At rho = 0 the cosine is not continuous at x = 1/N = 0, and its threshold is another."""
    with pytest.raises(ArithmeticError, match="depends on how"):
        random_layers.value(random_layers.output_cosine().subs(COSINE, 0), Integer(0))


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
        symbolic = random_layers.value(random_layers.output_cosine(), 1).subs(
            COSINE, Rational(2, 5)
        )
        assert math.isclose(at_threshold, float(symbolic))
