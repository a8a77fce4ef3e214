"""The code that determines the numbers of a sweep: layer functions and versions of packages.

The code of a layer 'module:function' is the definition of the function at the top level of the
module. It includes all functions, classes, constants and imports of that module that the function
reaches by name, directly or through others, with the statements that change them
(``TABLE["a"] = 1``, ``TABLE.update(...)``). Comments, docstrings, layout, the body of
``if __name__ == "__main__":`` and definitions that are not reached do not count. For an imported
name only the import statement counts, unless the layer function itself is imported.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from shaped_attention.io.records import append_records, read_records
from shaped_attention.results.provenance import versions
from shaped_attention.sweep.layer_cells import layer_function
from shaped_attention.sweep.specification import Sweep

_RECORDS = "code.jsonl"

_STAR = "*"
"""Name for star imports, which may bind any name."""


class Code(NamedTuple):
    """Digests of definitions by 'module:name', and versions by package."""

    definitions: Mapping[str, str]
    versions: Mapping[str, str]


class _Statement(NamedTuple):
    digest: str
    changed: frozenset[str]
    used: frozenset[str]


def code_of(sweep: Sweep) -> Code:
    """Return the code of a sweep, as its modules are on disk now."""
    functions = ((name, layer_function(name)) for name in _functions(sweep))
    return _code(definitions_of(name, function) for name, function in functions)


_imported: dict[int, tuple[Callable[..., Any], dict[str, str]]] = {}


def imported_code(sweep: Sweep) -> Code:
    """Return the code of a sweep, as this process first saw the functions that it imported."""
    found = []
    for name in _functions(sweep):
        function = layer_function(name)
        if id(function) not in _imported:
            # The function is kept, so that no other object gets its id.
            _imported[id(function)] = function, definitions_of(name, function)
        found.append(_imported[id(function)][1])
    return _code(found)


def code_records(folder: Path) -> list[dict[str, Any]]:
    """Return the code that made the units of a store, and its accepted changes, in order.

    A record has `time`, the number of `units` finished by then, `changed` (what had changed, in
    words), `definitions` and `versions`. The list is empty if the file is gone.
    """
    return read_records(folder / _RECORDS)


def note_code(folder: Path, code: Code, units: int, changed: list[str]) -> None:
    """Add a record of the code to a store."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"time": now, "units": units, "changed": changed, **code._asdict()}
    append_records(folder / _RECORDS, [record])


def note_further_layers(folder: Path, before: Sweep, after: Sweep) -> None:
    """Record the code of the layers that only the larger sweep has."""
    if further := set(_functions(after)) - set(_functions(before)):
        last = code_records(folder)[-1]
        added = _code(definitions_of(name, layer_function(name)) for name in sorted(further))
        definitions = {**added.definitions, **last["definitions"]}
        note_code(folder, Code(definitions, last["versions"]), last["units"], [])


def changes_since(folder: Path, now: Code) -> list[str]:
    """Return the differences between the code last recorded in a store and `now`, as phrases."""
    records = code_records(folder)
    if not records:
        return ["the store has no record of its code and versions"]
    return differences(Code(records[-1]["definitions"], records[-1]["versions"]), now)


def differences(before: Code, now: Code) -> list[str]:
    """Return the differences between two versions of the code, as phrases."""
    found = []
    for name in sorted({*before.definitions, *now.definitions}):
        old, new = before.definitions.get(name), now.definitions.get(name)
        if old != new:
            found.append(
                f"{name} {'added' if old is None else 'gone' if new is None else 'edited'}"
            )
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name, "none"), now.versions.get(name, "none")
        if old != new:
            found.append(f"{name} {old} before, {new} now")
    return found


def definitions_of(name: str, function: Callable[..., Any]) -> dict[str, str]:
    """Return digests of the definitions that a layer 'module:function' reaches in its module.

    There are none where Python has no source.
    """
    module, _, attribute = name.partition(":")
    found = _reached(module, attribute, function)
    inner = inspect.unwrap(function)
    home = getattr(inner, "__module__", None)
    if home != module and (inspect.isfunction(inner) or inspect.isclass(inner)):
        found |= _reached(str(home), inner.__qualname__.partition(".")[0], inner)
    return found


def _functions(sweep: Sweep) -> list[str]:
    return [layer for layer in sweep.layers if ":" in layer]


def _code(parts: Any) -> Code:
    definitions: dict[str, str] = {}
    for part in parts:
        definitions |= part
    made_by = {name: version for name, version in versions().items() if name != "python"}
    return Code(definitions, made_by)


def _reached(module: str, start: str, function: Callable[..., Any]) -> dict[str, str]:
    by_name: dict[str, list[_Statement]] = {}
    try:
        statements = list(_statements(_source(module, function)))
    except SyntaxError:  # a file that was edited since it was imported
        return {f"{module}:{start}": "not valid"}
    for statement in statements:
        for name in statement.changed:
            by_name.setdefault(name, []).append(statement)
    found: dict[str, str] = {}
    waiting = [start, _STAR]
    while waiting:
        name = waiting.pop()
        key = f"{module}:{name}"
        if name in by_name and key not in found:
            found[key] = _digest([statement.digest for statement in by_name[name]])
            waiting += [used for statement in by_name[name] for used in statement.used]
    return found


def _source(module: str, function: Callable[..., Any]) -> str:
    """Return the source of a module, or of the function if it was typed in, or ''."""
    for owner in (sys.modules.get(module), function):
        try:
            return textwrap.dedent(inspect.getsource(owner))  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    return ""


def _statements(source: str) -> Iterator[_Statement]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            continue
        table = symtable.symtable(ast.unparse(node), "layer", "exec")
        changed = {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_assigned() or symbol.is_imported()
        }
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            changed |= set(_changed_in_place(node))
        yield _Statement(_digest(_plain(node)), frozenset(changed), frozenset(_used(table)))


def _changed_in_place(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement changes by an item, an attribute or a method call."""
    for part in ast.walk(node):
        if isinstance(part, ast.ImportFrom) and part.names[0].name == "*":
            yield _STAR
        target: ast.AST | None = None
        if isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            target = part
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Call):
            target = part.value.func
        while isinstance(target, ast.Attribute | ast.Subscript):
            target = target.value
            if isinstance(target, ast.Name):
                yield target.id


def _used(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the module's names that a statement uses, also in its functions and classes."""
    for symbol in table.get_symbols():
        if symbol.is_global() or table.get_type() == "module":
            yield symbol.get_name()
    for child in table.get_children():
        yield from _used(child)


def _plain(node: Any) -> Any:
    """Return a syntax tree as plain data, without docstrings and empty fields."""
    if isinstance(node, list):
        return [_plain(entry) for entry in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    entries = dict(ast.iter_fields(node))
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
        entries["body"] = node.body[1:]
    given = {name: _plain(value) for name, value in entries.items() if value not in (None, [])}
    return [type(node).__name__, given]


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
