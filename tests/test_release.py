"""What a release states about itself: its version and date, metadata, workflows and forms."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from shaped_attention.libraries import __version__
from tests.release import EXTRAS, before_tag, check_metadata, faults, lowest, placeholders

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_and_its_date_are_the_same_everywhere():
    """In the citation and the changelog, which cannot read them; an unreleased one has no date."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    citation = (ROOT / "CITATION.cff").read_text()
    assert faults(changelog, citation, __version__) == []
    assert PROJECT["dynamic"] == ["version"]


CITED = "version: 0.3.0\n"
DATED = CITED + 'date-released: "2026-12-01"\n'


@pytest.mark.parametrize(
    ("heading", "citation", "number"),
    [
        ("[Unreleased]: 0.3.0", CITED, 0),
        ("[0.3.0]: 2026-12-01", DATED, 0),
        ("[Unreleased]: 0.3.0", DATED, 1),
        ("[0.3.0]: 2026-12-01", CITED, 1),
        ("[0.3.0]: 2026-12-02", DATED, 1),
        ("[Unreleased]: 0.3.1", CITED, 1),
        ("[Unreleased]: 0.3.0", "version: 0.3.1\n", 1),
    ],
)
def test_a_contradiction_is_noticed(heading, citation, number):
    assert len(faults(f"# Changelog\n\n## {heading}\n", citation, "0.3.0")) == number


@pytest.mark.parametrize(
    ("heading", "citation", "texts", "number"),
    [
        ("[0.3.0]: 2026-12-01", DATED, "https://example.org", 0),
        ("[Unreleased]: 0.3.0", CITED, "https://example.org", 2),
        ("[0.3.0]: 2026-12-01", CITED, "https://example.org", 2),
        ("[Unreleased]: 0.3.0", DATED, "https://example.org", 2),
        ("[0.3.0]: 2026-12-01", DATED, "https://REPOSITORY/shaped_attention", 2),
        ("[0.3.0]: 2026-12-01", DATED, "write to CONTACT (see below)", 2),
    ],
)
def test_a_version_is_tagged_with_its_date_and_without_placeholders(
    heading, citation, texts, number, tmp_path
):
    """In folders that are public, hidden ones of the forge too, but not in tests and builds."""
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    (tmp_path / "CITATION.cff").write_text(citation)
    for folder in ("docs", ".github", "tests", "build", ".venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "page.md").write_text(f"A page.\n{texts}\n")
    assert len(before_tag(tmp_path, "0.3.0")) == number


def test_placeholders_are_explained_in_one_place_and_stop_a_tag():
    """Contributors read there which files have them; the section goes with the last of them."""
    found = placeholders()
    files = {line.partition(":")[0] for line in found} - {"CONTRIBUTING.md"}
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, heading, section = guide.partition("### Before the first release\n")
    assert bool(heading) == bool(found)
    named = (
        set(re.findall(r"`([A-Z_]+(?:\.\w+)?|pyproject\.toml|notebooks/[\w.-]+)`", section)) & files
    )
    assert named == files
    tag = f"v{__version__}"
    command = (sys.executable, "-m", "tests.release", "--build-only", "--tag", tag)
    if found:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"the tag {tag} must wait" in done.stderr
        assert all(f"before the tag: {line}\n" in done.stdout for line in found)


def test_each_version_of_the_changelog_groups_its_lines():
    """By what happened to a user: every line of a version is in one group, and groups in order."""
    order = ["Added", "Changed", "Deprecated", "Fixed", "Removed", "Security", "Known limits"]
    versions = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert len({entry.split("\n")[0] for entry in versions}) == len(versions) >= 2
    for entry in versions:
        groups = re.findall(r"^### (.*)$", entry, re.MULTILINE)
        assert groups == sorted(set(groups), key=order.index)
        assert "\n- " not in entry.split("\n### ")[0]


def test_links_of_the_project_lead_to_the_repository_of_the_citation():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["repository-code"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"  version = {{{__version__}}},\n  url     = {{{cited}}}\n" in readme
    assert {"Repository", "Issues", "Changelog", "Documentation"} == set(PROJECT["urls"])
    assert all(url.startswith(cited) for url in PROJECT["urls"].values())
    assert set(PROJECT["keywords"]) >= set(
        yaml.safe_load((ROOT / "CITATION.cff").read_text())["keywords"]
    )


METADATA = f"""Metadata-Version: 2.4
Name: shaped-attention
Version: {__version__}
Requires-Python: >=3.11
License-Expression: Apache-2.0
Project-URL: Repository, https://example.org/shaped_attention
Description-Content-Type: text/markdown

{"A sentence. " * 100}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"Version: {__version__}", "Version: 9.9"),
        ("Name: shaped-attention", "Name: shaped attention!"),
        (">=3.11", "three"),
        ("Apache-2.0", "MIT"),
        ("text/markdown", "text/x-rst"),
        ("A sentence. ", ""),
    ],
)
def test_wrong_metadata_are_refused(old, new):
    check_metadata(METADATA)
    with pytest.raises((AssertionError, ExceptionGroup)):
        check_metadata(METADATA.replace(old, new))


def test_the_lowest_dependencies_are_the_bounds_of_the_project():
    pins = dict(line.split("==") for line in lowest().splitlines())
    wanted = PROJECT["dependencies"] + [
        line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra]
    ]
    assert len(pins) == len(wanted) > 20
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(pins[requirement.name])


PAPER = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")


def test_the_paper_has_the_parts_of_its_form():
    """Sections, 700 to 1000 words, figures that exist, and exactly the references it cites."""
    body = PAPER.split("---\n", 2)[2]
    assert 700 <= len(body.split()) <= 1000
    sections = re.findall(r"^# (.*)$", body, re.MULTILINE)
    assert sections[:4] == ["Summary", "Statement of need", "What it does", "How it is checked"]
    figures = re.findall(r"\]\((\S+\.png)\)", body)
    assert len(figures) == 2
    assert all((ROOT / "paper" / figure).exists() for figure in figures)
    bibliography = (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8")
    assert set(re.findall(r"@([a-z]+\d{4})", body)) == set(
        re.findall(r"^@\w+\{(\w+),", bibliography, re.MULTILINE)
    )


def numbers(text: str) -> set[str]:
    """Numbers of a text that are not part of a name or of a link."""
    text = re.sub(r"\]\(\S+\)|@\w+|`[^`]*`|GPT-2", "", text).replace("{-9}", "-9")
    return set(re.findall(r"(?<![\w.^{-])\d[\d,]*(?:\.\d+)?(?!\w)", text.replace("\xa0", " ")))


def test_every_number_of_the_paper_is_shown_with_its_command():
    """In the README or the table of benchmarks; a number changed in one place only is seen."""
    pages = ("README.md", "benchmarks/README.md")
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"\d[\d,]*(?:\.\d+)?", text))
    shown = {number.rstrip(",") for number in shown}
    written = {number.rstrip(",") for number in numbers(PAPER.split("---\n", 2)[2])}
    assert {"155", "236", "138", "13.2", "12.2", "58"} <= written
    assert written <= shown, written - shown
    # Negative control: another fraction, or another time, would be seen.
    assert not numbers("13.4 % of the paths") & shown
    assert not numbers("takes 157 ns") & shown
