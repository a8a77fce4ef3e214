"""The code that determines the numbers of a sweep: this package, layer functions, and libraries.

The identity of the package is a digest of its installed sources, that of a library its version, and
that of a layer function the digests of its module and of those that this imports, unless they
belong to Python, to an installed library or to this package. Comments, docstrings, layout and the
body of ``if __name__ == "__main__":`` do not count. The kind of processor is recorded too; it may
change the last bits, and is no reason to refuse a run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from shaped_attention.io.records import append_records, read_records
from shaped_attention.sweep.specification import Sweep
from shaped_attention.trust import layer_function
from shaped_attention.version import sources_digest, versions

_RECORDS = "code.jsonl"

_HERE = Path(__file__).resolve().parents[1]

_LIBRARIES = [
    Path(sysconfig.get_paths()[name]).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
]
"""Folders of modules that do not count: those of Python, and installed ones."""

_SCRIPT = "__name__ == '__main__'"

_PACKAGES = {"site-packages", "dist-packages"}
"""Names of folders of installed modules in other environments."""


class Code(NamedTuple):
    """Digests of modules by name, and versions by package."""

    modules: Mapping[str, str]
    versions: Mapping[str, str]


def code_of(sweep: Sweep) -> Code:
    """Return the code of a sweep, as its modules are on disk now."""
    functions = ((name, layer_function(name)) for name in _functions(sweep))
    return _code(modules_of(name, function) for name, function in functions)


_imported: dict[int, tuple[Callable[..., Any], dict[str, str]]] = {}


def imported_code(sweep: Sweep) -> Code:
    """Return the code of a sweep, as this process first saw the functions that it imported."""
    found = []
    for name in _functions(sweep):
        function = layer_function(name)
        if id(function) not in _imported:
            # The function is kept, so that no other object gets its id.
            _imported[id(function)] = function, modules_of(name, function)
        found.append(_imported[id(function)][1])
    return _code(found)


def code_records(folder: Path) -> list[dict[str, Any]]:
    """Return the code that made the units of a store, and its accepted changes, in order.

    A record has `time`, the number of `units` finished by then, `changed` (what had changed, in
    words), `processor`, `modules` and `versions`. The list is empty if the file is gone.
    """
    return read_records(folder / _RECORDS)


def note_code(folder: Path, code: Code, units: int, changed: list[str]) -> None:
    """Add a record of the code to a store."""
    import llvmlite.binding  # a fifth of a second, which reading a store does not need

    now = datetime.now(UTC).isoformat(timespec="seconds")
    processor = llvmlite.binding.get_host_cpu_name()
    record = {"time": now, "units": units, "changed": changed, "processor": processor}
    record |= code._asdict()
    append_records(folder / _RECORDS, [record])


def further_modules(before: Sweep, after: Sweep) -> dict[str, str]:
    """Return the digests of the layers that only the larger sweep has."""
    further = set(_functions(after)) - set(_functions(before))
    return _digests(modules_of(name, layer_function(name)) for name in sorted(further))


def note_further_modules(folder: Path, digests: Mapping[str, str]) -> None:
    """Add the digests of further layers to the code last recorded in a store."""
    records = code_records(folder)
    if records and not digests.keys() <= records[-1]["modules"].keys():
        last = records[-1]
        note_code(folder, Code({**digests, **last["modules"]}, last["versions"]), last["units"], [])


def changes_since(folder: Path, now: Code) -> list[str]:
    """Return the differences between the code last recorded in a store and `now`, as phrases."""
    records = code_records(folder)
    if not records:
        return ["the store has no record of its code and versions"]
    return differences(Code(records[-1]["modules"], records[-1]["versions"]), now)


def differences(before: Code, now: Code) -> list[str]:
    """Return the differences between two versions of the code, as phrases."""
    found = []
    for name in sorted({*before.modules, *now.modules}):
        old, new = before.modules.get(name), now.modules.get(name)
        if old != new:
            found.append(
                f"{name} {'added' if old is None else 'gone' if new is None else 'edited'}"
            )
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name, "none"), now.versions.get(name, "none")
        if old != new:
            found.append(f"{name} {old} before, {new} now")
    return found


def _functions(sweep: Sweep) -> list[str]:
    return [layer for layer in sweep.layers if ":" in layer]


def _digests(parts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {name: digest for part in parts for name, digest in part.items()}


def _code(parts: Iterable[Mapping[str, str]]) -> Code:
    made_by = {name: version for name, version in versions().items() if name != "python"}
    return Code({"shaped_attention": sources_digest(), **_digests(parts)}, made_by)


def modules_of(name: str, function: Callable[..., Any]) -> dict[str, str]:
    """Return digests of the module of a layer 'module:function' and of those that it imports.

    There are none where Python has no source. A function that was typed in, and so has no module on
    disk, counts alone.
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
                source = textwrap.dedent(inspect.getsource(function)).encode()
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
        waiting += [_absolute(imported, module, package) for imported in _imports(tree)]
    return digests


def _digest(tree: ast.Module) -> str:
    """Return a digest of a module without comments, docstrings and what runs as a script."""
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == _SCRIPT:
            statement.body = [ast.Pass()]
    node: Any
    for node in ast.walk(tree):
        described = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if described and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports, also in its functions; relative ones with dots.

    A name that is imported from a module may be a module too.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            yield start
            dot = "" if start.endswith(".") else "."
            yield from (f"{start}{dot}{alias.name}" for alias in node.names)


def _absolute(name: str, module: str, package: bool) -> str:
    """Return the full name of a module that `module` imports."""
    try:
        return importlib.util.resolve_name(name, module if package else module.rpartition(".")[0])
    except ImportError:
        return name.lstrip(".")


def _source(name: str, installed: bool) -> tuple[bytes | None, bool]:
    """Return the source of a module, if any, and whether it is a package.

    Modules of this package have none here, and without `installed` nor do those of libraries.
    """
    try:
        spec = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None, False
    if spec is None or not spec.has_location or not str(spec.origin).endswith(".py"):
        return None, False
    file = Path(str(spec.origin)).resolve()
    library = any(file.is_relative_to(folder) for folder in _LIBRARIES)
    library |= not _PACKAGES.isdisjoint(file.parts)
    if file.is_relative_to(_HERE) or (library and not installed):
        return None, False
    try:
        return file.read_bytes(), file.name == "__init__.py"
    except OSError:
        return None, False
