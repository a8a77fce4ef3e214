"""Write the judged statements into docs/claims.md and docs/claims-papers.md, between two marks."""

from __future__ import annotations

from pathlib import Path

from symbolic.claims.authors_page import authors_page, papers_page

PAGES = {"claims.md": authors_page, "claims-papers.md": papers_page}
FOLDER = Path(__file__).parent
BEGIN, END = "<!-- made by docs/_claims.py: begin -->", "<!-- made by docs/_claims.py: end -->"


def with_statements(page: str, statements: str) -> str:
    """Return a page with these statements between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{statements}\n{END}{after}"


if __name__ == "__main__":
    for name, statements in PAGES.items():
        page = (FOLDER / name).read_text("utf-8")
        (FOLDER / name).write_text(with_statements(page, statements()), encoding="utf-8")
