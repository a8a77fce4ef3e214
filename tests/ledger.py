"""Entries of the ledger, for negative controls: does a wrong formula turn the verdict?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from symbolic.claims.ledger import Claim, Verdict, claims, judge


def named(key: str) -> Claim:
    return next(claim for claim in claims() if claim.key == key)


def verdict(key: str) -> Verdict:
    return judge(named(key)).finding.verdict


def turned(key: str) -> bool:
    """Return whether the verdict has changed, or the correction fails."""
    try:
        return judge(named(key)).changed
    except ArithmeticError:
        return True


Wrong = tuple[ModuleType, str, Any, tuple[str, ...]]
"""A module, the name of a formula in it, a wrong formula, and the claims that it turns."""


def wrong_formulas_turn_verdicts(table: Sequence[Wrong]) -> Callable[..., None]:
    """Return the negative control: each of these verdicts depends on the formula named."""

    @pytest.mark.parametrize(
        ("module", "name", "wrong", "keys"), table, ids=[name for _, name, _, _ in table]
    )
    def test(
        module: ModuleType, name: str, wrong: Any, keys: tuple[str, ...],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(module, name, wrong)
        for key in keys:
            assert turned(key), key

    return test
