"""Notebooks: text and notebook agree; outputs are complete; `make notebooks` runs them."""

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
    """Cell by cell; a notebook with a changed cell differs."""
    notebook = jupytext.read(text.with_suffix(".ipynb"))
    assert cells(notebook) == cells(jupytext.read(text))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[0].source += "\nx = 1"
    assert cells(notebook) != cells(jupytext.read(text))


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_it_shows_the_outputs_of_one_run(text):
    """`make outputs` writes them; .ci/run compares their words with those of its own run."""
    path = text.with_suffix(".ipynb")
    code = [cell for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {
        "stream",
        "display_data",
        "execute_result",
    }
    assert all(output.get("name", "stdout") == "stdout" for output in outputs)
    if text.stem != "01-softmax-to-sde":
        assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 400_000


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_it_says_what_it_shows_and_what_to_try_next(text):
    written = jupytext.read(text).cells
    assert written[0].source.startswith("# ")
    assert "What to try next" in written[-1].source
    assert any("SHAPED_ATTENTION_SIZE" in cell.source for cell in written)
