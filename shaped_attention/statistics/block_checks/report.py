"""The table of checks of a block."""

from __future__ import annotations

from dataclasses import dataclass

PASS, FAIL, NOT_TESTED = "pass", "fail", "not tested"


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes
    ----------
    name
        What was compared.
    outcome
        "pass", "fail" or "not tested".
    detail
        What was found, or why it was not tested.
    noticed
        The size of an error that would have been noticed.
    """

    name: str
    outcome: str
    detail: str
    noticed: str = ""


@dataclass(frozen=True)
class BlockReport:
    """Result of `check_block`; printing it prints the table.

    Attributes
    ----------
    table
        The checks.
    """

    table: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != FAIL for check in self.table)

    def __str__(self) -> str:
        lines = [f"{check.outcome:<10} {check.name}: {check.detail}" for check in self.table]
        lines += [
            f"{'':<10} {check.name} would have noticed {check.noticed}"
            for check in self.table
            if check.noticed
        ]
        failed = sum(check.outcome == FAIL for check in self.table)
        return "\n".join([*lines, f"{failed} of {len(self.table)} checks failed"])
