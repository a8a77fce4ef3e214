"""Errors in the symbolic engine."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COVERAGE = "symbolic/claims/ledger.py"
_ENERGY_EXTREMES = "symbolic/claims/particles.py"
_EXPLOSION_EQUATIONS = "symbolic/claims/explosion.py"
_EXPLOSION_LAW = "symbolic/claims/explosion.py"
_ITO = "symbolic/claims/explosion.py"
_KINETIC_ENERGY = "symbolic/claims/transport.py"
_LIVE_TOKEN = "symbolic/claims/explosion.py"
_RANDOM_HEADS = "symbolic/claims/random_layers.py"
_RANDOM_VALUES = "symbolic/claims/random_layers.py"
_SYMBOLIC_BLOCKS = "symbolic/blocks.py"
_SYMBOLIC_FUNCTIONS = "symbolic/functions.py"
_SYMBOLIC_GAUSSIAN = "symbolic/gaussian.py"
_SYMBOLIC_LIMIT = "symbolic/limit.py"
_SYMBOLIC_ORDERS = "symbolic/orders.py"
_SYMBOLIC_RECURSION = "symbolic/recursion.py"
_SYMBOLIC_SOFTMAX = "symbolic/softmax.py"


SYMBOLS = [
    Mutant(
        "softmax-cumulant-factorial",
        _SYMBOLIC_SOFTMAX,
        "factorial(blocks - 1)",
        "factorial(blocks)",
        ("test_symbolic_softmax.py::test_the_cumulant_tensor_is_what_differentiation_gives[1-2]",),
    ),
    Mutant(
        "gaussian-relu-quadrants",
        _SYMBOLIC_GAUSSIAN,
        "- 2 * s_plus * s_minus * opposite",
        "- s_plus * s_minus * opposite",
        ("test_symbolic_gaussian.py::test_the_exact_kernel_is_the_closed_form",),
    ),
    Mutant(
        "gaussian-score-loops",
        _SYMBOLIC_GAUSSIAN,
        "missing = factors // 2 - _loops(rows, columns, factors)",
        "missing = factors - _loops(rows, columns, factors)",
        ("test_symbolic_gaussian.py::test_score_moments_at_any_key_size",),
    ),
    Mutant(
        "limit-cross-term-missing",
        _SYMBOLIC_LIMIT,
        "u[a][c] * k[b][d] + u[a][d] * k[b][c] + u[b][c]",
        "u[a][c] * k[b][d] + u[b][c]",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{}]",),
    ),
    Mutant(
        "limit-heads-ignored",
        _SYMBOLIC_LIMIT,
        "share = Rational(1, recursion.heads)",
        "share = Rational(1)",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{'heads': 3}]",),
    ),
    Mutant(
        "recursion-skip-squared",
        _SYMBOLIC_RECURSION,
        "return Series({0: algebra.v}, order) * weight_squared",
        "return Series({0: algebra.v}, order) * (weight_squared * weight_squared)",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{}]",),
    ),
    Mutant(
        "softmax-series-step",
        _SYMBOLIC_SOFTMAX,
        "step = Rational(1, degree + 1)",
        "step = Rational(1, degree + 2)",
        (
            "test_symbolic_softmax.py::test_the_expansion_is_the_taylor_series_of_the_attention_matrix"
            "[None-rows0]",
        ),
    ),
    Mutant(
        "recursion-heads-forgotten",
        _SYMBOLIC_BLOCKS,
        "branch, self.heads)",
        "branch)",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{'heads': 3}]",),
    ),
    Mutant(
        "recursion-values-of-all-columns",
        _SYMBOLIC_BLOCKS,
        "return self.heads * gram_covariance",
        "return gram_covariance",
        (
            "test_symbolic_limit.py::test_attention_is_the_closed_form"
            "[{'heads': 2, 'output_projection': True}]",
        ),
    ),
    Mutant(
        "limit-product-of-branches-missing",
        _SYMBOLIC_LIMIT,
        "return cross + k[a][c] * k[b][d] + k[a][d] * k[b][c]",
        "return cross + k[a][c] * k[b][d]",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{}]",),
    ),
    Mutant(
        "functions-angle-of-the-cosine",
        _SYMBOLIC_FUNCTIONS,
        "atan2(sqrt(y**2 - x**2), x, evaluate=False)",
        "atan2(sqrt(y**2 + x**2), x, evaluate=False)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours4-derived4-values4-2]",),
    ),
    Mutant(
        "orders-parity-of-the-mean",
        _SYMBOLIC_ORDERS,
        "zero_mean = degree % 2 == 1 or",
        "zero_mean = degree % 2 == 0 or",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[temperature-gives-1/n]",),
    ),
    Mutant(
        "recursion-gram-not-centred",
        _SYMBOLIC_BLOCKS,
        "return moment((*first, *second)) - moment(first) * moment(second)",
        "return moment((*first, *second))",
        ("test_symbolic_limit.py::test_attention_is_the_closed_form[{'output_projection': True}]",),
    ),
    Mutant(
        "explosion-noise-of-all-heads",
        _EXPLOSION_EQUATIONS,
        "GAMMA**4 / (4 * TAU**2 * heads)",
        "GAMMA**4 / (4 * TAU**2)",
        ("test_symbolic_explosion.py::test_a_wrong_coefficient_of_two_tokens_is_seen[alpha]",),
    ),
    Mutant(
        "explosion-scale-without-pull",
        _EXPLOSION_LAW,
        "(RATIO + pull) * 2 * DELTA",
        "RATIO * 2 * DELTA",
        ("test_symbolic_explosion.py::test_wrong_scale_densities_are_seen",),
    ),
    Mutant(
        "ito-second-order-doubled",
        _ITO,
        "hessian(function, self.entries)).trace() / 2",
        "hessian(function, self.entries)).trace()",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[explosion-rest-of-v]",),
    ),
    Mutant(
        "live-token-taylor-coefficient",
        _LIVE_TOKEN,
        "coefficient / factorial(degree)",
        "coefficient",
        ("test_symbolic_explosion.py::test_a_wrong_coefficient_of_one_live_token_is_seen[alpha]",),
    ),
    Mutant(
        "random-values-half-of-the-pairings",
        _RANDOM_VALUES,
        "choices = product((first, first[::-1]), (second",
        "choices = product((first, first), (second",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[random-values-limit]",),
    ),
    Mutant(
        "random-values-drift-of-the-logarithm",
        _RANDOM_VALUES,
        "return rate, rate - square / 2",
        "return rate, rate + square / 2",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[clustering-mitigated]",),
    ),
    Mutant(
        "random-heads-speed-of-one-head",
        _RANDOM_HEADS,
        "/ HEADS**2",
        "/ HEADS",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[random-values-heads]",),
    ),
    Mutant(
        "gegenbauer-without-degree",
        _ENERGY_EXTREMES,
        "(degree + NU) * falling",
        "falling",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[energy-minimiser]",),
    ),
    Mutant(
        "kinetic-energy-norm-of-the-gaussian",
        _KINETIC_ENERGY,
        "(2 * deviation**2) - log(deviation)",
        "(2 * deviation**2) - 2 * log(deviation)",
        ("test_symbolic_claims.py::test_the_verdict_is_the_one_on_record[benamou-brenier]",),
    ),
    Mutant(
        "transport-without-a-turn",
        _KINETIC_ENERGY,
        "past_the_end = moved.subs(u, u - 1) + 1",
        "past_the_end = moved.subs(u, u - 1)",
        ("test_symbolic_notes_004_transport.py::test_arcs_displaced_by_another_shift_cost_more",),
    ),
    Mutant(
        "coverage-line-twice",
        _COVERAGE,
        "if covered[line] > 1:",
        "if covered[line] > 2:",
        ("test_symbolic_coverage.py::test_what_is_incomplete_is_seen",),
    ),
]
