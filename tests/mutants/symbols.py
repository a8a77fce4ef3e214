"""Errors in the symbolic engine and in checks of claims."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SYMBOLS = [
    Mutant(
        "softmax-cumulant-factorial",
        "symbolic/softmax.py",
        "factorial(blocks - 1)",
        "factorial(blocks)",
        ("test_symbolic_softmax.py::test_the_cumulant_tensor_is_what_differentiation_gives[1-2]",),
    ),
    Mutant(
        "gaussian-score-loops",
        "symbolic/gaussian.py",
        "missing = factors // 2 - _loops(rows, columns, factors)",
        "missing = factors - _loops(rows, columns, factors)",
        ("test_symbolic_gaussian.py::test_score_moments_at_any_key_size",),
    ),
    Mutant(
        "limit-cross-term-missing",
        "symbolic/limit.py",
        "u[a][c] * k[b][d] + u[a][d] * k[b][c] + u[b][c]",
        "u[a][c] * k[b][d] + u[b][c]",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{}]",),
    ),
    Mutant(
        "limit-heads-ignored",
        "symbolic/limit.py",
        "share = Rational(1, recursion.heads)",
        "share = Rational(1)",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{'heads': 3}]",),
    ),
    Mutant(
        "softmax-series-step",
        "symbolic/softmax.py",
        "step = Rational(1, degree + 1)",
        "step = Rational(1, degree + 2)",
        (
            "test_symbolic_softmax.py::test_the_expansion_is_the_taylor_series_of_the_attention_matrix"
            "[None-rows0]",
        ),
    ),
    Mutant(
        "recursion-values-of-all-columns",
        "symbolic/blocks.py",
        "return self.heads * gram_covariance",
        "return gram_covariance",
        (
            "test_symbolic_limit.py::test_attention_is_the_closed_form"
            "[{'heads': 2, 'output_projection': True}]",
        ),
    ),
    Mutant(
        "functions-angle-of-the-cosine",
        "symbolic/functions.py",
        "atan2(sqrt(y**2 - x**2), x, evaluate=False)",
        "atan2(sqrt(y**2 + x**2), x, evaluate=False)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours4-derived4-values4-2]",),
    ),
    Mutant(
        "explosion-noise-of-all-heads",
        "symbolic/claims/explosion.py",
        "GAMMA**4 / (4 * TAU**2 * heads)",
        "GAMMA**4 / (4 * TAU**2)",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[explosion-two-tokens]",),
    ),
    Mutant(
        "random-values-drift-of-the-logarithm",
        "symbolic/claims/random_layers.py",
        "return rate, rate - square / 2",
        "return rate, rate + square / 2",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[clustering-mitigated]",),
    ),
    Mutant(
        "gegenbauer-without-degree",
        "symbolic/claims/particles.py",
        "(degree + NU) * falling",
        "falling",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[energy-minimiser]",),
    ),
    Mutant(
        "kinetic-energy-norm-of-the-gaussian",
        "symbolic/claims/transport.py",
        "(2 * deviation**2) - log(deviation)",
        "(2 * deviation**2) - 2 * log(deviation)",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[benamou-brenier]",),
    ),
]
