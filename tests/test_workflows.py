"""The workflows of the forge have its form; that they run is not shown, and they say so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))


def only(required: list[str], **properties: object) -> dict[str, object]:
    """Schema of an object with these keys only."""
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
LIST = {"type": "array", "minItems": 1, "items": TEXT}
RIGHTS = {
    "type": "object",
    "propertyNames": {"enum": ["contents", "id-token", "pages"]},
    "additionalProperties": {"enum": ["read", "write", "none"]},
}
STEP = {
    "type": "object",
    "properties": {
        # An action by name and version: no address, no moving branch.
        "uses": {"type": "string", "pattern": r"^[\w-]+/[\w-]+@v\d+(\.\d+)*$"},
        "with": {"type": "object", "additionalProperties": TEXT | {"type": ["string", "integer"]}},
        "run": TEXT,
    },
    "additionalProperties": False,
    "oneOf": [{"required": ["uses"]}, {"required": ["run"]}],
    "dependentRequired": {"with": ["uses"]},
}
JOB = only(
    ["runs-on", "timeout-minutes", "steps"],
    **{
        "runs-on": TEXT,
        "timeout-minutes": {"type": "integer", "minimum": 1, "maximum": 360},
        "needs": TEXT,
        "if": TEXT,
        "environment": TEXT,
        "permissions": RIGHTS,
        "strategy": only(
            ["matrix"],
            **{
                "fail-fast": {"type": "boolean"},
                "matrix": {"type": "object", "minProperties": 1, "additionalProperties": LIST},
            },
        ),
        "steps": {"type": "array", "minItems": 1, "items": STEP},
    },
)
BRANCHES = {"type": ["object", "null"], "properties": {"branches": LIST, "tags": LIST}}
BRANCHES["additionalProperties"] = False
SCHEMA = only(
    ["name", "on", "permissions", "jobs"],
    name=TEXT,
    on=only(
        [],
        push=BRANCHES,
        pull_request=BRANCHES,
        workflow_dispatch={"type": "null"},
        schedule={"type": "array", "items": only(["cron"], cron=TEXT)},
    ),
    permissions=RIGHTS,
    concurrency=only(["group"], **{"group": TEXT, "cancel-in-progress": {"type": "boolean"}}),
    jobs={"type": "object", "minProperties": 1, "additionalProperties": JOB},
)


def read(text: str) -> dict[str, object]:
    """A workflow, if it has the form; what refers to something refers to what is there."""
    values = yaml.safe_load(text)
    # YAML 1.1 reads the key `on` as a truth value.
    values = {"on" if key is True else key: value for key, value in values.items()}
    jsonschema.validate(values, SCHEMA)
    for name, job in values["jobs"].items():
        if job.get("needs", name) not in values["jobs"] or job.get("needs") == name:
            raise jsonschema.ValidationError(f"{name} needs a job that is not there")
        axes = set(job.get("strategy", {}).get("matrix", {}))
        used = set(re.findall(r"\$\{\{ *matrix\.(\w+) *\}\}", yaml.safe_dump(job)))
        if used != axes:
            raise jsonschema.ValidationError(f"{name} uses {used} of the matrix {axes}")
    return values


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_workflow_has_the_form(file):
    """It names no address, stores no secret, and says that it has not run."""
    text = file.read_text()
    assert read(text)["name"] == file.stem
    assert text.startswith("# Not yet run")
    assert "://" not in text
    assert "secrets." not in text


def test_the_workflows_are_those_of_a_release_and_of_every_system():
    assert [file.stem for file in FILES] == ["docs", "nightly", "release", "tests"]
    quick = read((FOLDER / "tests.yml").read_text())["jobs"]["quick"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in quick["os"]} == {"ubuntu", "macos", "windows"}
    lowest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert f">={quick['python'][0]}" == lowest
    assert quick["python"] == ["3.11", "3.12", "3.13", "3.14"]


def test_targets_that_workflows_make_are_there():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = set()
    for file in FILES:
        made |= set(re.findall(r"\bmake ([\w-]+)", file.read_text()))
        for job in read(file.read_text())["jobs"].values():
            made |= set(job.get("strategy", {}).get("matrix", {}).get("target", ()))
    assert {"validate", "mutants", "benchmark", "release", "docs"} <= made <= targets


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    runs-on: ubuntu-latest\n", ""),
        ("timeout-minutes: 20", "timeout-minutes: long"),
        ("timeout-minutes: 20", "timeout: 20"),
        ("uses: actions/checkout@v4", "uses: actions/checkout"),
        ("uses: actions/checkout@v4", "uses: actions/checkout@main"),
        ("uses: actions/checkout@v4", "uses: somewhere.org/actions/checkout@v4"),
        ("uses: actions/checkout@v4", "uses: actions/checkout@v4\n        run: make"),
        ("uses: actions/checkout@v4", "name: checkout"),
        ("permissions:\n  contents: read\n", ""),
        ("contents: read", "contents: all"),
        ("matrix.python }}", "matrix.version }}"),
        ("    runs-on: ${{ matrix.os }}\n", "    runs-on: ubuntu-latest\n"),
        ("  pull_request:\n", "  pull-request:\n"),
        ("  style:\n", "  style:\n    needs: nobody\n"),
    ],
)
def test_a_malformed_workflow_is_refused(old, new):
    text = (FOLDER / "tests.yml").read_text()
    assert old in text
    with pytest.raises(jsonschema.ValidationError):
        read(text.replace(old, new, 1))


def test_a_form_of_an_issue_has_its_parts():
    """Each has a name, a sentence about it, and text."""
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
    assert [form.stem for form in forms] == ["bug", "question", "wrong-law"]
    for form in forms:
        _, head, body = form.read_text().split("---\n", 2)
        assert set(yaml.safe_load(head)) == {"name", "about", "title", "labels"}
        assert len(re.findall(r"^\*\*", body, re.MULTILINE)) >= 2
