"""The documentation names everything public, and every figure and link in it exists."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType

import pytest
from sphinx.util.inventory import InventoryFile

import shaped_attention
import shaped_attention.figures.plots
import shaped_attention.lazy
import shaped_attention.sphere
import shaped_attention.sphere.theory
import shaped_attention.statistics.stopping
import shaped_attention.sweep
import shaped_attention.torch_models.scores
import symbolic
from docs import _figures, _inventories, _layers, _pages, _parts
from shaped_attention.architectures.families import FAMILIES
from shaped_attention.commands.gallery import GALLERY
from tests.test_command_options import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FIGURES = ROOT / "figures"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_generated" not in path.parts)
MODULES = (
    shaped_attention,
    shaped_attention.figures.plots,
    shaped_attention.lazy,
    shaped_attention.torch_models.scores,
    shaped_attention.sphere,
    shaped_attention.sphere.theory,
    shaped_attention.statistics.stopping,
    shaped_attention.sweep,
    symbolic,
)

_DIRECTIVE = re.compile(r"^\.\. (currentmodule|auto(?:class|function|data)):: ([\w.]+)", re.M)
_IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)|^```\{(?:image|figure)\} (\S+)", re.M)
_LINK = re.compile(r"(?<![!\\])\[[^\]]*(?<!\\)\]\(([^)#\s]+)")


def documented() -> list[object]:
    """The objects that the reference pages describe, as often as they do."""
    modules = {module.__name__: module for module in MODULES}
    found = []
    for page in sorted((DOCS / "reference").glob("*.md")):
        module = None
        for kind, name in _DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            if kind == "currentmodule":
                module = modules[name]
            else:
                found.append((module.__name__, name))
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_reference(module):
    """Under its module, or, for what `shaped_attention` hands on, under that where it lives."""
    pages = documented()
    described = {
        id(getattr(other, name))
        for other in MODULES
        for where, name in pages
        if where == other.__name__ and "." not in name
    }
    named = {name for where, name in pages if where == module.__name__}
    missing = [
        name
        for name in module.__all__
        if name not in named
        and id(getattr(module, name)) not in described
        and not isinstance(getattr(module, name), ModuleType)
    ]
    assert missing == []


def test_nothing_is_described_twice():
    pages = documented()
    assert sorted(pages) == sorted(set(pages))


def test_every_command_is_in_the_reference():
    """The page of commands has the help text of each, as the command prints it."""
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    for program, command in _pages.PROGRAMS.items():
        for name in command.commands:
            assert f"## `{program} {name}`" in text
    for words, command in COMMANDS.items():
        _, found, section = text.partition(f"## `shaped-attention {' '.join(words)}`\n")
        assert found
        section = section.partition("\n## ")[0]
        assert all(
            option.opts[0] in section for option in command.params if option.opts[0][0] == "-"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_figures_and_links_of_a_page_exist(page):
    text = re.sub(r"^```(?!\{).*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for image in (first or second for first, second in _IMAGE.findall(text)):
        if not image.startswith("http"):
            assert (page.parent / image).exists(), image
    for link in _LINK.findall(text):
        if not link.startswith(("http", "mailto:", "_generated")):
            assert (page.parent / link).exists(), link


def test_every_figure_has_a_command_and_every_command_its_figures():
    """Each as PNG and SVG; nothing else is in the folder."""
    made = [figure for entry in GALLERY.values() for figure in entry.figures]
    assert len(made) == len(set(made))
    expected = {f"{figure}{suffix}" for figure in made for suffix in (".png", ".svg")}
    assert {path.name for path in FIGURES.iterdir()} == expected


def test_gallery_page_has_every_figure():
    """Each with one sentence about it, and the commands that make it."""
    page = _pages.gallery("figures")
    for name, entry in GALLERY.items():
        heading = name.replace(" ", "-")
        small = f'[<img src="figures/{entry.figures[0]}.png" width="200" alt="{name}">](#{heading})'
        assert page.index(small) < page.index(f"## {name}\n")
        assert re.fullmatch(r"[^\n]+[.?]", _pages.about(name)), name
        assert all(f"(figures/{figure}.png)" in page for figure in entry.figures)
        assert all(
            f"\nshaped-attention {command[0]} " in f"{page} "
            or f"\nshaped-attention {command[0]}\n" in page
            for command in entry.commands
        )


@pytest.mark.parametrize("name", ["gallery.md", "reference/commands.md", "supported-models.md"])
def test_the_parts_in_the_repository_are_those_made_now(name):
    """`PYTHONPATH=. python docs/_parts.py` writes them; tests of the ledger compare its pages."""
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == _parts.with_part(page, _parts.PAGES[name]())
    for link in re.findall(r"\]\((\.\./figures/[^)]+)\)", page):
        assert (DOCS / link).exists()


def test_every_family_and_every_shipped_configuration_is_in_the_table():
    page = (DOCS / "supported-models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    assert rows[1:] == sorted(FAMILIES)  # below the heading
    assert all(f"`{name}`" in page for name in shaped_attention.shipped_configurations())


TASKS = {
    "do my activations grow": "faq.md#do-my-activations-grow-with-depth",
    "does my config collapse": "faq.md#does-my-configuration-collapse",
    "an SDE with my gamma(t)": "how-to/blocks.md#parameters-that-depend-on-depth",
    "a sweep on a cluster": "how-to/batch-runs.md#run-a-sweep-on-a-slurm-or-pbs-cluster",
    "add a block": "how-to/blocks.md#a-block-of-your-own",
}
_TARGET = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


def targets(page: Path) -> set[str]:
    """Where the links of a page lead, as paths in docs/ with their anchors."""
    found = set()
    for link in _TARGET.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" not in link and path:
            to = os.path.relpath(page.parent / path, DOCS)
            found.add(f"{to}#{anchor}" if anchor else to)
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the repository's view and Sphinx make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_within_two_clicks_of_the_index(task):
    """The first click may lead to the page, the second to its section, which exists."""
    path, _, anchor = TASKS[task].partition("#")
    first = targets(DOCS / "index.md")
    pages = {link.partition("#")[0] for link in first if link.endswith(".md") or ".md#" in link}
    second = set().union(*(targets(DOCS / page) for page in pages if (DOCS / page).exists()))
    assert TASKS[task] in first | second
    assert anchor in anchors(DOCS / path)
    assert "how-to/blocks.md#no-such-section" not in first | second


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_to_sections_lead_to_headings(page):
    """In the repository's view as well, where nothing reports an anchor that does not exist."""
    for link in targets(page):
        path, _, anchor = link.partition("#")
        if anchor and path.endswith(".md") and "_generated" not in path:
            assert anchor in anchors(DOCS / path), link


def test_links_to_files_above_the_pages_lead_to_their_copies():
    page = "[a](../../CONTRIBUTING.md#set-up), [b](../notebooks/07-own-block.ipynb), [c](limits.md)"
    assert _pages.links_to_copies(page, "../") == (
        "[a](../_generated/contributing.md#set-up), "
        "[b](../_generated/notebooks/07-own-block.ipynb), [c](limits.md)"
    )


@pytest.mark.parametrize("package", _layers.PACKAGES)
def test_the_pictures_in_the_repository_are_those_drawn_now(package):
    """`PYTHONPATH=. python docs/_parts.py pictures` draws them."""
    committed = (DOCS / "_static" / f"architecture-{package}.svg").read_text(encoding="utf-8")
    said = _figures.words(committed)
    assert said == _figures.words(_figures.as_svg(package).decode())
    names = [layer.name for layer in _layers.table() if layer.package == package]
    assert all(any(line.startswith(f"{name}   (") for line in said) for name in names)
    assert said != _figures.words(committed.replace("modules", "files", 1))


_INCLUDE = re.compile(r"^ *(?:```|:::|\.\. )\{?(?:include|literalinclude)\b|\{include\}", re.M)


def test_pages_are_complete_in_the_repository():
    """No page includes another file or shows an image made when the site is built."""
    for bare in (
        "```{include} _generated/ledger.md\n```",
        ".. literalinclude:: x",
        ":::{include} x",
    ):
        assert _INCLUDE.search(bare), bare
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not _INCLUDE.search(text), page.name
        images = (first or second for first, second in _IMAGE.findall(text))
        assert not [image for image in images if "_generated" in image], page.name


def test_every_link_has_a_text():
    """Pages are read in the repository too, where nothing fills in a missing text."""
    empty = re.compile(r"(?<!!)\[\]\(")
    assert empty.search("see [](limits.md)")
    assert [path.name for path in PAGES if empty.search(path.read_text(encoding="utf-8"))] == []


def test_links_to_other_projects_need_no_network(tmp_path):
    """Each inventory is read as Sphinx reads it, and has classes that exist, by all their names."""
    mapping = _inventories.write_all(tmp_path)
    assert set(mapping) == {"numpy", "torch", "xarray"}
    for address, path in mapping.values():
        with open(path, "rb") as stream:
            found = dict(InventoryFile.load(stream, address, posixpath.join))["py:class"]
        for name, item in found.items():
            public = _inventories.OTHER_NAMES.get(name, name)
            assert resolve_name(name) is resolve_name(public), name
            assert str(item.uri).startswith(address)
            assert str(item.uri).endswith(f"#{public}")
            assert public not in found or str(item.uri) == str(found[public].uri)


def test_executed_notebooks_come_first(tmp_path):
    """A notebook with outputs is taken where `make notebooks` left some."""
    for folder, text in (("notebooks", "plain"), ("build/notebooks", "executed")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.ipynb").write_text(text)
    (copied,) = _pages.copy_notebooks(tmp_path, tmp_path / "copies")
    assert copied.read_text() == "executed"
    (tmp_path / "build/notebooks/1.ipynb").unlink()
    (copied,) = _pages.copy_notebooks(tmp_path, tmp_path / "copies")
    assert copied.read_text() == "plain"
