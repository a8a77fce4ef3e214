"""Notebooks: text and notebook agree; outputs are complete; `make notebooks` runs them."""

from __future__ import annotations

import ast
import base64
import re
from io import BytesIO
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from PIL import Image

from docs import _outputs
from tests.test_docs import MODULES

FOLDER = Path(__file__).parent.parent / "notebooks"
TEXTS = sorted(FOLDER.glob("*.md"))


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def test_there_are_the_ten():
    assert [path.name[:2] for path in TEXTS] == [f"{k:02}" for k in range(1, 11)]
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
    assert path.stat().st_size < 450_000


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_it_says_what_it_shows_and_what_to_try_next(text):
    written = jupytext.read(text).cells
    assert written[0].source.startswith("# ")
    assert "What to try next" in written[-1].source
    assert any("SHAPED_ATTENTION_SIZE" in cell.source for cell in written)


PUBLIC = {module.__name__: {*module.__all__} for module in MODULES} | {
    "shaped_attention.figures.paper": None,
    "shaped_attention.numerics.primitives": None,
    "shaped_attention.sweep.plots": None,
    "symbolic.claims": None,
}
"""Public names by module; None: modules in this folder are documented as a whole."""


def private_imports(source):
    """What a notebook imports from this project that no page of the reference describes."""
    tree = ast.parse(re.sub(r"^%.*", "", source, flags=re.M))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            named = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            named = [(str(node.module), alias.name) for alias in node.names]
        else:
            continue
        for module, name in named:
            path = f"{module}.{name}."
            whole = any(path.startswith(f"{x}.") for x, names in PUBLIC.items() if not names)
            known = whole or (module in PUBLIC and (name is None or name in PUBLIC[module]))
            if module.split(".")[0] in ("shaped_attention", "symbolic") and not known:
                yield module, name


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_it_imports_only_what_the_reference_describes(text):
    code = [cell.source for cell in jupytext.read(text).cells if cell.cell_type == "code"]
    assert [found for source in code for found in private_imports(source)] == []


def test_private_imports_are_found():
    """Negative control."""
    source = "%matplotlib inline\nfrom shaped_attention.figures.panels import COLORS, styled"
    assert [name for _, name in private_imports(source)] == ["COLORS", "styled"]
    assert list(private_imports("import symbolic.limit")) == [("symbolic.limit", None)]
    assert list(private_imports("from symbolic import derive\nimport numpy")) == []
    for module in PUBLIC:
        pages = (FOLDER.parent / "docs" / "reference").glob("*.md")
        assert any(module in page.read_text(encoding="utf-8") for page in pages), module


def test_the_notebook_for_hosted_services_installs_the_package_of_the_citation():
    """In its first cell of code, if it is absent, and before anything of it is imported."""
    written = jupytext.read(FOLDER / "09-in-the-browser.md").cells
    first = next(cell.source for cell in written if cell.cell_type == "code")
    citation = (FOLDER.parent / "CITATION.cff").read_text(encoding="utf-8")
    (address,) = re.findall(r'^repository-code: "(.+)"$', citation, flags=re.M)
    assert f"git+{address}" in first
    assert 'find_spec("shaped_attention") is None' in first
    assert "import shaped_attention" not in first


def test_the_check_of_outputs_needs_every_notebook_and_compares_its_words(tmp_path):
    """Numbers may differ; words may not, and a notebook that has not been run fails."""

    def write(folder, name, text):
        place = tmp_path / folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        output = new_output("stream", name="stdout", text=text)
        nbformat.write(new_notebook(cells=[new_code_cell("x", outputs=[output])]), place)

    def check():
        _outputs.copy_outputs(tmp_path, check=True)

    write("notebooks", "one.ipynb", "rate 0.5")
    write("notebooks", "two.ipynb", "rate 0.5")
    with pytest.raises(SystemExit, match=r"^one.ipynb, two.ipynb: not in build/notebooks; "):
        check()
    write("build/notebooks", "one.ipynb", "rate 0.7")
    with pytest.raises(SystemExit, match=r"^two.ipynb: not in build/notebooks; "):
        check()
    write("build/notebooks", "two.ipynb", "rate 0.7")
    check()
    write("build/notebooks", "two.ipynb", "no rate")
    with pytest.raises(SystemExit, match=r"^two.ipynb: outputs of another run; "):
        check()


def test_pictures_of_outputs_have_few_colours_and_a_white_background():
    drawn = BytesIO()
    Image.new("RGBA", (3, 2), (0, 0, 0, 0)).save(drawn, "PNG")
    picture = base64.b64encode(drawn.getvalue()).decode()
    output = new_output("display_data", data={"image/png": picture})
    notebook = _outputs.shown(new_notebook(cells=[new_code_cell("x", outputs=[output])]))
    found = base64.b64decode(notebook.cells[0].outputs[0].data["image/png"])
    with Image.open(BytesIO(found)) as small:
        assert small.mode == "P"
        assert small.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
