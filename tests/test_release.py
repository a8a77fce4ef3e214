"""What a release states about itself: its version and date, metadata, workflows and forms."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from shaped_attention.libraries import __version__

ROOT = Path(__file__).resolve().parent.parent
PLACEHOLDER = "https://REPOSITORY/shaped_attention"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def faults(changelog: str, citation: str, version: str) -> list[str]:
    """How changelog and citation contradict a version, or each other."""
    cited = yaml.safe_load(citation)
    heading = re.search(r"^## (.*)$", changelog, re.MULTILINE)
    assert heading
    released = re.fullmatch(r"\[(.+)\]: (\d{4}-\d\d-\d\d)", heading[1])
    tests = {
        "the changelog begins with another version": (
            heading[1] == f"[Unreleased]: {version}"
            or (released is not None and released[1] == version)
        ),
        "the citation has another version": str(cited["version"]) == version,
        "the citation has another date": (
            cited.get("date-released") == (released[2] if released else None)
        ),
    }
    return [fault for fault, right in tests.items() if not right]


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
    assert cited == PLACEHOLDER
    assert {"Repository", "Issues", "Changelog", "Documentation"} == set(PROJECT["urls"])
    assert all(url.startswith(cited) for url in PROJECT["urls"].values())
    assert set(PROJECT["keywords"]) >= set(
        yaml.safe_load((ROOT / "CITATION.cff").read_text())["keywords"]
    )
