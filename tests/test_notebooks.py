"""Notebooks: text and notebook say the same, without outputs; `make notebooks` executes them."""

from __future__ import annotations

from pathlib import Path

import jupytext
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
TEXTS = sorted(FOLDER.glob("*.md"))


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_there_are_the_seven():
    assert [path.name[:2] for path in TEXTS] == ["01", "02", "03", "04", "05", "06", "07"]
    assert sorted(FOLDER.glob("*.ipynb")) == [path.with_suffix(".ipynb") for path in TEXTS]


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_text_and_notebook_are_the_same(text):
    """Cell by cell; a notebook with a changed cell is told apart."""
    notebook = jupytext.read(text.with_suffix(".ipynb"))
    assert cells(notebook) == cells(jupytext.read(text))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    code[0].source += "\nx = 1"
    assert cells(notebook) != cells(jupytext.read(text))


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_it_says_what_it_shows_and_what_to_try_next(text):
    written = jupytext.read(text).cells
    assert written[0].source.startswith("# ")
    assert "What to try next" in written[-1].source
    assert any("SHAPED_ATTENTION_SIZE" in cell.source for cell in written)
