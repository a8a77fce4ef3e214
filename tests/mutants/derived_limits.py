"""Errors in the derivation of limits from branches, and in limits of normalised blocks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FOLDER = "shaped_attention/blocks/limits/"
_TEST = "test_derived_limits.py::test_drift_and_diffusion_are_the_closed_forms"
_LAYERS = "test_limits_against_layers.py::test_limits_of_blocks_against_one_layer"
_RANDOM = "test_limits_against_layers.py::test_limits_of_random_branches"
_TEXT = "test_limit_formulas.py::test_the_text_gives_drift_and_diffusion"
_TANGENTS = "test_tangent_oracles.py::test_the_limit_of_values_and_tangents_is_the_closed_form"

_NORMALISED = "shaped_attention/blocks/normalised_limit.py"
_QUOTIENT = "shaped_attention/theory/moments.py"


def _mutant(name: str, file: str, text: str, replacement: str, test: str) -> Mutant:
    return Mutant(f"limit-{name}", f"{_FOLDER}{file}.py", text, replacement, (test,))


DERIVED_LIMITS = [
    _mutant(
        "softmax-with-half-its-curvature", "jets", "curved = a.scaled(0.5, small",
        "curved = a.scaled(0.25, small", f"{_TEST}[causal-4]",
    ),
    _mutant(
        "products-without-covariation", "jets", "mm(u.D, v.D), covariation(a, u.G, v.G)",
        "mm(u.D, v.D)", f"{_LAYERS}[twice]",
    ),
    _mutant(
        "projections-forget-their-parents", "layer", "noise = noise.plus(above.G)",
        "noise = noise", f"{_TEST}[output projection-4]",
    ),
    _mutant(
        "growth-counts-the-noise-twice", "derivation", "a.scaled(-1.0, squares)",
        "a.scaled(0.0, squares)", f"{_TEST}[causal-4]",
    ),
    _mutant(
        "rate-of-symmetric-noise", "derivation", "(1.0 if x.z.symmetric else 0.5)", "1.0",
        f"{_TEST}[shared keys-2]",
    ),
    _mutant(
        "third-derivative-twice", "hidden", "0.5 * third", "third", f"{_TEST}[tanh-2]",
    ),
    _mutant(
        "gates-without-half", "hidden", "a.scaled(0.5 * second, a.diagonal",
        "a.scaled(second, a.diagonal", f"{_TEST}[gated-2]",
    ),
    _mutant(
        "functions-of-the-same-entries-meet", "rows", "if len(set(entries)) < len(entries):",
        "if False:", _RANDOM,
    ),
    _mutant(
        "formula-of-a-transpose", "formulas", "mT for x in reversed(self.items)",
        "mT for x in self.items", f"{_TEXT}[causal]",
    ),
    Mutant(
        "tangents-without-values-moved", "shaped_attention/blocks/tangents.py",
        "return pushed(function, start, stacked([rows[k], zero]))[1]",
        "return 0.5 * pushed(function, start, stacked([rows[k], zero]))[1]",
        (f"{_TANGENTS}[causal]",),
    ),
    Mutant(
        "relaxation-without-what-has-passed",
        _NORMALISED,
        "passed = passed * skip**2",
        "passed = passed * skip",
        ("test_normalised_limit.py::test_relaxations_follow_the_recursion_of_the_variances",),
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
        _NORMALISED,
        "(2.0 * beta * limit.linear_rate(values))",
        "(beta * limit.linear_rate(values))",
        (
            "test_normalised_limit.py::test_growth_by_relaxation_is_the_correction_of_the_drift"
            "[inner0]",
        ),
    ),
]  # fmt: skip
