"""Entries of the ledger, for negative controls: does a wrong formula turn the verdict?"""

from __future__ import annotations

from symbolic.claims import CLAIMS, Claim, Verdict, judge


def named(key: str) -> Claim:
    return next(claim for claim in CLAIMS if claim.key == key)


def verdict(key: str) -> Verdict:
    return judge(named(key)).finding.verdict


def turned(key: str) -> bool:
    """Whether the verdict is another one, or the correction no longer holds."""
    try:
        return judge(named(key)).changed
    except ArithmeticError:
        return True
