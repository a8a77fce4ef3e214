"""The code of a layer function: the definitions that it reaches, and the modules it imports.

The code of a layer 'module:function' is the definition of the function at the top level of the
module. It includes all functions, classes, constants and imports of that module that the function
reaches by name, directly or through others, with the statements that change them
(``TABLE["a"] = 1``, ``TABLE.update(...)``). Comments, docstrings, layout, the body of
``if __name__ == "__main__":`` and definitions that are not reached do not count. Modules that these
definitions import count as a whole, with those that they import in turn, unless they belong to
Python, to an installed library or to this package.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import symtable
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

_STAR = "*"
"""Name for star imports, which may bind any name."""

_LIBRARIES = [
    Path(sysconfig.get_paths()[name]).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
] + [Path(__file__).resolve().parents[1]]
"""Folders of modules that do not count: those of Python, installed ones, and this package."""


class _Statement(NamedTuple):
    digest: str
    changed: frozenset[str]
    used: frozenset[str]
    imported: frozenset[str]


def layer_function(name: str) -> Callable[..., Any]:
    """Return the function behind a layer 'module:function'; it accepts parameters by name.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    module, _, attribute = name.partition(":")
    # Find modules in the working directory, like `python -m` and unlike installed commands.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs any code
        raise ValueError(
            f"layer={name!r}: a 'module:function' that can be imported is needed ({error})"
        ) from None
    if not callable(function):
        raise ValueError(f"layer={name!r}: a function is needed")
    return function


def definitions_of(name: str, function: Callable[..., Any]) -> dict[str, str]:
    """Return digests of the definitions that a layer 'module:function' reaches, by 'module:name'.

    Those of modules that they import have the module's name alone. There are none where Python has
    no source.
    """
    module, _, attribute = name.partition(":")
    found = _reached(module, attribute, function)
    inner = inspect.unwrap(function)
    home = getattr(inner, "__module__", None)
    if home != module and (inspect.isfunction(inner) or inspect.isclass(inner)):
        found |= _reached(str(home), inner.__qualname__.partition(".")[0], inner)
    return found


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
    imported: set[str] = set()
    waiting = [start, _STAR]
    while waiting:
        name = waiting.pop()
        key = f"{module}:{name}"
        if name in by_name and key not in found:
            found[key] = _digest([statement.digest for statement in by_name[name]])
            waiting += [used for statement in by_name[name] for used in statement.used]
            imported |= {entry for statement in by_name[name] for entry in statement.imported}
    return found | _modules({_absolute(entry, module) for entry in imported} - {module})


def _modules(names: set[str]) -> dict[str, str]:
    """Return digests of modules, and of those that they import, without libraries."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        file = None if name in found else _file_outside_libraries(name)
        if file is not None:
            try:
                tree = ast.parse(file.read_bytes())
            except (OSError, SyntaxError):
                found[name] = "not valid"
                continue
            found[name] = _digest([_plain(node) for node in tree.body])
            package = file.name == "__init__.py"
            waiting += [_absolute(entry, name, package) for entry in _imported(tree)]
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a statement imports, also in its functions; relative ones with dots.

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


def _absolute(name: str, module: str, package: bool = False) -> str:
    """Return the full name of a module that `module` imports."""
    if not name.startswith("."):
        return name
    home = module if package else module.rpartition(".")[0]
    try:
        return importlib.util.resolve_name(name, home)
    except ImportError:
        return name.lstrip(".")


def _file_outside_libraries(name: str) -> Path | None:
    """Return the file of a module, unless it is part of a library or has no source."""
    try:
        spec = getattr(sys.modules.get(name), "__spec__", None) or importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None or not spec.has_location or not str(spec.origin).endswith(".py"):
        return None
    file = Path(str(spec.origin)).resolve()
    return None if any(file.is_relative_to(folder) for folder in _LIBRARIES) else file


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
        imported = frozenset(_imported(node))
        yield _Statement(
            _digest(_plain(node)), frozenset(changed), frozenset(_used(table)), imported
        )


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
