"""The limit of a block as formulas in V, for a reader or a paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limits import formulas as f
from shaped_attention.blocks.limits.derived import DerivedLimit
from shaped_attention.blocks.limits.expressions import ONE
from shaped_attention.blocks.limits.formulas import Sum, Symbol
from shaped_attention.blocks.limits.noise import Gaussian, Term, gaussians
from shaped_attention.blocks.limits.numbers import is_zero
from shaped_attention.blocks.limits.small import Array, Small
from shaped_attention.blocks.reasons import check_limit, limit_of
from shaped_attention.checks import argument_error, check_count

_LONG = 24
"""Number of characters from which a matrix that occurs more than once has a name."""

_POWERS = {"sqrt": Fraction(1, 2), "reciprocal": Fraction(-1)}


class Writer:
    """Formulas of matrices; constants, and what is long and occurs more than once, have names."""

    def __init__(self, factor: Small, roots: Sequence[Small]) -> None:
        self._factor, self._uses = factor, Counter[Small](roots)
        self._known: dict[Small, Sum] = {factor: f.symbol(f.FACTOR)}
        self._constants: list[tuple[Array, Symbol]] = []
        self.lines: list[tuple[Symbol, Sum | Array]] = []
        stack, seen = list(roots), set[Small]()
        while stack:
            x = stack.pop()
            if x not in seen:
                seen.add(x)
                inner = list(_inside(x))
                self._uses.update(inner)
                stack += inner

    def of(self, x: Small) -> Sum:
        """Return the formula of a matrix, or its name."""
        if x not in self._known:
            found = self._constant(x) if x.constant else self._made(x)
            if not x.constant and self._uses[x] > 1 and len(found.written(False)) > _LONG:
                product = f.as_product(found)
                core = Sum((f.Product(ONE, product.scalars, product.items),))
                found = Sum((f.Product(product.number, (), (self._name("A", core, x.shadow),)),))
            self._known[x] = found
        return self._known[x]

    def _name(self, letter: str, value: Sum | Array, shadow: Array) -> Symbol:
        number = 1 + sum(line[0].text[0] == letter for line in self.lines)
        equal = shadow.shape[0] == shadow.shape[1] and np.allclose(shadow, shadow.T, rtol=1e-12)
        name = Symbol(f"{letter}{number}", f"{letter}_{{{number}}}", equal)
        self.lines.append((name, value))
        return name

    def _constant(self, x: Small) -> Sum:
        if x.is_identity:
            return f.symbol(f.IDENTITY)
        rows, columns = x.shape
        if x.is_uniform:
            ones = [f.symbol(f.ONES)] * (rows > 1) + [f.symbol(f.ONES.mT)] * (columns > 1)
            return f.multiplied(f.number(x.entry), *ones)
        if rows == columns and np.ptp(x.shadow[~np.eye(rows, dtype=bool)]) == 0.0 == np.ptp(
            np.diag(x.shadow)
        ):
            off = float(x.shadow[0, 1])
            square = f.multiplied(f.symbol(f.ONES), f.symbol(f.ONES.mT))
            both = (float(x.shadow[0, 0]) - off, f.symbol(f.IDENTITY)), (off, square)
            return f.added(f.scaled(c, y) for c, y in both if c != 0.0)
        for shadow, name in self._constants:
            for matrix, other in ((shadow, name), (shadow.T, name.mT)):
                if matrix.shape == x.shape and abs(scale := _ratio(x.shadow, matrix)) > 0.0:
                    return f.scaled(scale, f.symbol(other))
        name = self._name("C", x.shadow, x.shadow)
        self._constants.append((x.shadow, name))
        return f.symbol(name)

    def _made(self, x: Small) -> Sum:
        if x.terms is not None:
            return f.added(f.scaled(c, self._spread(y, x.shape)) for y, c in x.terms.items())
        assert x.origin is not None
        name, args = x.origin
        if name in ("row_sums", "column_sums"):
            return self._summed(str(name), args[0])
        inner = [self.of(y) for y in args if isinstance(y, Small)]
        if name == "matmul":
            return f.multiplied(*inner)
        if name == "mT":
            return inner[0].mT
        if name == "times":
            for one, other in (inner, inner[::-1]):
                if args[inner.index(one)].shape == (1, 1):
                    return f.times_scalar(one, other)
            return f.of_entries("o", *inner)
        if name == "over":
            return f.of_entries("/", *inner)
        word, order = name if isinstance(name, tuple) and isinstance(name[-1], int) else (name, 0)
        word = word[0] if isinstance(word, tuple) else word
        if word in _POWERS and not order:
            return _power(inner[0], _POWERS[str(word)])
        return f.of_entries(str(word).replace("_", " ") + "'" * int(order), *inner)

    def _spread(self, x: Small, shape: tuple[int, int]) -> Sum:
        """Return a number, a column or a row as often as a shape needs."""
        down = [f.symbol(f.ONES)] * (x.shape[0] < shape[0])
        across = [f.symbol(f.ONES.mT)] * (x.shape[1] < shape[1])
        if x.shape == (1, 1) and (down or across):
            return f.times_scalar(self.of(x), f.multiplied(*down, *across))
        return f.multiplied(*down, self.of(x), *across) if down or across else self.of(x)

    def _summed(self, name: str, x: Small) -> Sum:
        """Return the sums of rows or columns: diag(V), |X|^2, or a product with ones."""
        factors = x.factors("times")
        if name == "row_sums" and factors == (self._factor, self._factor):
            return f.symbol(f.DIAGONAL)
        inner = x.origin[1][0] if x.origin and x.origin[0] in ("row_sums", "column_sums") else None
        square = inner.factors("times") if inner is not None else None
        if x.shape[0 if name == "column_sums" else 1] > 1 and square and square[0] is square[1]:
            return f.of_entries("norm", self.of(square[0]))
        if name == "row_sums":
            return f.multiplied(self.of(x), f.symbol(f.ONES))
        return f.multiplied(f.symbol(f.ONES.mT), self.of(x))

    def noise(self, term: Term, name: Symbol) -> Sum:
        """Return a term of the noise, dZ being the increments of its Gaussian matrix."""
        z = f.symbol(name).mT if term.flipped else f.symbol(name)
        core = f.multiplied(self.of(term.L), z, self.of(term.R).mT)
        if term.weight is not None:
            core = f.of_entries("o", self.of(term.weight), core)
        if term.summed:
            core = f.of_entries("diag", f.multiplied(core, f.symbol(f.ONES)))
        around = [None if x is None else self.of(x) for x in (term.left, term.right)]
        whole = f.multiplied(*(x for x in (around[0], core, around[1]) if x is not None))
        return f.scaled(term.coefficient, whole)


def _inside(x: Small) -> Iterator[Small]:
    if x.terms is not None:
        yield from x.terms
    elif x.origin is not None:
        yield from (y for y in x.origin[1] if isinstance(y, Small))


def _ratio(a: Array, b: Array) -> float:
    """Return c if a = c b, else 0."""
    c = float((a * b).sum() / (b * b).sum())
    return c if np.allclose(a, c * b, rtol=1e-12, atol=1e-14) else 0.0


def _power(x: Sum, exponent: Fraction) -> Sum:
    """Return a power of the entries; powers of powers are joined."""
    product = f.as_product(x)
    if product.number == ONE and len(product.items) == 1 and not product.scalars:
        (item,) = product.items
        if isinstance(item, f.Function) and item.name == "power":
            return _power(item.args[0], item.exponent * exponent)
    return f.of_entries("power", x, exponent=exponent)


@dataclass(frozen=True)
class LimitFormulas:
    """The limit of a block as formulas: `print` shows text, a notebook LaTeX.

    Attributes
    ----------
    lines
        What is defined, and its formula or its entries.
    remarks
        What is not there, and why; the sizes of the Brownian motions.
    """

    lines: tuple[tuple[Symbol, Sum | Array], ...]
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        rows = (f"{x.written(False)} = {_entries(y, False)}" for x, y in self.lines)
        return "\n".join([*rows, *self.remarks])

    @property
    def latex(self) -> str:
        """The formulas as an `align*` environment."""
        rows = (f"{x.written(True)} &= {_entries(y, True)}" for x, y in self.lines)
        return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"

    def _repr_latex_(self) -> str:
        return self.latex


def _entries(x: Sum | Array, tex: bool) -> str:
    if isinstance(x, Sum):
        return x.written(tex)
    rows = [[f.number(float(y)).written(tex) for y in row] for row in x]
    if tex:
        inner = r" \\ ".join(" & ".join(row) for row in rows)
        return rf"\begin{{pmatrix}}{inner}\end{{pmatrix}}"
    return "[" + ", ".join("[" + ", ".join(row) + "]" for row in rows) + "]"


def limit_formulas(block: Block, tokens: int = 2) -> LimitFormulas:
    """Return the limit of a block as formulas in V, derived from the text of its branch.

    It is the SDE of a factor F of V = F F^T, and what the drift of V has in addition,

        dF = sqrt(k) / 2 F dB - k (m + 1) / 8 F dt + b dt + N,    dV = ... + (G - c V) dt,

    with a symmetric Brownian motion B (variance t off the diagonal, 2 t on it), which gives V the
    diffusion k (V_ac V_bd + V_ad V_bc) of a linear network, and independent Brownian motions Z in
    N. Products `o` and quotients `/` of matrices, functions and their powers are taken entry by
    entry; columns and rows are repeated where needed. e, in LaTeX a bold 1, is a column of ones,
    diag(V) the column of the diagonal, diag of a column the diagonal matrix, |X| the Frobenius
    norm.

    Parameters
    ----------
    block
        A block whose limit is derived from its branch.
    tokens
        Number m of tokens, on which the constants depend.

    Raises
    ------
    ValueError
        If the block has no limit, with the reason, or one that is not derived from its branch.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> print(sa.limit_formulas(sa.ShapedAttention(gamma=0.5)))
    k = gamma^2 (2 - gamma^2)
    b = gamma^2 (1 - gamma^2)/(8 tau0^2) |F^T (I - 1/2 e e^T) F|^2 F
    N = gamma^2/(2 tau0) F dZ1 F^T (I - 1/2 e e^T) F
    G = 0: nothing raises the rank of V
    independent Brownian motions: Z1 (2, 2)
    """
    if not isinstance(block, Block):
        raise argument_error("block", "a block", block)
    check_count("tokens", tokens)
    check_limit(block)
    limit = limit_of(block)
    if not isinstance(limit, DerivedLimit):
        raise ValueError(f"layer contains {block!r}, whose limit is not derived from its branch")
    limit.check(tokens)
    found = limit.derivation(tokens, tokens)
    roots = [x for x in (found.drift, found.growth) if x is not None]
    for term in found.noise.terms:
        roots += [x for x in (term.L, term.R, term.weight, term.left, term.right) if x is not None]
    writer = Writer(found.F, roots)
    z: dict[Gaussian, Symbol] = {
        x: Symbol(f"dZ{i}", rf"\mathrm{{d}}Z_{{{i}}}", x.symmetric)
        for i, x in enumerate(gaussians(found.noise), 1)
    }
    parts = (
        ("b", found.drift and writer.of(found.drift), "the branch has no mean of order 1/n"),
        (
            "N", f.added(writer.noise(x, z[x.z]) for x in found.noise.terms),
            "no weights fluctuate besides those of a linear network",
        ),
        ("G", found.growth and writer.of(found.growth), "nothing raises the rank of V"),
    )  # fmt: skip
    lines: list[tuple[Symbol, Sum | Array]] = [(Symbol("k", "k"), f.number(found.rate))]
    lines += [(Symbol(name, name), x) for name, x, _ in parts if x and x.terms]
    remarks = [f"{name} = 0: {why}" for name, x, why in parts if not (x and x.terms)]
    if not is_zero(found.decay):
        lines.append((Symbol("c", "c"), f.number(found.decay)))
    if z:
        sizes = ", ".join(
            f"{y.text[1:]} ({x.rows}, {x.columns})" + ", symmetric as B" * x.symmetric
            for x, y in z.items()
        )
        remarks.append(f"independent Brownian motions: {sizes}")
    # What a name stands for comes after its use.
    named = sorted(reversed(writer.lines), key=lambda line: line[0].text[0])
    return LimitFormulas((*lines, *named), tuple(remarks))
