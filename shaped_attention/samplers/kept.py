"""What is kept of paths at a stored time: V, all observables, or a function by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import argument_error
from shaped_attention.samplers.paths import Paths

Array = NDArray[np.float64]

_KEPT = "'V', 'observables' or 'module:function'"


class Measure(Protocol):
    """A function of paths at a stored grid point, such as `Kept`."""

    def __call__(self, paths: Paths, point: int) -> Array:
        """Return the values (count, ...)."""


@dataclass(frozen=True)
class Kept:
    """The measure of the keyword `keep`: a function of V, and the names of its numbers.

    Without names it is V itself.
    """

    function: Callable[[Array], Array]
    names: tuple[str, ...] = ()

    def __call__(self, paths: Paths, point: int) -> Array:
        """Return the values (count, m, m) or (count, names)."""
        return self.function(paths.covariances(point))


def kept_of(keep: str, tokens: int) -> Kept:
    """Return what "V", "observables" or "module:function" keeps.

    A function with the attribute `names` returns as many numbers for each sample.
    """
    if keep == "V":
        return Kept(np.asarray)
    if keep == "observables":
        from shaped_attention.numerics.observables import observables

        names = tuple(observables(np.eye(tokens)[None]))

        def all_observables(v: Array) -> Array:
            values = observables(v)
            return np.stack([values[name] for name in names], axis=-1)

        return Kept(all_observables, names)
    function = function_named(keep)
    several = getattr(function, "names", None)
    numbers = "one number" if several is None else f"the numbers {', '.join(several)}"
    shape = () if several is None else (len(several),)

    def checked(v: Array) -> Array:
        values = np.asarray(function(v), dtype=np.float64)
        if values.shape != (len(v), *shape):
            raise ValueError(
                f"keep={keep!r} must return shape {(len(v), *shape)}, {numbers} for each sample, "
                f"for V of shape {v.shape}; it returned shape {values.shape}"
            )
        return values if shape else values[:, None]

    return Kept(checked, (keep,) if several is None else tuple(several))


def function_named(
    name: str, argument: str = "keep", requirement: str = _KEPT
) -> Callable[..., Array]:
    """Return a function, such as one of V (samples, m, m), named as "module:function".

    Raises
    ------
    ValueError
        If the module or the function cannot be found; it names the argument.
    """
    if not isinstance(name, str):
        raise argument_error(argument, requirement, name)
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{argument_error(argument, requirement, name)} ({error})") from None
    if not callable(function):
        raise ValueError(
            f"{argument_error(argument, requirement, name)} ({attribute} of {module} is not a "
            "function)"
        )
    result: Callable[..., Array] = function
    return result
