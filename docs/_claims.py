"""Write the judged statements of the notes into docs/claims.md, between its two marks."""

from __future__ import annotations

from pathlib import Path

from symbolic.claims.authors_page import authors_page

PAGE = Path(__file__).parent / "claims.md"
BEGIN, END = "<!-- made by docs/_claims.py: begin -->", "<!-- made by docs/_claims.py: end -->"


def with_statements(page: str, statements: str) -> str:
    """Return a page with these statements between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{statements}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_statements(PAGE.read_text("utf-8"), authors_page()), encoding="utf-8")
