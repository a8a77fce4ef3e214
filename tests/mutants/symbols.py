"""Errors in the symbolic engine."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SYMBOLS = [
    Mutant(
        "softmax-cumulant-factorial",
        "symbolic/softmax.py",
        "factorial(blocks - 1)",
        "factorial(blocks)",
        blind=True,
    ),
    Mutant(
        "gaussian-relu-quadrants",
        "symbolic/gaussian.py",
        "- 2 * s_plus * s_minus * opposite",
        "- s_plus * s_minus * opposite",
        blind=True,
    ),
    Mutant(
        "gaussian-score-loops",
        "symbolic/gaussian.py",
        "missing = factors // 2 - _loops(rows, columns, factors)",
        "missing = factors - _loops(rows, columns, factors)",
        blind=True,
    ),
    Mutant(
        "limit-cross-term-missing",
        "symbolic/limit.py",
        "u[a][c] * k[b][d] + u[a][d] * k[b][c] + u[b][c]",
        "u[a][c] * k[b][d] + u[b][c]",
        blind=True,
    ),
    Mutant(
        "limit-heads-ignored",
        "symbolic/limit.py",
        "share = Rational(1, recursion.heads)",
        "share = Rational(1)",
        blind=True,
    ),
    Mutant(
        "recursion-skip-squared",
        "symbolic/recursion.py",
        "return Series({0: algebra.v}, order) * weight_squared",
        "return Series({0: algebra.v}, order) * (weight_squared * weight_squared)",
        blind=True,
    ),
]
