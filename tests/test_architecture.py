"""The order of the layers that the architecture page states, against the imports in the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shaped_attention", "symbolic")


def ranks(page: str) -> dict[str, int]:
    """The height of each file or folder in the tables of the page, whose first row is the top."""
    found: dict[str, int] = {}
    for package in PACKAGES:
        section = page.split(f"## `{package}`")[1].split("\n#")[0]
        for height, row in enumerate(re.findall(r"^\|[^|]+\|([^|]*`[^|]*)\|", section, re.M)):
            for name in re.findall(r"`([\w.]+)`", row):
                found[name if name == package else f"{package}.{name}"] = -height
    return found


def faults(order: dict[str, int]) -> list[str]:
    """Imports, in functions too, of a higher layer or of the other package; files in no layer."""

    def rank(module: str) -> int | None:
        return order.get(module, order.get(".".join(module.split(".")[:2])))

    found = []
    for file in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        if (here := rank(module)) is None:
            found.append(f"{module} is in no layer")
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                above = name.split(".")[0] in PACKAGES and (rank(name) or 0) > here
                if above or name.split(".")[0] in {*PACKAGES} - {parts[0]}:
                    found.append(f"{module} imports {name}")
    return found


def test_a_file_imports_from_its_own_layer_and_those_below():
    """With the lowest layer on top, the same check objects."""
    order = ranks((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(order) > 25
    assert faults(order) == []
    assert len(faults({name: -height for name, height in order.items()})) > 100
