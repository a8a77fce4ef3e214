"""The layers of the package: the table of `architecture.md`, and the imports in the source.

A module may import from its own layer and from those below it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shaped_attention", "symbolic")


@dataclass(frozen=True)
class Layer:
    """One row of a table: its package, its name, its modules, and what it is for."""

    package: str
    name: str
    modules: tuple[str, ...]
    purpose: str


def read_layers(text: str) -> list[Layer]:
    """Layers of the tables below the headings that name a package, lowest layer first.

    The highest layer is the first in the table. `commands` in the table of `shaped_attention` is
    `shaped_attention.commands`, with all that is in the folder; the package has its own name.
    """
    layers: list[Layer] = []
    package = ""
    for line in text.splitlines():
        if line.startswith("#"):
            names = [name for name in PACKAGES if f"`{name}`" in line]
            package = names[0] if names else ""
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not package or not line.startswith("|") or len(cells) != 3 or "`" not in cells[1]:
            continue
        modules = tuple(
            name if name == package else f"{package}.{name}"
            for name in re.findall(r"`([\w.]+)`", cells[1])
        )
        layers.append(Layer(package, cells[0], modules, cells[2]))
    return layers[::-1]


def table(page: Path = ROOT / "docs" / "architecture.md") -> list[Layer]:
    """The layers that the architecture page states, with the modules of their folders."""
    known = source_modules()
    return [
        replace(layer, modules=tuple(found for name in layer.modules for found in _in(name, known)))
        for layer in read_layers(page.read_text(encoding="utf-8"))
    ]


def _in(name: str, known: Iterable[str]) -> list[str]:
    """A module, or a folder of modules and all that it holds, but not a whole package."""
    below = [module for module in known if module.startswith(f"{name}.")]
    return [name, *(below if name not in PACKAGES else ())]


def source_modules(root: Path = ROOT) -> dict[str, Path]:
    """Every module of the packages and its file."""
    modules = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            modules[".".join(part for part in parts if part != "__init__")] = path
    return modules


def _statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements, in functions and under `TYPE_CHECKING` too."""
    return (child for child in ast.walk(node) if isinstance(child, ast.Import | ast.ImportFrom))


def imports_of(source: str, module: str, known: set[str], *, is_package: bool = False) -> set[str]:
    """Those of the `known` modules that a module's source imports."""
    found = set()
    for statement in _statements(ast.parse(source)):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names} & known
            continue
        base = statement.module or ""
        if statement.level:
            above = module.split(".")[: None if is_package else -1]
            start = above[: len(above) - statement.level + 1]
            base = ".".join([*start, *([base] if base else [])])
        for alias in statement.names:
            full = f"{base}.{alias.name}"
            found |= {full if full in known else base} & known
    return found - {module}


def _stub_or_source(path: Path) -> Path:
    stub = path.with_suffix(".pyi")
    return stub if stub.exists() else path


def all_imports(root: Path = ROOT) -> dict[str, set[str]]:
    """For each module of the packages, those that it imports."""
    modules = source_modules(root)
    return {
        name: imports_of(
            # Public names that are imported on first use are stated in a stub.
            _stub_or_source(path).read_text(encoding="utf-8"),
            name,
            set(modules),
            is_package=path.name == "__init__.py",
        )
        for name, path in modules.items()
    }


def faults(layers: list[Layer], imports: dict[str, set[str]]) -> list[str]:
    """What is wrong with a table: one sentence for each module or import, none if it is true."""
    listed = [module for layer in layers for module in layer.modules]
    rank = {module: i for i, layer in enumerate(layers) for module in layer.modules}
    package = {module: layer.package for layer in layers for module in layer.modules}
    name = {module: layer.name for layer in layers for module in layer.modules}
    found = [f"{module} is in no layer" for module in sorted(imports.keys() - rank.keys())]
    found += [
        f"{module} is listed, but there is no such module" for module in rank.keys() - imports
    ]
    found += [f"{module} is listed twice" for module in rank if listed.count(module) > 1]
    for module, others in imports.items():
        for other in sorted(others):
            if module not in rank or other not in rank:
                continue
            if package[module] != package[other]:
                found.append(f"{module} imports {other} of another package")
            elif rank[other] > rank[module]:
                found.append(f"{module} ({name[module]}) imports {other} ({name[other]}) above it")
    return found
