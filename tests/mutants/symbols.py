"""Errors in the symbolic engine."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SYMBOLIC_BLOCKS = "symbolic/blocks.py"
_SYMBOLIC_GAUSSIAN = "symbolic/gaussian.py"
_SYMBOLIC_LIMIT = "symbolic/limit.py"
_SYMBOLIC_RECURSION = "symbolic/recursion.py"
_SYMBOLIC_SOFTMAX = "symbolic/softmax.py"

_SYMBOLIC_GAUSSIAN_TESTS = ("test_symbolic_gaussian.py",)
_CLOSED_FORM = ("test_symbolic_limit.py::test_attention_is_the_closed_form",)
_SYMBOLIC_SOFTMAX_TESTS = ("test_symbolic_softmax.py",)

SYMBOLS = [
    Mutant(
        "softmax-cumulant-factorial",
        _SYMBOLIC_SOFTMAX,
        "factorial(blocks - 1)",
        "factorial(blocks)",
        _SYMBOLIC_SOFTMAX_TESTS,
        blind=True,
    ),
    Mutant(
        "gaussian-relu-quadrants",
        _SYMBOLIC_GAUSSIAN,
        "- 2 * s_plus * s_minus * opposite",
        "- s_plus * s_minus * opposite",
        _SYMBOLIC_GAUSSIAN_TESTS,
        blind=True,
    ),
    Mutant(
        "gaussian-score-loops",
        _SYMBOLIC_GAUSSIAN,
        "missing = factors // 2 - _loops(rows, columns, factors)",
        "missing = factors - _loops(rows, columns, factors)",
        _SYMBOLIC_GAUSSIAN_TESTS,
        blind=True,
    ),
    Mutant(
        "limit-cross-term-missing",
        _SYMBOLIC_LIMIT,
        "u[a][c] * k[b][d] + u[a][d] * k[b][c] + u[b][c]",
        "u[a][c] * k[b][d] + u[b][c]",
        _CLOSED_FORM,
        blind=True,
    ),
    Mutant(
        "limit-heads-ignored",
        _SYMBOLIC_LIMIT,
        "share = Rational(1, recursion.heads)",
        "share = Rational(1)",
        _CLOSED_FORM,
        blind=True,
    ),
    Mutant(
        "recursion-skip-squared",
        _SYMBOLIC_RECURSION,
        "return Series({0: algebra.v}, order) * weight_squared",
        "return Series({0: algebra.v}, order) * (weight_squared * weight_squared)",
        _CLOSED_FORM,
        blind=True,
    ),
    Mutant(
        "softmax-series-step",
        _SYMBOLIC_SOFTMAX,
        "step = Rational(1, degree + 1)",
        "step = Rational(1, degree + 2)",
        _SYMBOLIC_SOFTMAX_TESTS,
    ),
    Mutant(
        "recursion-heads-forgotten",
        _SYMBOLIC_BLOCKS,
        "branch, self.heads)",
        "branch)",
        _CLOSED_FORM,
    ),
    Mutant(
        "recursion-values-of-all-columns",
        _SYMBOLIC_BLOCKS,
        "return self.heads * gram_covariance",
        "return gram_covariance",
        _CLOSED_FORM,
    ),
]
