"""Formulas for standard deviations: numbers, names, sqrt, + - * / ** and parentheses."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Mapping
from typing import Any

from shaped_attention.checks import argument_error

_OPERATIONS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip


def value_of(formula: str, names: Mapping[str, float]) -> float:
    """Return the value of a formula; raise ValueError unless it is a positive finite number."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=name) if name in names:
                return float(names[name])
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.BinOp(left=a, op=sign, right=b) if type(sign) in _OPERATIONS:
                return float(_OPERATIONS[type(sign)](value(a), value(b)))
            case ast.Call(func=ast.Name(id="sqrt"), args=[inner], keywords=[]):
                return math.sqrt(value(inner))
        raise ValueError(f"{ast.unparse(node)} is unknown")

    try:
        number = value(ast.parse(formula, mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError) as error:
        what = f"a formula in {', '.join(names)}, sqrt, numbers, + - * / ** and parentheses"
        raise ValueError(f"{argument_error('init', what, formula)} ({error})") from None
    if not 0.0 < number < math.inf:
        raise ValueError(f"init has {formula} = {number:g}; it must be positive and finite")
    return number
