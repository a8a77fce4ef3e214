"""Tests that calls are refused, each in its sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(
    *table: tuple[Any, str], by: Callable[[Any], Any] = lambda call: call()
) -> Callable[..., None]:
    """Return a test of every call and what its ValueError says, a regular expression.

    In the place of calls there may be arguments of one function, `by`.
    """

    @pytest.mark.parametrize(("call", "message"), table)
    def test(call: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            by(call)

    return test
