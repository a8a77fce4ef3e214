"""Functions described by their source, and imported when they are called.

A command builds its options from this description, so that its help text loads no library.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from typing import Any

from shaped_attention.checks import did_you_mean


@dataclass(frozen=True)
class Argument:
    """Parameter of a function: its name, its annotation as text, and its default value."""

    name: str
    annotation: str
    default: Any


@dataclass(frozen=True)
class Deferred:
    """Function of a module, identified by its place "module:name"."""

    place: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Import the function and call it."""
        return self.load()(*args, **kwargs)

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        module, _, name = self.place.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function

    @property
    def documentation(self) -> str:
        """The docstring, without indentation."""
        return cleandoc(ast.get_docstring(self._source(), clean=False) or "")

    @property
    def arguments(self) -> list[Argument]:
        """The parameters that have a default value."""
        module, given = self.place.partition(":")[0], self._source().args
        positional = [*given.posonlyargs, *given.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
        pairs = [
            *zip(positional, [*defaults, *given.defaults], strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ]
        return [
            Argument(
                argument.arg,
                ast.unparse(argument.annotation) if argument.annotation else "",
                _value(default, module),
            )
            for argument, default in pairs
            if default is not None
        ]

    def _source(self) -> ast.FunctionDef:
        module, _, name = self.place.partition(":")
        return next(
            node
            for node in _tree(module).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        )


class Functions:
    """The public functions that the source of a module defines, as attributes, each `Deferred`."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Deferred:
        if name.startswith("_"):
            raise AttributeError(name)
        known = [
            node.name for node in _tree(self._module).body if isinstance(node, ast.FunctionDef)
        ]
        if name not in known:
            choices = [other for other in known if not other.startswith("_")]
            raise AttributeError(f"{self._module}.{name}: {did_you_mean(name, choices)}")
        return Deferred(f"{self._module}:{name}")


@cache
def _tree(module: str) -> ast.Module:
    specification = find_spec(module)
    assert specification is not None
    source = specification.loader.get_source(module)  # type: ignore[union-attr]
    return ast.parse(source)


def _value(node: ast.expr, module: str) -> Any:
    """Return the value of an expression of constants that the module defines or imports."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    constants = {name: _constant(name, module) for name in names}
    return eval(compile(ast.Expression(node), module, "eval"), {"__builtins__": {}}, constants)


def _constant(name: str, module: str) -> Any:
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            return _value(node.value, module)
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return _constant(alias.name, node.module)
    raise NameError(f"{module} has no constant {name}")
