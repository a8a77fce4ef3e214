"""Activations of a user, named as "module:function" in tests."""

from __future__ import annotations

from typing import Any

from shaped_attention.numerics.primitives import (
    exp,
    row_sums,
    sqrt,
)


def swish(x: Any) -> Any:
    """SiLU with a parameter, and a number over a matrix."""
    return x * (1.0 / (1.0 + exp(-1.7 * x)))


def softsign(x: Any) -> Any:
    """A bounded function made of several operations."""
    return x / sqrt(1.0 + x * x)


def bump(x: Any) -> Any:
    """An even function: its slope at 0 vanishes."""
    return exp(-0.5 * (x * x))


def across(x: Any) -> Any:
    """A function of a whole row."""
    return x * row_sums(x)
