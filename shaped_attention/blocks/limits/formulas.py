"""Formulas of matrices: sums of products of symbols, as text and in LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias, Union

import sympy

from shaped_attention.blocks.limits.expressions import (
    ONE,
    expression,
    factored,
    matters,
    parentheses,
    shortest,
    size,
)
from shaped_attention.blocks.limits.numbers import Known


@dataclass(frozen=True)
class Symbol:
    """A matrix or a number with a name, perhaps transposed."""

    text: str
    latex: str
    symmetric: bool = False
    turned: bool = False

    @property
    def mT(self) -> Symbol:
        """The transpose."""
        return self if self.symmetric else replace(self, turned=not self.turned)

    def written(self, tex: bool) -> str:
        """Return it as text or in LaTeX."""
        return (self.latex if tex else self.text) + (r"^\top" if tex else "^T") * self.turned


@dataclass(frozen=True)
class Function:
    """A function of matrices, most of them entry by entry."""

    name: str
    args: tuple[Sum, ...]
    exponent: Fraction = Fraction(1)

    @property
    def mT(self) -> Function:
        """The transpose."""
        if self.name in ("norm", "diag", "group"):
            return self
        return replace(self, args=tuple(x.mT for x in self.args))

    def written(self, tex: bool) -> str:
        """Return it as text or in LaTeX."""
        if self.name in ("o", "/"):
            sign = {"o": r"\circ", "/": r"\oslash"}[self.name] if tex else self.name
            return f" {sign} ".join(x.within(tex) for x in self.args)
        inner = self.args[0].written(tex)
        if self.name == "norm":
            return rf"\lVert {inner} \rVert^2" if tex else f"|{inner}|^2"
        if self.name == "group":
            return self.args[0].within(tex)
        if self.name == "power":
            return _root(self.args[0], self.exponent, tex)
        return rf"\mathrm{{{self.name}}}({inner})" if tex else f"{self.name}({inner})"


Item: TypeAlias = Union[Symbol, Function, "Sum"]


@dataclass(frozen=True)
class Product:
    """A number, scalars and matrices."""

    number: sympy.Expr
    scalars: tuple[Item, ...] = ()
    items: tuple[Item, ...] = ()

    @property
    def mT(self) -> Product:
        """The transpose."""
        return replace(self, items=tuple(x.mT for x in reversed(self.items)))

    def parts(self, tex: bool) -> tuple[bool, str]:
        """Return whether it is negative, and its size."""
        negative, number = size(self.number, tex)
        factors = [*self.scalars, *self.items]
        alone = len(factors) == 1 and number == "1"
        inner = [
            x.written(tex) if alone or not _loose(x) else parentheses(x.written(tex), tex)
            for x in factors
        ]
        bare = [number] if number != "1" or not inner else []
        return negative, (r"\," if tex else " ").join([*bare, *inner])


@dataclass(frozen=True)
class Sum:
    """A sum of products."""

    terms: tuple[Product, ...]

    @property
    def mT(self) -> Sum:
        """The transpose."""
        return Sum(tuple(x.mT for x in self.terms))

    def written(self, tex: bool) -> str:
        """Return it as text or in LaTeX, positive terms first."""
        whole = ""
        for negative, term in sorted((x.parts(tex) for x in self.terms), key=lambda x: x[0]):
            whole += (" - " if negative else " + ") + term if whole else "-" * negative + term
        return whole or "0"

    def within(self, tex: bool) -> str:
        """Return it as a factor, in parentheses if it needs them."""
        only = self.terms[0] if len(self.terms) == 1 else None
        if only and only.number == ONE and len((*only.scalars, *only.items)) == 1:
            (item,) = (*only.scalars, *only.items)
            if not _loose(item):
                return item.written(tex)
        return parentheses(self.written(tex), tex)


IDENTITY, ONES = Symbol("I", "I", symmetric=True), Symbol("e", r"\mathbf{1}")
FACTOR, V = Symbol("F", "F"), Symbol("V", "V", symmetric=True)
DIAGONAL, TRACE = Symbol("diag(V)", r"\mathrm{diag}(V)"), Symbol("tr(V)", r"\mathrm{tr}(V)", True)


def _root(x: Sum, exponent: Fraction, tex: bool) -> str:
    """Return a power of the entries; that of a transposed symbol is transposed as a whole."""
    items = x.terms[0].items if len(x.terms) == 1 else ()
    if len(items) == 1 and isinstance(items[0], Symbol) and items[0].turned:
        return f"({_root(x.mT, exponent, tex)})" + (r"^\top" if tex else "^T")
    return x.within(tex) + (rf"^{{\circ {exponent}}}" if tex else f"^({exponent})")


def _loose(x: Item) -> bool:
    """Return whether a factor needs parentheses in a product."""
    return isinstance(x, Sum) or (isinstance(x, Function) and x.name in ("o", "/"))


def symbol(x: Item) -> Sum:
    """Return a symbol as a formula."""
    return Sum((Product(ONE, (), () if x is IDENTITY else (x,)),))


def number(c: Known | float) -> Sum:
    """Return a number as a formula."""
    terms = sympy.Add.make_args(shortest(expression(c)))
    return Sum(tuple(Product(x) for x in terms))


def scaled(c: Known | float, x: Sum) -> Sum:
    """Return a multiple."""
    return Sum(tuple(replace(y, number=expression(c) * y.number) for y in x.terms))


def added(parts: Iterable[Sum]) -> Sum:
    """Return a sum; equal terms are added."""
    found: dict[tuple[tuple[Item, ...], tuple[Item, ...]], sympy.Expr] = {}
    for x in (y for part in parts for y in part.terms):
        key = x.scalars, x.items
        found[key] = found.get(key, sympy.Integer(0)) + x.number
    sums = {key: sympy.expand(c) for key, c in found.items()}
    return Sum(tuple(Product(c, *key) for key, c in sums.items() if matters(c)))


def multiplied(*factors: Sum) -> Sum:
    """Return a matrix product."""
    products = [as_product(x) for x in factors]
    items = _merged([y for x in products for y in x.items])
    scalars = [y for x in products for y in x.scalars]
    trace = (ONES.mT, DIAGONAL), (DIAGONAL.mT, ONES)
    if tuple(items) in trace:
        scalars, items = [*scalars, TRACE], []
    return Sum((Product(sympy.Mul(*(x.number for x in products)), tuple(scalars), (*items,)),))


def times_scalar(scalar: Sum, x: Sum) -> Sum:
    """Return the multiple by a matrix (1, 1)."""
    one, product = as_product(scalar), as_product(x)
    inner = one.items
    if len(inner) > 1:
        inner = (Function("group", (Sum((Product(ONE, (), inner),)),)),)
    scalars = (*one.scalars, *inner, *product.scalars)
    return Sum((Product(one.number * product.number, scalars, product.items),))


def of_entries(name: str, *args: Sum, exponent: Fraction = Fraction(1)) -> Sum:
    """Return a function of matrices; numbers are pulled out of "o", "/" and "norm"."""
    if name not in ("o", "/", "norm", "diag"):
        return symbol(Function(name, args, exponent))
    products = [as_product(x) for x in args]
    numbers = [x.number for x in products]
    whole = numbers[0] / numbers[1] if name == "/" else sympy.Mul(*numbers)
    if name == "norm":
        whole = whole**2
    bare = tuple(
        Sum((replace(x, number=ONE, items=x.items or (IDENTITY,) * (not x.scalars)),))
        for x in products
    )
    return Sum((Product(whole, (), (Function(name, bare),)),))


def as_product(x: Sum) -> Product:
    """Return a sum as a number times what its terms do not have in common."""
    if len(x.terms) == 1:
        return x.terms[0]
    terms = list(x.terms)
    left, right = list[Item](), list[Item]()
    while (first := _common(terms, 0)) is not None:
        left.append(first)
        terms = [replace(y, items=y.items[1:]) for y in terms]
    while (last := _common(terms, -1)) is not None:
        right.insert(0, last)
        terms = [replace(y, items=y.items[:-1]) for y in terms]
    c, rest = factored([y.number for y in terms])
    inner = Sum(tuple(
        Product(z, y.scalars, y.items or (IDENTITY,) * bool(left or right or not y.scalars))
        for y, z in zip(terms, rest, strict=True)
    ))  # fmt: skip
    return Product(c, (), (*left, inner, *right))


def _common(terms: Sequence[Product], place: int) -> Item | None:
    """Return the first or last factor if all terms share it, else None."""
    if not all(y.items for y in terms):
        return None
    items = {y.items[place] for y in terms}
    found = items.pop()
    # What is left must not be a number in some terms and a matrix in others.
    square = found in (FACTOR, FACTOR.mT, V) or all(len(y.items) > 1 for y in terms)
    return found if not items and square else None


def _merged(items: Sequence[Item]) -> list[Item]:
    """Return factors without identities, F F^T being V."""
    kept: list[Item] = []
    for x in items:
        if x == IDENTITY:
            continue
        if kept and kept[-1] == FACTOR and x == FACTOR.mT:
            kept[-1] = V
        else:
            kept.append(x)
    return kept
