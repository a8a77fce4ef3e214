"""Errors in the derivation of limits from branches."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FOLDER = "shaped_attention/blocks/limits/"
_TEST = "test_derived_limits.py::test_drift_and_diffusion_are_the_closed_forms"
_LAYERS = "test_limits_against_layers.py::test_new_blocks_against_one_layer"
_CLOCK = "test_derived_limits.py::test_what_the_clock_and_norms_need_is_the_sum_over_increments"
_RATE = "test_derived_limits.py::test_the_rate_of_weights"
_RANDOM = "test_random_limits.py::test_limits_of_random_branches"
_TEXT = "test_limit_formulas.py::test_the_text_gives_drift_and_diffusion"
_TANGENTS = "test_tangent_oracles.py::test_the_limit_of_values_and_tangents_is_the_closed_form"


def _mutant(name: str, file: str, text: str, replacement: str, test: str) -> Mutant:
    return Mutant(f"limit-{name}", f"{_FOLDER}{file}.py", text, replacement, (test,))


DERIVED_LIMITS = [
    _mutant(
        "without-half-of-the-curvature", "jets", "a.scaled(0.5, a.times(f2,",
        "a.scaled(1.0, a.times(f2,", f"{_TEST}[qk-norm-4]",
    ),
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
        "noise-of-all-columns", "layer", ".scaled(s.space.ratio**-0.5)", ".scaled(1.0)",
        f"{_TEST}[heads-4]",
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
        "squares-half-correlated", "hidden", "a.scaled(2.0, a.times(v, v))", "a.times(v, v)",
        f"{_TEST}[gelu-2]",
    ),
    _mutant(
        "half-of-the-kernel", "hidden", "2.0 / math.pi", "1.0 / math.pi", f"{_TEST}[relu-2]",
    ),
    _mutant(
        "gates-without-half", "hidden", "a.scaled(0.5 * second, a.diagonal",
        "a.scaled(second, a.diagonal", f"{_TEST}[gated-2]",
    ),
    _mutant(
        "slope-at-the-wrong-scale", "hidden", "(each @ known(np.eye(_ORDERS)[:, 1:2])) / sigma",
        "each @ known(np.eye(_ORDERS)[:, 1:2])", f"{_LAYERS}[odd]",
    ),
    _mutant(
        "half-of-the-rate-along", "derivation", "return a.scaled(4.0, covariation(a, trace",
        "return a.scaled(2.0, covariation(a, trace", f"{_CLOCK}[plain]",
    ),
    _mutant(
        "depth-of-tokens-counts", "sources", "return 0 if self.parent is None else",
        "return 1 if self.parent is None else", f"{_RATE}[plain]",
    ),
    _mutant(
        "functions-of-the-same-entries-meet", "rows", "if len(set(entries)) < len(entries):",
        "if False:", _RANDOM,
    ),
    _mutant(
        "with-and-without-a-norm", "layer",
        "        self.barred.update(dict.fromkeys(sources, _WITH_AND_WITHOUT_NORM))\n", "", _RANDOM,
    ),
    _mutant(
        "formula-of-a-transpose", "formulas", "mT for x in reversed(self.items)",
        "mT for x in self.items", f"{_TEXT}[causal]",
    ),
    _mutant(
        "formula-without-common-factor", "expressions", "return common, [sympy",
        "return ONE, [sympy", f"{_TEXT}[causal]",
    ),
    Mutant(
        "tangents-without-values-moved", "shaped_attention/blocks/tangents.py",
        "return pushed(function, start, stacked([rows[k], zero]))[1]",
        "return 0.5 * pushed(function, start, stacked([rows[k], zero]))[1]",
        (f"{_TANGENTS}[causal]",),
    ),
]  # fmt: skip
