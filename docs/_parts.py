"""Write the parts of committed pages that are made from the package, between two marks.

`PYTHONPATH=. python docs/_parts.py`: the judged statements in claims.md and claims-papers.md, the
figures in gallery.md, and the table in supported-models.md. Tests compare them.
"""

from __future__ import annotations

from pathlib import Path

from docs._families import supported_models
from docs._pages import gallery
from symbolic.claims.authors_page import authors_page, papers_page


def figures() -> str:
    """Return the entries of the gallery, with links that hold in the repository."""
    return gallery("../figures")


PAGES = {
    "claims.md": authors_page,
    "claims-papers.md": papers_page,
    "gallery.md": figures,
    "supported-models.md": supported_models,
}
FOLDER = Path(__file__).parent
BEGIN, END = "<!-- made by docs/_parts.py: begin -->", "<!-- made by docs/_parts.py: end -->"


def with_part(page: str, part: str) -> str:
    """Return a page with this part between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


if __name__ == "__main__":
    for name, part in PAGES.items():
        page = (FOLDER / name).read_text("utf-8")
        (FOLDER / name).write_text(with_part(page, part()), encoding="utf-8")
