"""The ledger of claims of the notes, exact laws and architectures, judged by machine."""

from symbolic.claims.book import CLAIMS, Entry, as_latex, as_text, judge, judge_all, summary
from symbolic.claims.ledger import Claim, Finding, Verdict

__all__ = [
    "CLAIMS",
    "Claim",
    "Entry",
    "Finding",
    "Verdict",
    "as_latex",
    "as_text",
    "judge",
    "judge_all",
    "summary",
]
