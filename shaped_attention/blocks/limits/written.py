"""The limit of a block as formulas in V, for a reader or a paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.limits.derived import DerivedLimit
from shaped_attention.blocks.limits.noise import Term, gaussians
from shaped_attention.blocks.limits.numbers import Atom, Known, is_zero, times
from shaped_attention.blocks.limits.shadows import Array, Small

_SUM, _PRODUCT, _ATOM = 1, 2, 3

_GREEK = ("alpha", "beta", "gamma", "mu", "nu", "sigma", "tau")


@dataclass(frozen=True)
class Formula:
    """A formula as text and in LaTeX; `binds` tells sums, products and single symbols apart."""

    text: str
    latex: str
    binds: int = _ATOM

    def within(self, binds: int) -> Formula:
        """Return it in parentheses if it binds less."""
        if self.binds >= binds:
            return self
        return Formula(f"({self.text})", rf"\left({self.latex}\right)")


def _product(factors: Sequence[Formula], text: str = " ", latex: str = r"\,") -> Formula:
    if len(factors) == 1:
        return factors[0]
    inner = [x.within(_PRODUCT if text == " " else _ATOM) for x in factors]
    return Formula(
        text.join(x.text for x in inner), latex.join(x.latex for x in inner), _PRODUCT
    )  # fmt: skip


def _sum(parts: Sequence[tuple[bool, Formula]]) -> Formula:
    """Return a sum; a part is negative or not."""
    text, latex = "", ""
    for k, (negative, x) in enumerate(sorted(parts, key=lambda part: part[0])):
        x = x.within(_PRODUCT)
        sign = "-" if negative else "+"
        text += f" {sign} {x.text}" if k else ("-" if negative else "") + x.text
        latex += f" {sign} {x.latex}" if k else ("-" if negative else "") + x.latex
    return Formula(text, latex, _SUM if len(parts) > 1 or parts[0][0] else _PRODUCT)


def _decimal(number: float) -> Formula:
    fraction = Fraction(number).limit_denominator(999)
    if abs(number - fraction) > 1e-12 * abs(number):
        return Formula(f"{number:.10g}", f"{number:.10g}")
    if fraction.denominator == 1:
        return Formula(str(fraction), str(fraction))
    return Formula(str(fraction), rf"\tfrac{{{fraction.numerator}}}{{{fraction.denominator}}}")


def _symbol(name: str) -> Formula:
    """Return a parameter: tau0 is tau_0."""
    base = name.rstrip("0123456789")
    index = name[len(base) :]
    if "_" in base and not index:
        base, index = base.split("_", 1)
    greek = rf"\{base}" if base in _GREEK else base if len(base) == 1 else rf"\mathrm{{{base}}}"
    latex = greek + (
        rf"_{{{index}}}" if len(index) == 1 else rf"_{{\mathrm{{{index}}}}}" * bool(index)
    )
    return Formula(name, latex)


def _atom(atom: Atom) -> Formula:
    if atom.inside is not None:
        return _number(atom.inside)
    place = atom.name
    assert isinstance(place, tuple)
    if isinstance(place[0], str) and isinstance(place[-1], tuple):
        return Formula(f"{place[0]}(...)", rf"\mathrm{{{place[0]}}}(\dots)")
    name = _symbol(str(place[-1]))
    inner = [str(x + 1) for x in place[:-1] if isinstance(x, int)]
    if not inner:
        return name
    return Formula(f"{name.text}_{''.join(inner)}", f"{{{name.latex}}}_{{{''.join(inner)}}}")


def _power(atom: Atom, power: float) -> Formula:
    base = _atom(atom)
    if power == 1.0:
        return base
    if power == 0.5:
        return Formula(f"sqrt({base.text})", rf"\sqrt{{{base.latex}}}")
    base, exponent = base.within(_ATOM), f"{power:g}"
    return Formula(f"{base.text}^{exponent}", f"{base.latex}^{{{exponent}}}")


def _monomial(factors: tuple[tuple[Atom, float], ...], number: float) -> Formula:
    over = [_power(a, k) for a, k in factors if k > 0.0]
    under = [_power(a, -k) for a, k in factors if k < 0.0]
    if number != 1.0 or not over:
        over = [_decimal(number), *over] if number != 1.0 or not over else over
    top = _product(over)
    if not under:
        return top
    bottom = _product(under)
    inner = bottom.within(_ATOM) if len(under) > 1 else bottom
    return Formula(
        f"{top.within(_PRODUCT).text}/{inner.text}", rf"\frac{{{top.latex}}}{{{bottom.latex}}}",
        _PRODUCT,
    )  # fmt: skip


def _number(number: Any) -> Formula:
    """Return a number or a polynomial in the parameters."""
    if not isinstance(number, Known):
        return _sum([(number < 0.0, _decimal(abs(number)))])
    return _sum([(c < 0.0, _monomial(x, abs(c))) for x, c in number.terms.items()])


class Writer:
    """Formulas of matrices; what occurs more than once, and constants, have names."""

    def __init__(self, factor: Small, roots: Sequence[Small]) -> None:
        self._factor, self._uses = factor, Counter[Small]()
        self.named: dict[Small, Formula] = {}
        self.lines: list[tuple[Formula, Formula]] = []
        seen: set[Small] = set()
        stack = list(roots)
        self._uses.update(roots)
        while stack:
            x = stack.pop()
            if x not in seen and not x.constant:
                seen.add(x)
                inner = list(_inside(x))
                self._uses.update(inner)
                stack += inner

    def of(self, x: Small) -> Formula:
        """Return the formula of a matrix, or its name."""
        if x in self.named:
            return self.named[x]
        if (known := self._known(x)) is not None:
            return known
        formula = self._constant(x) if x.constant else self._made(x)
        short = formula.binds == _ATOM or (x.origin and x.origin[0] in ("mT", "row_sums"))
        if x.constant or (self._uses[x] > 1 and not short):
            name = ("C" if x.constant else "A") + str(
                1 + sum(line[0].text[0] == ("C" if x.constant else "A") for line in self.lines)
            )
            self.named[x] = Formula(name, f"{name[0]}_{{{name[1:]}}}")
            self.lines.append((self.named[x], formula))
            return self.named[x]
        self.named[x] = formula
        return formula

    def _known(self, x: Small) -> Formula | None:
        if x is self._factor:
            return Formula("F", "F")
        if x.is_identity:
            return Formula("I", "I")
        if x.is_uniform:
            ones = (
                Formula("1", r"\mathbf{1}")
                if x.shape[1] == 1
                else Formula("1^T", r"\mathbf{1}^\top")
            )
            if min(x.shape) > 1:
                ones = Formula("1 1^T", r"\mathbf{1}\mathbf{1}^\top", _PRODUCT)
            return ones if x.entry == 1.0 else _product([_decimal(x.entry), ones])
        pair = x.factors("matmul")
        if pair and pair[0] is self._factor and _turned(pair[1]) is self._factor:
            return Formula("V", "V")
        if x.origin and x.origin[0] == "row_sums":
            inner = x.origin[1][0].factors("times")
            if inner == (self._factor, self._factor):
                return Formula("diag(V)", r"\mathrm{diag}(V)")
        return None

    def _constant(self, x: Small) -> Formula:
        def written(entries: Array) -> str:
            return str([[_decimal(float(y)).text for y in row] for row in entries]).replace("'", "")

        rows = [" & ".join(_decimal(float(y)).latex for y in row) for row in x.shadow]
        return Formula(
            written(x.shadow), r"\begin{pmatrix}" + r" \\ ".join(rows) + r"\end{pmatrix}", _SUM
        )  # fmt: skip

    def _made(self, x: Small) -> Formula:
        if x.terms is not None:
            return _sum([_signed(c, self.of(y)) for y, c in x.terms.items()])
        assert x.origin is not None
        name, args = x.origin
        inner = [self.of(y) for y in args]
        if name == "matmul":
            return _product(inner)
        if name == "times":
            if (1, 1) in (args[0].shape, args[1].shape):
                return _product(inner)
            return _product(inner, " o ", r"\circ ")
        if name == "over":
            return _product(inner, " / ", r"\oslash ")
        if name == "mT":
            y = inner[0].within(_ATOM)
            return Formula(f"{y.text}^T", f"{y.latex}^\\top")
        if name == "row_sums":
            return _product([*inner, Formula("1", r"\mathbf{1}")])
        if name == "column_sums":
            return _product([Formula("1^T", r"\mathbf{1}^\top"), *inner])
        word, order = name if isinstance(name, tuple) and isinstance(name[-1], int) else (name, 0)
        word = word[0] if isinstance(word, tuple) else word
        plain = str(word).replace("_", " ")
        return Formula(
            f"{plain}{chr(39) * order}({inner[0].text})",
            rf"\mathrm{{{plain}}}{chr(39) * order}({inner[0].latex})",
        )

    def noise(self, term: Term, name: Formula) -> tuple[bool, Formula]:
        """Return a term of the noise, dZ being the increments of its Gaussian matrix."""
        z = Formula(f"d{name.text}", rf"\mathrm{{d}}{name.latex}")
        if term.flipped:
            z = Formula(f"{z.text}^T", f"{z.latex}^\\top")
        right = None if term.R.is_identity else self.of(term.R).within(_ATOM)
        if term.R is self._factor or (right and right.binds == _ATOM):
            right = right and Formula(f"{right.text}^T", f"{right.latex}^\\top")
        core = _product([x for x in (
            None if term.L.is_identity else self.of(term.L), z, right) if x is not None])  # fmt: skip
        if term.weight is not None:
            core = _product([self.of(term.weight), core], " o ", r"\circ ")
        if term.summed:
            core = Formula(f"diag({core.text} 1)", rf"\mathrm{{diag}}({core.latex}\,\mathbf{{1}})")
        around = [None if x is None else self.of(x) for x in (term.left, term.right)]
        whole = _product([x for x in (around[0], core, around[1]) if x is not None])
        return _signed(term.coefficient, whole)


def _turned(x: Small) -> Small | None:
    return x.origin[1][0] if x.origin and x.origin[0] == "mT" else None


def _inside(x: Small) -> Iterator[Small]:
    if x.terms is not None:
        yield from x.terms
    elif x.origin is not None:
        yield from (y for y in x.origin[1] if isinstance(y, Small))


def _signed(number: Any, x: Formula) -> tuple[bool, Formula]:
    """Return whether a multiple is negative, and its size."""
    if isinstance(number, Known) and len(number.terms) > 1:
        return False, _product([_number(number), x])
    ((monomial, c),) = number.terms.items() if isinstance(number, Known) else (((), number),)
    if not monomial and abs(c) == 1.0:
        return c < 0.0, x
    return c < 0.0, _product([_monomial(monomial, abs(c)), x])


@dataclass(frozen=True)
class WrittenLimit:
    """The limit of a block as formulas; `print` shows text, a notebook LaTeX.

    Attributes
    ----------
    lines
        What is defined, and its formula, in the order of their use.
    remarks
        What is not there, and why.
    """

    lines: tuple[tuple[Formula, Formula], ...]
    remarks: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([*(f"{x.text} = {y.text}" for x, y in self.lines), *self.remarks])

    @property
    def latex(self) -> str:
        """The formulas as an `align*` environment."""
        rows = (rf"{x.latex} &= {y.latex}" for x, y in self.lines)
        return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"

    def _repr_latex_(self) -> str:
        return self.latex


def limit_of(block: Block, tokens: int = 2) -> WrittenLimit:
    """Return the limit of a block as formulas in V, derived from the text of its branch.

    It is the SDE of a factor F of the covariance V = F F^T, and of V,

        dF = sqrt(k) / 2 F dB - k (m + 1) / 8 F dt + b dt + N,    dV = ... + (G - c V) dt,

    with the linear rate k (`shaped_attention.blocks.limit.Limit`). o is the product entry by entry.

    Parameters
    ----------
    block
        A block with a derived limit.
    tokens
        Number m of tokens, which constants depend on.

    Raises
    ------
    ValueError
        If the block has no limit, with the reason, or one that was written by hand.
    """
    limit: Limit | str = block.limit
    if isinstance(limit, str):
        raise ValueError(f"layer contains {block!r}, which has no limit: {limit}")
    if not isinstance(limit, DerivedLimit):
        raise ValueError(f"the limit of {block!r} is not derived from its branch")
    limit.check(tokens)
    found = limit.derivation(tokens, tokens)
    roots = [x for x in (found.drift, found.growth) if x is not None]
    for term in found.noise.terms:
        roots += [x for x in (term.L, term.R, term.weight, term.left, term.right) if x is not None]
    writer, remarks = Writer(found.F, roots), []
    lines = [(Formula("k", "k"), _number(found.rate))]
    if found.drift is not None:
        lines.append((Formula("b", "b"), writer.of(found.drift)))
    else:
        remarks.append("b = 0: the branch has no mean of order 1/n along the tokens")
    names = {}
    for i, z in enumerate(gaussians(found.noise), 1):
        names[z] = Formula(f"Z{i}", f"Z_{{{i}}}")
    if found.noise:
        parts = [writer.noise(x, names[x.z]) for x in found.noise.terms]
        lines.append((Formula("N", "N"), _sum(parts)))
    else:
        remarks.append("N = 0: no weights fluctuate besides those of a linear network")
    if found.growth is not None:
        lines.append((Formula("G", "G"), writer.of(found.growth)))
    else:
        remarks.append("G = 0: nothing raises the rank of V")
    if not is_zero(found.decay):
        lines.append((Formula("c", "c"), _number(times(1.0, found.decay))))
    wide = [f"{x.text} {z.rows} x {z.columns}" for z, x in names.items()]
    if wide:
        remarks.append("independent Brownian motions: " + ", ".join(wide))
    return WrittenLimit((*lines, *writer.lines), tuple(remarks))
