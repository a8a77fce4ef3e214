"""The reference names everything public; what pages name exists."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import shaped_attention
import shaped_attention.figures.plots
import shaped_attention.lazy
import shaped_attention.sphere
import shaped_attention.sphere.theory
import shaped_attention.statistics.stopping
import shaped_attention.sweep
import shaped_attention.torch_models.scores
import symbolic

ROOT = Path(__file__).resolve().parent.parent
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


def documented() -> list[tuple[str, str]]:
    """The objects that the reference pages describe, by module and name."""
    directive = re.compile(r"^\.\. (currentmodule|auto(?:class|function|data)):: ([\w.]+)", re.M)
    found = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        module = ""
        for kind, name in directive.findall(page.read_text(encoding="utf-8")):
            if kind == "currentmodule":
                module = name
            else:
                found.append((module, name))
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


def test_tests_named_on_pages_exist():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"`(tests/\w+\.py)(?:::(\w+))?`", text))
    assert len(named) > 20
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file, _ in named}
    assert [
        pair for pair in sorted(named) if pair[1] and f"\ndef {pair[1]}(" not in sources[pair[0]]
    ] == []


def test_links_of_the_readme_lead_to_files():
    """Sphinx checks those of the other pages."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = set(re.findall(r"\]\((?!http)([^)#\s]+)", text))
    assert len(links) > 10
    assert [link for link in sorted(links) if not (ROOT / link).exists()] == []
