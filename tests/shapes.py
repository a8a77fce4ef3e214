"""Check array shapes in annotations while tests run: in the first calls of each test.

A check costs as much as a small layer. Later calls of a test repeat the shapes of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import ParamSpec, TypeVar

from beartype import beartype
from jaxtyping import config

P = ParamSpec("P")
T = TypeVar("T")

CHECKS = 1000
"""Arguments and results that are checked in one test."""

_done = count(1)


def start() -> None:
    """Check the next `CHECKS` of them."""
    global _done
    _done = count(1)
    config.update("jaxtyping_disable", False)


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with its arguments checked, unless it is local to another one."""
    if "<locals>" in function.__qualname__:
        return function
    check = beartype(function)

    @wraps(function)
    def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        if next(_done) >= CHECKS:
            config.update("jaxtyping_disable", True)
        return check(*args, **kwargs)

    return counted
