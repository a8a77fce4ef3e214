"""Polynomials in the parameters of a block as one fraction, in text and in LaTeX."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

from shaped_attention.blocks.limits.numbers import Atom, Known, Monomial

_GREEK = ("alpha", "beta", "gamma", "delta", "kappa", "lambda", "mu", "nu", "sigma", "tau")

_LARGEST = 10_000
"""Largest denominator that is taken for exact."""

Polynomial: TypeAlias = tuple[tuple[Monomial, float], ...]

ONE: Polynomial = (((), 1.0),)


def addends(p: Polynomial) -> list[Polynomial]:
    """Return the terms, if they have no factor in common, or the whole."""
    if len(p) > 1 and monomials_factored([p])[0] == ONE:
        return [(x,) for x in p]
    return [p] if p else []


def polynomial(c: Known | float) -> Polynomial:
    """Return a number as a polynomial."""
    return _ordered(c.terms if isinstance(c, Known) else dict[Monomial, float]({(): float(c)}))


def _ordered(terms: dict[Monomial, float]) -> Polynomial:
    kept = {x: c for x, c in terms.items() if c != 0.0}
    return tuple(sorted(kept.items(), key=lambda x: (sum(k for _, k in x[0]), repr(x[0]))))


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return a sum."""
    total = dict(a)
    for x, c in b:
        total[x] = total.get(x, 0.0) + c
    return _ordered({x: c for x, c in total.items() if abs(c) > 1e-14})


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return a product."""
    if not a or not b:
        return ()
    whole = Known(dict(a)) * Known(dict(b))
    return polynomial(whole)


def factored(numbers: Sequence[Polynomial]) -> tuple[Polynomial, list[Polynomial]]:
    """Return what numbers have in common, and what is left of each."""
    common, rest = monomials_factored(numbers)
    if len(rest) > 1 and len(rest[0]) > 1:
        single = [monomials_factored([p]) for p in rest]
        (whole,) = single[0][1]
        if all(x == [whole] for _, x in single):
            return times(common, whole), [c for c, _ in single]
    return common, rest


def monomials_factored(numbers: Sequence[Polynomial]) -> tuple[Polynomial, list[Polynomial]]:
    """Return the largest number with powers of parameters that all terms have in common."""
    terms = [x for p in numbers for x in p]
    powers = [dict(monomial) for monomial, _ in terms]
    atoms = sorted({a for x in powers for a in x}, key=repr)
    least = {a: min(x.get(a, 0.0) for x in powers) for a in atoms}
    common = tuple((a, k) for a, k in least.items() if k != 0.0)
    first = terms[0][1]
    ratios = [Fraction(c / first).limit_denominator(_LARGEST) for _, c in terms]
    exact = all(_near(float(r), c / first) for r, (_, c) in zip(ratios, terms, strict=True))
    share = Fraction(1)
    if exact:
        tops, bottoms = [r.numerator for r in ratios], [r.denominator for r in ratios]
        share = Fraction(math.gcd(*tops), math.lcm(*bottoms))
    # Most terms that are left are positive.
    positive = sum(c > 0.0 for _, c in terms) - len(terms) / 2.0 or first
    c = math.copysign(first * float(share), positive)
    inverse: Polynomial = ((tuple((a, -k) for a, k in common), 1.0 / c),)
    rest = [times(inverse, p) for p in numbers]
    if exact:
        rest = [tuple((x, float(round(y))) for x, y in p) for p in rest]
    return ((common, c),), rest


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-13 * abs(b)


def parentheses(text: str, tex: bool) -> str:
    """Return a text in parentheses."""
    return rf"\left({text}\right)" if tex else f"({text})"


def signed_sum(parts: Iterable[tuple[bool, str]]) -> str:
    """Return a sum of what is negative or not, positive terms first."""
    whole = ""
    for negative, size in sorted(parts, key=lambda x: x[0]):
        whole += (" - " if negative else " + ") + size if whole else "-" * negative + size
    return whole or "0"


def fraction_of(p: Polynomial, tex: bool) -> tuple[bool, str]:
    """Return whether a number is negative, and its size as one fraction."""
    ((common, c),), (rest,) = monomials_factored([p]) if len(p) > 1 else (p, (ONE,))
    top, bottom = _constant(abs(c), tex)
    over = [_power(a, k, tex) for a, k in common if k > 0.0]
    under = bottom + [_power(a, -k, tex) for a, k in common if k < 0.0]
    if rest != ONE:
        over.append(parentheses(signed_sum(fraction_of((x,), tex) for x in rest), tex))
    over = (top if top != ["1"] or not over else []) + over
    space = r"\," if tex else " "
    if not under:
        return c < 0.0, space.join(over)
    if tex:
        return c < 0.0, rf"\frac{{{space.join(over)}}}{{{space.join(under)}}}"
    below = space.join(under)
    return c < 0.0, f"{space.join(over)}/" + (f"({below})" if " " in below else below)


def _constant(c: float, tex: bool) -> tuple[list[str], list[str]]:
    """Return numerator and denominator of a fraction, one of pi, or the root of one."""
    for value, extra in ((c, ""), (c * math.pi, r"\pi" if tex else "pi")):
        fraction = Fraction(value).limit_denominator(_LARGEST)
        if _near(float(fraction), value):
            below = [str(fraction.denominator)] if fraction.denominator > 1 else []
            return [str(fraction.numerator)], below + [extra] * bool(extra)
    fraction = Fraction(c * c).limit_denominator(_LARGEST)
    if _near(float(fraction), c * c):
        return [rf"\sqrt{{{fraction}}}" if tex else f"sqrt({fraction})"], []
    return [f"{c:.10g}"], []


def _power(atom: Atom, power: float, tex: bool) -> str:
    base = _atom(atom, tex)
    if power == 1.0:
        return base
    if power == 0.5:
        return rf"\sqrt{{{base}}}" if tex else f"sqrt({base.strip('()')})"
    return f"{base}^{{{power:g}}}" if tex else f"{base}^{power:g}"


def _atom(atom: Atom, tex: bool) -> str:
    if atom.inside is not None:
        return parentheses(_plain(atom.inside, tex), tex)
    place = atom.name
    assert isinstance(place, tuple)
    if isinstance(place[-1], tuple):  # a function of a polynomial
        inner = _plain(Known(dict(place[-1])), tex)
        return rf"\mathrm{{{place[0]}}}({inner})" if tex else f"{place[0]}({inner})"
    name, inner = str(place[-1]), "".join(str(x + 1) for x in place if isinstance(x, int))
    if not tex:
        return f"{name}_{inner}" if inner else name
    word = name.rstrip("0123456789")
    index = ",".join(x for x in (name[len(word) :], inner) if x)
    if "_" in word:
        word, rest = word.split("_", 1)
        index = ",".join(x for x in (rf"\mathrm{{{rest.replace('_', ' ')}}}", index) if x)
    word = rf"\{word}" if word in _GREEK else word if len(word) == 1 else rf"\mathrm{{{word}}}"
    return f"{word}_{{{index}}}" if index else word


def _plain(c: Known, tex: bool) -> str:
    return signed_sum(fraction_of((x,), tex) for x in polynomial(c))
