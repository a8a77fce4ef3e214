"""The ledger of claims of the notes, exact laws and architectures, judged by machine."""

from symbolic.claims.ledger import Claim, Entry, Finding, Verdict, claims, judge, select
from symbolic.claims.text import as_latex, as_text, summary

__all__ = [
    "Claim",
    "Entry",
    "Finding",
    "Verdict",
    "as_latex",
    "as_text",
    "claims",
    "judge",
    "select",
    "summary",
]
