"""The code that determines the numbers of a sweep: this package, layer functions, and libraries.

The identity of the package is a digest of its installed sources, that of a library its version, and
that of a layer function the digests of its module and of those that this imports, unless they
belong to Python, to an installed library or to this package. Comments, docstrings, layout and the
body of ``if __name__ == "__main__":`` do not count. The kind of processor is recorded too; it may
change the last bits, and is no reason to refuse a run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from shaped_attention.checks import function_named, names_code
from shaped_attention.io.records import append_records, read_records
from shaped_attention.libraries import sources_digest, versions

_RECORDS = "code.jsonl"

_HERE = Path(__file__).resolve().parents[1]

_PACKAGES = {"site-packages", "dist-packages"}
"""Names of the folders of installed modules."""


class Code(NamedTuple):
    """Digests of modules by name, and versions by package."""

    modules: Mapping[str, str]
    versions: Mapping[str, str]


def code_of(layers: Iterable[Any], imported: bool = False) -> Code:
    """Return the code of a sweep with these layers, as its modules are on disk now.

    With `imported`, it is as this process first saw the functions that it imported.
    """
    modules = {"shaped_attention": sources_digest()}
    for name in filter(names_code, layers):
        function = function_named(name)
        modules |= _first_seen(name, function) if imported else modules_of(name, function)
    return Code(modules, {name: v for name, v in versions().items() if name != "python"})


def code_records(folder: Path) -> list[dict[str, Any]]:
    """Return the code that made the units of a store, and its accepted changes, in order.

    A record has `time`, the number of `units` finished by then, `changed` (what had changed, in
    words), `processor`, `modules` and `versions`. The list is empty if the file is gone.
    """
    return read_records(folder / _RECORDS)


def code_changes(folder: Path) -> list[dict[str, Any]]:
    """Return `time`, `units` and `changed` of the accepted changes."""
    changes = [record for record in code_records(folder) if record["changed"]]
    return [{name: record[name] for name in ("time", "units", "changed")} for record in changes]


def note_code(folder: Path, code: Code, units: int, changed: list[str]) -> None:
    """Add a record of the code to a store."""
    import llvmlite.binding  # a fifth of a second, which reading a store does not need

    now = datetime.now(UTC).isoformat(timespec="seconds")
    processor = llvmlite.binding.get_host_cpu_name()
    record = {"time": now, "units": units, "changed": changed, "processor": processor}
    append_records(folder / _RECORDS, [record | code._asdict()])


def last_code(folder: Path) -> Code | None:
    """Return the code last recorded in a store; None if the record is gone."""
    records = code_records(folder)
    return Code(records[-1]["modules"], records[-1]["versions"]) if records else None


def changes_since(before: Code | None, now: Code, layers: Iterable[Any]) -> list[str]:
    """Return the changes of the code of units that were drawn of these layers, as phrases.

    Modules of layers that came with an extension are not a change.
    """
    if before is None:
        return ["the store has no record of its code and versions"]
    counted = before.modules.keys() | code_of(layers).modules.keys()
    modules = {name: digest for name, digest in now.modules.items() if name in counted}
    return differences(before, now._replace(modules=modules))


def differences(before: Code, now: Code) -> list[str]:
    """Return the differences between two versions of the code, as phrases."""
    phrases = []
    for name in sorted({*before.modules, *now.modules}):
        old, new = before.modules.get(name), now.modules.get(name)
        if old != new:
            phrases.append(f"{name} {'added' if not old else 'edited' if new else 'gone'}")
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name, "none"), now.versions.get(name, "none")
        if old != new:
            phrases.append(f"{name} {old} before, {new} now")
    return phrases


def modules_of(name: str, function: Callable[..., Any]) -> dict[str, str]:
    """Return digests of the module of a layer 'module:function' and of those that it imports.

    There are none where Python has no source. Of a module that was typed in, and so is not on disk,
    only the function counts.
    """
    digests: dict[str, str] = {}
    home = name.partition(":")[0]
    waiting = [home]
    while waiting:
        module = waiting.pop()
        if module in digests:
            continue
        source, package = _source(module, installed=module == home)
        if source is None and module == "__main__":
            try:
                source = textwrap.dedent(inspect.getsource(function))
            except (OSError, TypeError):
                continue
        if source is None:
            continue
        try:
            tree = ast.parse(source)
        except SyntaxError:  # a file that was edited since it was imported
            digests[module] = "not valid"
            continue
        digests[module] = _digest(tree)
        waiting += _imports(tree, module if package else module.rpartition(".")[0])
    return digests


_first_seen = functools.cache(modules_of)


def _digest(tree: ast.Module) -> str:
    """Return a digest of a module without comments, docstrings and what runs as a script."""
    node: Any
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            node.body = [ast.Pass()]
        described = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if described and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the modules that a module of a package imports, also in its functions.

    A name that is imported from a module may be a module too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                relative = "." * node.level + (node.module or "")
                start = importlib.util.resolve_name(relative, package)
            except ImportError:
                continue
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def _source(name: str, installed: bool) -> tuple[str | bytes | None, bool]:
    """Return the source of a module, if any, and whether it is a package.

    Modules of this package have none here, and without `installed` nor do those of libraries.
    """
    if name.partition(".")[0] in sys.stdlib_module_names and not installed:
        return None, False
    try:
        spec = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
        file = Path(str(spec.origin)).resolve() if spec and spec.has_location else Path()
        library = not _PACKAGES.isdisjoint(file.parts)
        if file.suffix != ".py" or file.is_relative_to(_HERE) or (library and not installed):
            return None, False
        return file.read_bytes(), file.name == "__init__.py"
    except (ImportError, AttributeError, ValueError, OSError):
        return None, False
