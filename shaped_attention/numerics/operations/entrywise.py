"""Sums, products and functions of single entries, of parameters and of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from shaped_attention.compiler import functions
from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Real
from shaped_attention.libraries import torch
from shaped_attention.numerics.operations.registry import (
    E,
    M,
    bounded,
    on_entries,
    operation,
    primitive,
    tensor,
)
from shaped_attention.numerics.scalars import AnyNumber


@primitive(
    trace=on_entries("sqrt"), number=np.sqrt, of_float=math.sqrt,
)  # fmt: skip
def sqrt(x: E) -> E:
    """Return the square root of a number, a parameter, or every entry of a matrix."""
    return tensor(x).sqrt()


@primitive(trace=on_entries("exp"), number=np.exp)
def exp(x: E) -> E:
    """Return the exponential of a number, a parameter, or every entry."""
    return tensor(x).exp()


@primitive(trace=on_entries("tanh"), number=np.tanh)
def tanh(x: E) -> E:
    """Return the hyperbolic tangent of a number, a parameter, or every entry."""
    return tensor(x).tanh()


@primitive(
    trace=on_entries("normal_cdf"), number=special.ndtr,
)  # fmt: skip
def normal_cdf(x: E) -> E:
    """Return the standard normal distribution function of a number, a parameter, or every entry."""
    return tensor(0.5 * torch.erfc(tensor(x) * (-(0.5**0.5))))


@primitive(trace=on_entries("sigmoid"), number=special.expit)
def sigmoid(x: E) -> E:
    """Return 1 / (1 + exp(-x)) of a number, a parameter, or every entry."""
    return tensor(torch.sigmoid(tensor(x)))


@primitive(
    trace=on_entries("softplus"), number=lambda x: np.logaddexp(0.0, x),
)  # fmt: skip
def softplus(x: E) -> E:
    """Return log(1 + exp(x)) of a number, a parameter, or every entry."""
    return tensor(torch.logaddexp(tensor(x), torch.zeros_like(tensor(x))))


@primitive(trace=on_entries("leaky"))
def leaky(x: M, plus: AnyNumber, minus: AnyNumber) -> M:
    """Return plus x for x > 0 and minus x otherwise, entry by entry."""
    entries = tensor(x)
    return plus * entries.clamp(min=0.0) + minus * entries.clamp(max=0.0)


@primitive(trace=on_entries("sign"))
def sign(x: M) -> M:
    """Return 1, 0 or -1 for every entry; its derivative counts as 0."""
    return tensor(torch.sign(tensor(x)))


def _leaky(e: Emitter, scalars: Any, x: Real) -> Real:
    return e.fmul(e.select(e.compare("ogt", x, 0.0), *scalars), x)


def _of(function: Callable[[Emitter, Real], Real]) -> Callable[..., Real]:
    """Return the emission of a function without scalars."""
    return lambda e, scalars, x: function(e, x)


for _kind, _entry, _growth in (
    ("reciprocal", _of(lambda e, x: e.fdiv(1.0, x)), -1.0),
    ("sign", _of(lambda e, x: e.sign(x)), 0.0),
    ("sqrt", _of(lambda e, x: e.sqrt(x)), 0.5),
    ("exp", _of(functions.whole_exp), lambda orders: math.inf if orders[0] > 0.0 else 0.0),
    ("tanh", _of(functions.tanh), bounded),
    ("normal_cdf", _of(functions.normal_cdf), 0.0),
    ("sigmoid", _of(functions.logistic), 0.0),
    ("softplus", _of(functions.softplus), lambda orders: max(0.0, orders[0])),
    ("leaky", _leaky, 1.0),
):
    operation(_kind, entry=_entry, growth=_growth)


def _combine(e: Emitter, scalars: Sequence[Real], x: Real, y: Real) -> Real:
    s, t = scalars
    return e.fma(t, y, e.fmul(s, x))


operation("combine", entry=_combine, growth=max, in_place=True)
operation("times", entry=lambda e, _, x, y: e.fmul(x, y), growth=sum)
operation(
    "over", entry=lambda e, _, x, y: e.fdiv(x, y),
    growth=lambda orders: orders[0] - orders[1],
)  # fmt: skip
operation(
    "scale", entry=lambda e, scalars, x: e.fmul(scalars[0], x), growth=1.0,
    in_place=True,
)  # fmt: skip
operation(
    "shift", entry=lambda e, scalars, x: e.fma(scalars[0], x, scalars[1]),
    growth=lambda orders: max(orders[0], 0.0),
)  # fmt: skip
