"""The code that makes the numbers of a sweep: its layer functions, and versions of packages.

Of a layer 'module:function' the code is the definition of the function at the top level of the
module, and those of all functions, classes, constants and imports of that module that it reaches by
name, directly or through others. A definition also counts with the statements that change it
(``TABLE["a"] = 1``, ``TABLE.update(...)``). Comments, docstrings, layout, what is under
``if __name__ == "__main__":`` and definitions that are not reached do not matter. Of a name that is
imported only the import statement counts, unless the layer function itself is imported.
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
"""The name for star imports, which may bind anything that is reached."""


class Code(NamedTuple):
    """Digests of definitions by 'module:name', and versions by package."""

    definitions: Mapping[str, str]
    versions: Mapping[str, str]


class _Statement(NamedTuple):
    digest: str
    changed: frozenset[str]
    used: frozenset[str]


def code_of(sweep: Sweep) -> Code:
    """The code of a sweep, as its modules are on the disk now."""
    functions = ((name, layer_function(name)) for name in _functions(sweep))
    return _code(definitions_of(name, function) for name, function in functions)


_imported: dict[int, tuple[Callable[..., Any], dict[str, str]]] = {}


def imported_code(sweep: Sweep) -> Code:
    """The code of a sweep, as this process first saw the functions that it has imported."""
    found = []
    for name in _functions(sweep):
        function = layer_function(name)
        if id(function) not in _imported:
            # With the function itself, so that its id is not given to another object.
            _imported[id(function)] = function, definitions_of(name, function)
        found.append(_imported[id(function)][1])
    return _code(found)


def code_records(folder: Path) -> list[dict[str, Any]]:
    """The code that made the units of a store, and its accepted changes, in order.

    Each has `time`, the number of `units` that were finished then, `changed`, what had changed in
    words, `definitions` and `versions`. Empty for stores that are older than such records.
    """
    return read_records(folder / _RECORDS)


def note_code(folder: Path, code: Code, units: int, changed: list[str]) -> None:
    """Add a record of code to a store."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"time": now, "units": units, "changed": changed, **code._asdict()}
    append_records(folder / _RECORDS, [record])


def note_further_layers(folder: Path, before: Sweep, after: Sweep) -> None:
    """Add the code of layers that a larger sweep has and the one before it has not."""
    if further := set(_functions(after)) - set(_functions(before)):
        last = code_records(folder)[-1]
        added = _code(definitions_of(name, layer_function(name)) for name in sorted(further))
        definitions = {**added.definitions, **last["definitions"]}
        note_code(folder, Code(definitions, last["versions"]), last["units"], [])


def changes_since(folder: Path, now: Code) -> list[str]:
    """What differs between the last code of a store and that of now, one phrase each."""
    records = code_records(folder)
    if not records:
        return ["the store has no record of its code and versions"]
    return differences(Code(records[-1]["definitions"], records[-1]["versions"]), now)


def differences(before: Code, now: Code) -> list[str]:
    """What differs between two codes, one phrase each."""
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
    """Digests of the definitions that a layer 'module:function' reaches in its module.

    Empty where Python has no source.
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
    """The source of a module; of the function alone if it was typed in; '' if there is none."""
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
    """Names of which an item or attribute is set, or a method is called for its effect."""
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
    """Names of the module that a statement uses, in functions and classes in it too."""
    for symbol in table.get_symbols():
        if symbol.is_global() or table.get_type() == "module":
            yield symbol.get_name()
    for child in table.get_children():
        yield from _used(child)


def _plain(node: Any) -> Any:
    """A syntax tree as plain data, without docstrings, and without fields that are empty."""
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
