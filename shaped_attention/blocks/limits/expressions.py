"""Numbers of a formula as expressions in the names of parameters, in text and in LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import sympy

from shaped_attention.blocks.limits.numbers import Atom, Known

_LARGEST = 10_000
"""Largest denominator that is taken for exact."""

ONE: sympy.Expr = sympy.Integer(1)


def parentheses(text: str, tex: bool) -> str:
    """Return a text in parentheses."""
    return rf"\left({text}\right)" if tex else f"({text})"


def expression(c: Known | float) -> sympy.Expr:
    """Return a number as an expression in the names of parameters."""
    if not isinstance(c, Known):
        return _exact(float(c))
    return sympy.Add(*(
        sympy.Mul(_exact(x), *(_atom(a) ** sympy.nsimplify(k) for a, k in monomial))
        for monomial, x in c.terms.items()
    ))  # fmt: skip


def _exact(c: float) -> sympy.Expr:
    """Return a number as a fraction, one over pi, or the root of one, if it is near."""
    for value, unit in ((c, ONE), (c * math.pi, 1 / sympy.pi)):
        fraction = Fraction(value).limit_denominator(_LARGEST)
        if math.isclose(fraction, value, rel_tol=1e-13):
            return sympy.Rational(fraction.numerator, fraction.denominator) * unit
    square = Fraction(c * c).limit_denominator(_LARGEST)
    if math.isclose(square, c * c, rel_tol=1e-13):
        return int(math.copysign(1, c)) * sympy.sqrt(sympy.Rational(square))
    return sympy.Float(c, 10)


def _atom(atom: Atom) -> sympy.Expr:
    if atom.inside is not None:
        return expression(atom.inside)
    place = atom.name
    assert isinstance(place, tuple)
    if isinstance(place[-1], tuple):  # a function of a polynomial
        return sympy.Function(place[0])(expression(Known(dict(place[-1]))))
    inner = "".join(str(x + 1) for x in place if isinstance(x, int))
    name = f"{place[-1]}_{inner}" if inner else str(place[-1])
    return sympy.Symbol(name, real=True, positive=atom.positive or None)


def matters(c: sympy.Expr) -> bool:
    """Return whether a sum is more than rounding."""
    return any(abs(x.as_coeff_Mul()[0]) > 1e-14 for x in sympy.Add.make_args(c))


def shortest(c: sympy.Expr) -> sympy.Expr:
    """Return a number as a product, in which 1 - x^2 stays as it is."""
    c = sympy.expand(c)
    even = [x for x in c.free_symbols if sympy.expand(c.subs(x, -x) - c) == 0]
    product = sympy.factor(c.subs({x: sympy.sqrt(x) for x in even}))
    whole: sympy.Expr = sympy.Integer(1)
    for x in sympy.Mul.make_args(product.subs({x: x**2 for x in even})):
        turned = x.is_Add and x.subs(dict.fromkeys(x.free_symbols, 0)).is_negative
        whole = -whole * -x if turned else whole * x
    return whole


def size(c: sympy.Expr, tex: bool) -> tuple[bool, str]:
    """Return whether a number is negative, and its size."""
    short = shortest(c)
    negative = short.could_extract_minus_sign()
    short = -short if negative else short
    if tex:
        text = sympy.latex(short, mul_symbol=r"\,")
    else:
        text = str(short).replace("**", "^").replace("*", " ")
    return negative, parentheses(text, tex) if short.is_Add else text


def factored(numbers: Sequence[sympy.Expr]) -> tuple[sympy.Expr, list[sympy.Expr]]:
    """Return what numbers have in common, and what is left of each."""
    marks = [sympy.Dummy() for _ in numbers]
    whole = shortest(sympy.Add(*(c * x for c, x in zip(numbers, marks, strict=True))))
    common, rest = whole.as_independent(*marks) if whole.is_Mul else (ONE, whole)
    return common, [sympy.expand(rest).coeff(x) for x in marks]
