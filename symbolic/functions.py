"""Derived coefficients as functions of arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import import_module
from math import inf, prod
from typing import Any

from sympy import Expr, Rational, acos, atan2, fraction, lambdify, sqrt
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, vech, vech_pairs


def array_function(
    coefficient: DomainMatrix, algebra: Algebra, parameters: Mapping[str, float], library: str
) -> Callable[[Any], Any]:
    """Return a function V (..., m, m) -> coefficient (..., rows, columns).

    With numbers for the parameters, every entry is a combination of the same few monomials in V
    (and in the functions of V that are generators). One matrix product gives all entries.

    Parameters
    ----------
    coefficient
        A matrix over the algebra's ring.
    parameters
        A number for each parameter of the algebra, by name.
    library
        "numpy" or "torch"; imported on demand, since the derivation needs only sympy.

    Raises
    ------
    ValueError
        If a parameter has no number or requires gradients, a name is not a parameter, or the
        coefficient was derived at one V and so is not a function of V. The returned function
        raises ValueError if V is not an array of floating-point matrices (..., m, m).
    """
    if not algebra.is_symbolic:
        raise ValueError("at: coefficients derived at one V are numbers, not functions of V")
    names = [symbol.name for symbol in algebra.parameters]
    if set(names) != set(parameters):
        raise ValueError(f"parameters must be exactly {sorted(names)}; got {sorted(parameters)}")
    for name, value in parameters.items():
        if getattr(value, "requires_grad", False):
            raise ValueError(
                f"{name} must be a number, because gradients are taken only in V; got {value!r}"
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
        size = algebra.tokens
        if tuple(covariance.shape[-2:]) != (size, size):
            raise ValueError(
                f"V must have shape (..., {size}, {size}); got {tuple(covariance.shape)}"
            )
        if "float" not in str(covariance.dtype):
            raise ValueError(f"V must have floating-point entries; got {covariance.dtype}")
        lower = [covariance[..., a, b] for a, b in vech_pairs(algebra.tokens)]
        one = module.ones_like(lower[0])
        numbers = {i: values[i](*lower) for i in used}
        monomials = [one * prod(numbers[i] ** e for i, e in monomial) for monomial in weights]
        if not monomials:
            return module.stack([0 * one] * len(entries), -1).reshape(*one.shape, *shape)
        matrix = module.asarray(
            list(weights.values()), dtype=covariance.dtype, device=covariance.device
        )
        return (module.stack(monomials, -1) @ matrix).reshape(*one.shape, *shape)

    return function


def _value(generator: Expr, algebra: Algebra, module: Any) -> Callable[..., Any]:
    # At zero variance the correlation is 0/0, where arctan2 is defined; rounding errors may make
    # the difference under a root negative.
    functions = {"sqrt": lambda x: module.sqrt(module.clip(x, 0, inf)), "atan2": module.arctan2}
    expression = generator.replace(acos, _arccos)
    # By its contents: SymPy before 1.14 does not know torch by its name.
    return lambdify(vech(algebra.v_expressions), expression, modules=[functions, vars(module)])


def _arccos(cosine: Expr) -> Expr:
    """Return arccos(x / y), y a root or 1, as the angle of the point (x, sqrt(y^2 - x^2))."""
    x, y = fraction(cosine)
    if not (y == 1 or (y.is_Pow and y.exp == Rational(1, 2))):
        return acos(cosine, evaluate=False)
    return atan2(sqrt(y**2 - x**2), x, evaluate=False)
