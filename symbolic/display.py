"""Derived coefficients as readable text and LaTeX."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from textwrap import fill

from sympy import Add, Expr, Mul, Symbol, factor, latex

from symbolic.algebra import Algebra, Pair, Poly, vech_pairs
from symbolic.limit import Correction, Limit

MOST_TERMS_TO_FACTOR = 40
"""Longer polynomials stay expanded: factoring them is slow and rarely succeeds."""

WIDTH = 100
"""Columns of the text output."""

LATEX_NAMES = {Symbol("c_plus", real=True): "c_+", Symbol("c_minus", real=True): "c_-"}
"""LaTeX names that sympy does not derive from the names in text."""

LATEX_SUMMANDS = 6
"""Summands per line of the LaTeX output."""

Terms = list[tuple[Expr, Expr]]
"""A sum of products: (polynomial in the parameters, polynomial in V)."""


def grouped(polynomial: Poly, algebra: Algebra) -> Terms:
    """Write the polynomial as a short sum of products, parameters times a polynomial in V."""
    of_v = algebra.v_expressions.free_symbols
    symbols = algebra.ring.symbols
    parameters = [i for i, symbol in enumerate(symbols) if not symbol.free_symbols & of_v]
    by_parameters: dict[tuple[int, ...], dict[tuple[int, ...], object]] = defaultdict(dict)
    for exponents, coefficient in polynomial.items():
        rest = tuple(0 if i in parameters else e for i, e in enumerate(exponents))
        by_parameters[tuple(exponents[i] for i in parameters)][rest] = coefficient
    by_rest: dict[Poly, list[Expr]] = defaultdict(list)
    for powers, terms in by_parameters.items():
        content, primitive = algebra.ring.from_dict(terms).primitive()
        if primitive.LC < 0:
            content, primitive = -content, -primitive
        monomial = Mul(*[symbols[i] ** e for i, e in zip(parameters, powers, strict=True)])
        by_rest[primitive].append(algebra.ring.domain.to_sympy(content) * monomial)
    return [(_factored(Add(*factors)), _short(rest, algebra)) for rest, factors in by_rest.items()]


def drift_entries(
    limit: Limit | Correction, exchangeable: bool, name: str = "b"
) -> Iterator[tuple[str, Terms]]:
    """Yield names and terms of the entries of b; one per kind if tokens are exchangeable."""
    couples = [(pair,) for pair in vech_pairs(limit.algebra.tokens)]
    for ((a, b),) in _representatives(couples, exchangeable):
        entry = limit.algebra.entry(limit.drift_polynomials, a, b)
        yield f"{name}[{_name((a, b))}]", grouped(entry, limit.algebra)


def diffusion_entries(limit: Limit, exchangeable: bool) -> Iterator[tuple[str, Terms]]:
    """Yield names and terms of the entries of Sigma; one per kind if tokens are exchangeable."""
    pairs = vech_pairs(limit.tokens)
    couples = [(p, q) for i, q in enumerate(pairs) for p in pairs[i:]]
    index = {pair: k for k, pair in enumerate(pairs)}
    for first, second in _representatives(couples, exchangeable):
        entry = limit.algebra.entry(limit.diffusion_polynomials, index[first], index[second])
        yield f"Sigma[{_name(second)};{_name(first)}]", grouped(entry, limit.algebra)


def equation(name: str, terms: Terms, as_latex: bool) -> str:
    """Format ``name = terms`` as lines of text, or of a LaTeX align environment."""
    if as_latex:
        products = [_latex_product(parameters, rest) for parameters, rest in terms]
        symbol = name.replace("Sigma", r"\Sigma").replace("b1", "b^{(1)}")
        return _subscripts(rf"{symbol} &= {_sum(products)} \\")
    products = [f"{_bracketed(parameters)} * {_bracketed(rest)}" for parameters, rest in terms]
    text = f"{name} = {_sum(products)}"
    return fill(text, WIDTH, subsequent_indent="    ", break_long_words=False)


def _sum(summands: list[str]) -> str:
    """Join the summands with their signs; return 0 if there are none."""
    total = summands[0] if summands else "0"
    for summand in summands[1:]:
        total += _signed(summand)
    return total


def _signed(summand: str) -> str:
    return f" - {summand[1:].lstrip()}" if summand.startswith("-") else f" + {summand}"


def _latex_product(parameters: Expr, rest: Expr) -> str:
    first = latex(parameters, symbol_names=LATEX_NAMES)
    text = [rf"\left({first}\right)" if isinstance(parameters, Add) else first]
    long = [f for f in Mul.make_args(rest) if _is_long(f)]
    short = Mul(*[f for f in Mul.make_args(rest) if not _is_long(f)]) if long else rest
    if short != 1:
        bracketed = isinstance(short, Add)
        text.append(
            rf"\left({latex(short)}\right)" if bracketed else latex(short, inv_trig_style="full")
        )
    for sum_ in long:
        summands = [_signed(latex(summand)) for summand in sum_.as_ordered_terms()]
        summands[0] = summands[0].removeprefix(" + ")
        lines = [
            "".join(summands[k : k + LATEX_SUMMANDS])
            for k in range(0, len(summands), LATEX_SUMMANDS)
        ]
        broken = " \\\\\n&\\quad".join(lines)
        text.append(rf"\bigl({broken}\bigr)")
    return r"\, ".join(text)


def _is_long(expression: Expr) -> bool:
    return isinstance(expression, Add) and len(expression.args) > LATEX_SUMMANDS


def _bracketed(expression: Expr) -> str:
    return f"({expression})" if isinstance(expression, Add) else f"{expression}"


def _factored(expression: Expr) -> Expr:
    factored = factor(expression)
    # A minus sign before a product of differences is harder to read than the expanded sum.
    return expression if factored.could_extract_minus_sign() else factored


def _short(polynomial: Poly, algebra: Algebra) -> Expr:
    expression = polynomial.as_expr()
    polynomial_in_v = all(
        algebra.ring.symbols[i].is_Symbol
        for exponents in polynomial
        for i, power in enumerate(exponents)
        if power
    )
    short = polynomial_in_v and len(polynomial) <= MOST_TERMS_TO_FACTOR
    return factor(expression) if short else expression


def _representatives(
    tuples: Sequence[tuple[Pair, ...]], exchangeable: bool
) -> Iterator[tuple[Pair, ...]]:
    """Yield one index tuple of each class that is closed under renaming of tokens."""
    seen = set()
    for pairs in tuples:
        kind = _kind(pairs) if exchangeable else pairs
        if kind not in seen:
            seen.add(kind)
            yield pairs


def _kind(pairs: tuple[Pair, ...]) -> tuple[int, ...]:
    """Return the pattern of equal indices, independent of the order of and within the pairs."""
    patterns = []
    for choice in product(*[((a, b), (b, a)) for a, b in pairs]):
        for arranged in (choice, choice[::-1]):
            names: dict[int, int] = {}
            flat = [token for pair in arranged for token in pair]
            patterns.append(tuple(names.setdefault(token, len(names)) for token in flat))
    return min(patterns)


def _name(pair: Pair) -> str:
    return f"{min(pair)},{max(pair)}"


def _subscripts(text: str) -> str:
    """Write V[0,1] as V_{01}, and with a comma if a token is 10 or more."""

    def written(found: re.Match[str]) -> str:
        pairs = re.sub(r"\b(\d),(\d)\b", r"\1\2", found[1])
        return f"_{{{pairs.replace(';', ',')}}}"

    return re.sub(r"\[(\d+,\d+(?:;\d+,\d+)?)\]", written, text)
