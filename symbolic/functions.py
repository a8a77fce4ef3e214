"""Derived coefficients as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from sympy import Expr, Matrix, lambdify

from symbolic.algebra import vech, vech_pairs


def numpy_function(
    coefficient: Matrix, v: Matrix, parameters: Mapping[str, float]
) -> Callable[[Any], Any]:
    """A function V (..., m, m) -> coefficient (..., rows, columns) on NumPy arrays."""
    return _function(coefficient, v, parameters, "numpy")


def torch_function(
    coefficient: Matrix, v: Matrix, parameters: Mapping[str, float]
) -> Callable[[Any], Any]:
    """A function V (..., m, m) -> coefficient (..., rows, columns) on torch tensors."""
    return _function(coefficient, v, parameters, "torch")


def _function(
    coefficient: Matrix, v: Matrix, parameters: Mapping[str, float], library: str
) -> Callable[[Any], Any]:
    arguments = vech(v)
    names = {s.name: s for s in coefficient.free_symbols if s not in arguments}
    missing = sorted(set(names) - set(parameters))
    if missing:
        raise ValueError(f"parameters={sorted(parameters)}: numbers for {missing} are needed too")
    values = {names[name]: value for name, value in parameters.items() if name in names}
    entries: list[Expr] = [entry.subs(values) for entry in coefficient]
    # Imported on demand: deriving needs sympy alone.
    module = import_module(library)
    functions = {"sqrt": module.sqrt, "acos": _clipped_arccos(module)}
    evaluate = lambdify(arguments, entries, modules=[functions, library], cse=True)
    pairs, shape = vech_pairs(v.rows), coefficient.shape

    def function(covariance: Any) -> Any:
        lower = [covariance[..., a, b] for a, b in pairs]
        flat = [value + 0 * lower[0] for value in evaluate(*lower)]
        return module.stack(flat, -1).reshape(*lower[0].shape, *shape)

    return function


def _clipped_arccos(module: Any) -> Callable[[Any], Any]:
    arccos = module.arccos
    # Rounding may push a correlation of repeated tokens just past 1.
    return lambda rho: arccos(module.clip(rho, -1, 1))
