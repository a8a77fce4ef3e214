"""Integration by parts, decided exactly: which integrands are divergences.

An integrand that is linear in the functions xi integrates to zero for all of them that vanish at
infinity if and only if the Euler operator in xi annihilates it. The checks run in one, two and
three dimensions; further coordinates enter in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from sympy import Expr, Function, Integer, Symbol, diff, expand, symbols
from sympy.calculus.euler import euler_equations
from sympy.core.function import AppliedUndef

DIMENSIONS = (1, 2, 3)


def coordinates(dimension: int) -> tuple[Symbol, ...]:
    """Return the coordinates x_1, ..., x_d."""
    return symbols(f"x_1:{dimension + 1}", real=True)


def fields(names: str, x: Sequence[Symbol]) -> list[AppliedUndef]:
    """Return undetermined functions of the coordinates, by names separated by blanks."""
    return [Function(name)(*x) for name in names.split()]


def gradient(function: Expr, x: Sequence[Symbol]) -> list[Expr]:
    """Return the gradient of a function."""
    return [diff(function, s) for s in x]


def divergence(field: Sequence[Expr], x: Sequence[Symbol]) -> Expr:
    """Return the divergence of a field."""
    return sum((diff(f, s) for f, s in zip(field, x, strict=True)), Integer(0))


def inner(first: Sequence[Expr], second: Sequence[Expr]) -> Expr:
    """Return the inner product of two fields at each point."""
    return sum((a * b for a, b in zip(first, second, strict=True)), Integer(0))


def scaled(factor: Expr, field: Sequence[Expr]) -> list[Expr]:
    """Return a field times a function."""
    return [factor * f for f in field]


def is_divergence(integrand: Expr, functions: Sequence[AppliedUndef], x: Sequence[Symbol]) -> bool:
    """Return whether the integral vanishes for all choices of the functions."""
    expanded = expand(integrand.doit())
    if expanded == 0:
        return True
    equations = euler_equations(expanded, functions, x)
    return all(expand(equation.lhs.doit()) == 0 for equation in equations if equation != True)  # noqa: E712
