"""Derived coefficients as functions of arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import import_module
from math import inf, prod
from typing import Any

from sympy import Expr, lambdify
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, vech, vech_pairs


def array_function(
    coefficient: DomainMatrix, algebra: Algebra, parameters: Mapping[str, float], library: str
) -> Callable[[Any], Any]:
    """A function V (..., m, m) -> coefficient (..., rows, columns).

    With numbers for the parameters every entry is a combination of the same few monomials in V (and
    in the functions of V that are generators), so that all entries are one matrix product.

    Parameters
    ----------
    coefficient
        A matrix over the algebra's ring.
    parameters
        A number for each parameter of the algebra, by name.
    library
        "numpy" or "torch"; imported on demand, since deriving needs sympy alone.

    Raises
    ------
    ValueError
        If a parameter is left without a number, or a name is not a parameter.
    """
    names = [symbol.name for symbol in algebra.parameters]
    if set(names) != set(parameters):
        raise ValueError(
            f"parameters={sorted(parameters)}: exactly the names {sorted(names)} are needed"
        )
    module = import_module(library)
    numbers = {symbol: parameters[symbol.name] for symbol in algebra.parameters}
    of_v = algebra.v_expressions.free_symbols
    generators = algebra.coefficient_generators
    fixed = {
        i: float(generator.subs(numbers))
        for i, generator in enumerate(generators)
        if generator.free_symbols and not generator.free_symbols & of_v
    }
    values = {
        i: _value(generator, algebra, module)
        for i, generator in enumerate(generators)
        if generator.free_symbols & of_v
    }
    entries = [entry for row in coefficient.to_list() for entry in row]
    weights: dict[tuple[tuple[int, int], ...], list[float]] = defaultdict(
        lambda: [0.0] * len(entries)
    )
    for position, entry in enumerate(entries):
        for exponents, rational in entry.items():
            monomial = tuple((i, e) for i, e in enumerate(exponents) if e and i not in fixed)
            scale = prod(fixed[i] ** exponents[i] for i in fixed)
            weights[monomial][position] += float(rational) * scale
    shape = coefficient.shape
    used = sorted({i for monomial in weights for i, _ in monomial})

    def function(covariance: Any) -> Any:
        lower = [covariance[..., a, b] for a, b in vech_pairs(algebra.tokens)]
        one = module.ones_like(lower[0])
        numbers = {i: values[i](*lower) for i in used}
        monomials = [one * prod(numbers[i] ** e for i, e in monomial) for monomial in weights]
        if not monomials:
            return module.stack([0 * one] * len(entries), -1).reshape(*one.shape, *shape)
        matrix = module.asarray(list(weights.values()), dtype=covariance.dtype)
        return (module.stack(monomials, -1) @ matrix).reshape(*one.shape, *shape)

    return function


def _value(generator: Expr, algebra: Algebra, module: Any) -> Callable[..., Any]:
    # Rounding may push a correlation of repeated tokens just past 1.
    functions = {
        "sqrt": lambda x: module.sqrt(module.clip(x, 0, inf)),
        "acos": lambda rho: module.arccos(module.clip(rho, -1, 1)),
    }
    return lambdify(vech(algebra.v_expressions), generator, modules=[functions])
