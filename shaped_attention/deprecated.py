"""Old public names: they work for one release, with a warning that names the new one.

The policy is on the page `docs/deprecations.md`, which lists the tables below.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

OLD_NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "shaped_attention": {
        "BlockReport": ("statistics.block_checks.report", "the result of sa.check_block"),
        "Explanation": ("samplers.explain", "the result of sa.explain"),
        "ExplosionLaw": ("theory.explosion.law", "the result of sa.explosion_law"),
        "rope_angles": ("blocks.rotations", "sa.Rope.angles_of"),
        "exit_times": ("statistics.stopping", "sa.stopping.exit_times"),
        "explosion_curve": ("statistics.stopping", "sa.stopping.explosion_curve"),
        "explosion_curves": ("statistics.stopping", "sa.stopping.explosion_table"),
        "explosion_probability": ("statistics.stopping", "sa.stopping.explosion_probability"),
        "stopping_map": ("statistics.stopping", "sa.stopping.stopping_map"),
        "summary_table": ("architectures.verdict", "sa.verdict(summary, table=True)"),
        "half_vectorise": ("numerics.covariance:vech", "sa.vech"),
        "initial_spectrum": ("torch_models.scores", "sa.scores.initial_spectrum"),
        "leading_directions": ("torch_models.scores", "sa.scores.leading_directions"),
        "score_form": ("torch_models.scores", "sa.scores.score_form"),
        "truncation_cost": ("torch_models.scores", "sa.scores.truncation_cost"),
    },
    "shaped_attention.sphere": {},
    "shaped_attention.sweep": {},
}  # fmt: skip
"""By module and old name: where it is, as "module" of this package or "module:attribute" if the
attribute has another name, and what to write instead."""

OLD_MODULES = {
    "shaped_attention.architectures.table": "shaped_attention.architectures.layer_summary",
    "shaped_attention.models": "shaped_attention.torch_models",
}
"""New names of modules and packages, which "module:name" in a file or an argument may still call
by the old ones."""


def current_module(module: str) -> str:
    """Return the name that a module has now, with a warning if it had another one.

    Examples
    --------
    >>> current_module("shaped_attention.checks")
    'shaped_attention.checks'
    """
    for old, new in OLD_MODULES.items():
        if module == old or module.startswith(f"{old}."):
            current = new + module.removeprefix(old)
            text = f"the module {module} is now {current}"
            warnings.warn(text, DeprecationWarning, stacklevel=4)
            return current
    return module


def renamed(module: str, name: str) -> Any:
    """Return what a module's old name stands for, with a warning; None if it is no old name.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     name = __import__("shaped_attention").half_vectorise.__name__
    >>> name, str(caught[0].message)
    ('vech', 'shaped_attention.half_vectorise is deprecated; use sa.vech')
    """
    if name not in OLD_NAMES[module]:
        return None
    where, instead = OLD_NAMES[module][name]
    text = f"{module}.{name} is deprecated; use {instead}"
    warnings.warn(text, DeprecationWarning, stacklevel=4)
    place, _, attribute = where.partition(":")
    return getattr(importlib.import_module(f"shaped_attention.{place}"), attribute or name)


def renamed_arguments(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that accepts old names of arguments, given as ``old="new"``, and warns.

    Raises
    ------
    TypeError
        When the decorated function is called with both names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in new_names.items():
                if old not in kwargs:
                    continue
                warnings.warn(
                    f"{function.__name__}: the argument {old} is deprecated; use {new}",
                    DeprecationWarning,
                    stacklevel=2,
                )
                if new in kwargs:
                    raise TypeError(f"{function.__name__} got both {old} and {new}; use {new}")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
