"""Errors in the limits of normalised blocks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LIMIT = "shaped_attention/blocks/normalised_limit.py"
_QUOTIENT = "shaped_attention/theory/moments.py"

NORMALISED_LIMIT = [
    Mutant(
        "relaxation-without-what-has-passed",
        _LIMIT,
        "passed = passed * skip**2",
        "passed = passed * skip",
        ("test_normalised_limit.py::test_relaxations_follow_the_recursion_of_the_variances",),
    ),
    Mutant(
        "relaxed-start-in-one-layer",
        _LIMIT,
        "for _ in range(_MOST_LAYERS):",
        "for _ in range(1):",
        ("test_normalised_limit.py::test_a_limit_starts_where_the_variances_have_relaxed",),
    ),
    Mutant(
        "quotient-quarter-of-the-cross-variance",
        _QUOTIENT,
        "0.25 * variances",
        "0.5 * variances",
        ("test_normalised_limit.py::test_drift_and_diffusion_are_those_of_the_quotient",),
    ),
    Mutant(
        "linear-noise-relaxes-half",
        _LIMIT,
        "(2.0 * beta * limit.linear_rate(values))",
        "(beta * limit.linear_rate(values))",
        (
            "test_normalised_limit.py::test_growth_by_relaxation_is_the_correction_of_the_drift"
            "[inner0]",
        ),
    ),
]
