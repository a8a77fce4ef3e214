"""Provenance: every result records the call that made it, and that call can be made again.

The record of a result consists of four of its attributes, in JSON where they are not plain:

    format           the number of this layout
    function         "module:name" of the public function, which is looked up and never imported
    specification    all its arguments, including defaults (`plain_arguments`)
    versions         the versions of the packages that made the numbers

`data/provenance.schema.json` is its schema. Arguments that change no number (`progress`, `chunk`,
`memory`) are not recorded. If plain data cannot express an argument, the reason is recorded.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
import xarray as xr

from shaped_attention.checks import bound_arguments, check_keywords, check_types
from shaped_attention.libraries import versions

if TYPE_CHECKING:
    from shaped_attention.blocks.base import Block

FORMAT = 4
"""Number of the layout of `attrs`; raised when an old result could be misread."""

_NOT_RECORDED = ("progress", "chunk", "memory")
_GRID = {"save_every", "width", "depth", "horizon", "step"}

P = ParamSpec("P")
Result = Callable[..., xr.Dataset]

_functions: dict[str, Result] = {}
"""Functions that record their calls, by "module:name" of their definition."""

_PLACES = (
    "shaped_attention",
    "shaped_attention.sphere",
    "shaped_attention.sphere.theory",
    "shaped_attention.statistics.stopping",
    "shaped_attention.torch_models.scores",
)
"""Modules of this package that export them."""


def recorded(
    sampler: str = "", written: Mapping[str, Callable[[Any], Any]] = {}
) -> Callable[[Callable[P, xr.Dataset]], Callable[P, xr.Dataset]]:
    """Decorate a public function so that its Datasets carry the record of their call.

    Arguments that are numbers or text also become attributes, unless the function is a sampler.
    NumPy scalars become Python's numbers before the call, so a rerun computes with the same
    numbers.

    Parameters
    ----------
    sampler
        Name of a sampler, which becomes the attribute `sampler` of its results. A sampler that
        resolves its own arguments leaves them in the attribute `specification`.
    written
        Functions of arguments, by name, for what the record holds in place of these.

    Examples
    --------
    >>> import xarray as xr
    >>> from shaped_attention.statistics.stopping import stopping_map
    >>> data = stopping_map([[1.0]], [0.5], [1.0], width=4, step=0.5, samples=2)
    >>> data.attrs["function"]
    'shaped_attention.statistics.stopping:stopping_map'
    """

    def decorate(function: Callable[P, xr.Dataset]) -> Callable[P, xr.Dataset]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> xr.Dataset:
            values: Any = [_number(value) for value in args]
            named: Any = {name: _number(value) for name, value in kwargs.items()}
            bound = bound_arguments(function.__name__, signature, values, named)
            check_types(function, bound.arguments)
            result = function(*values, **named)
            bound.apply_defaults()
            recordable = {name: write(bound.arguments[name]) for name, write in written.items()}
            return _with_record(result, call, sampler, bound.arguments | recordable)

        # One inside another function is not there for another call.
        if "<" not in function.__qualname__:
            _functions[f"{function.__module__}:{function.__qualname__}"] = call
        return call

    return decorate


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _with_record(
    result: xr.Dataset, function: Result, sampler: str, arguments: dict[str, Any]
) -> xr.Dataset:
    attrs: dict[str, Any] = {
        "format": FORMAT, "function": _name_of(function), "versions": json.dumps(versions()),
    }  # fmt: skip
    if sampler and "specification" in result.attrs:
        return result.assign_attrs(attrs)
    from shaped_attention.results.plain_arguments import ADDED, encoded  # samplers need neither

    # These belong to results that the function made on its way.
    earlier = [x for x in result.variables if str(x).startswith(ADDED)]
    result = result.drop_vars(earlier) if earlier else result
    added: dict[str, xr.Variable] = {}
    stored = {
        name: encoded(value, name, result, added)
        for name, value in arguments.items()
        if name not in _NOT_RECORDED
    }
    kind = {"sampler": sampler} if sampler else {}
    shown = {} if sampler else {x: y for x, y in stored.items() if isinstance(y, int | float | str)}
    attrs |= kind | {"specification": json.dumps(kind | stored)}
    attrs = {name: attribute(value) for name, value in shown.items()} | result.attrs | attrs
    return (result.assign(added) if added else result).assign_attrs(attrs)


def _name_of(function: Result) -> str:
    """Return "module:name" of a function, in a module of this package that exports it if any."""
    name = function.__qualname__
    for place in _PLACES:
        module = sys.modules.get(place)
        if name in getattr(module, "__all__", ()) and getattr(module, name) is function:
            return f"{place}:{name}"
    return f"{function.__module__}:{name}"


def attribute(value: float | str) -> float | str:
    """Return an attribute that netCDF can hold: it has no booleans and no large integers."""
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else str(value)
    return value


def plain(value: object) -> Any:
    """Convert a NumPy number to one of Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not plain data")


def specification(result: xr.Dataset) -> dict[str, Any]:
    """Return the arguments of the call that produced a result, as plain data.

    Raise ValueError if `result` is not a result of this package.
    """
    return dict(record(result)["specification"])


def record(result: xr.Dataset) -> dict[str, Any]:
    """Return the stored record of a result, or raise ValueError if it has none of this format."""
    if not isinstance(result, xr.Dataset) or "specification" not in result.attrs:
        raise ValueError(
            f"result must be a Dataset that shaped_attention made (load reads files); got a "
            f"{type(result).__name__} without the record of a call"
        )
    if result.attrs.get("format") != FORMAT:
        raise ValueError(
            f"result has format {result.attrs.get('format')}; this version reads only {FORMAT}"
        )
    try:
        stored = {name: json.loads(result.attrs[name]) for name in ("specification", "versions")}
    except (KeyError, TypeError, ValueError):
        stored = {"specification": None}
    known = isinstance(result.attrs.get("function"), str)
    if not known or not all(isinstance(x, dict) for x in stored.values()):
        raise ValueError(
            "result has a record that is not valid; it needs a function, and objects in JSON as "
            "specification and versions"
        )
    return {"format": FORMAT, "function": result.attrs["function"], **stored}


def _arguments_of(result: xr.Dataset, function: Result, replaced: Collection[str]) -> Any:
    """Return the arguments of the call of a function that made a result, except those replaced."""
    arguments, recorded_arguments = specification(result), {}
    arguments.pop("sampler", None)
    parameters = inspect.signature(function).parameters
    for name in arguments:
        if name in _NOT_RECORDED:
            raise ValueError(f"result has the argument {name}, which no record has")
        if name not in parameters:
            has = f"result has the argument {name}"
            raise ValueError(f"{has}, which {function.__name__} does not have")
    for name, parameter in parameters.items():
        if name in replaced or (name not in arguments and parameter.default is not parameter.empty):
            continue
        if name not in arguments:
            raise ValueError(f"result lacks the argument {name} of {function.__name__}")
        recorded_arguments[name] = recorded_argument(result, name)
    return recorded_arguments


def recorded_argument(result: xr.Dataset, name: str) -> Any:
    """Return an argument of the call that made a result, or raise ValueError that asks for it."""
    from shaped_attention.results.plain_arguments import UnrecordedError

    try:
        return argument_of(result, name)
    except UnrecordedError as error:
        raise ValueError(f"{error}; pass {name}=") from None


def argument_of(result: xr.Dataset, name: str, blocks: Sequence[type[Block]] = ()) -> Any:
    """Return an argument of the call that made a result; `blocks` are classes of the user's.

    Raise ValueError if it is not recorded (UnrecordedError), or not valid.
    """
    from shaped_attention.results.plain_arguments import UnrecordedError, decoded

    try:
        return decoded(record(result)["specification"][name], result, blocks)
    except UnrecordedError as error:
        raise type(error)(f"result lacks its argument {name} ({error})") from None
    except (KeyError, StopIteration, TypeError) as error:
        raise ValueError(f"result has an invalid argument {name}: {error}") from error


def function_of(result: xr.Dataset) -> Result:
    """Return the function that made a result, one of this package or of an imported module."""
    name = record(result)["function"]
    place, _, attribute = name.partition(":")
    function = _functions.get(name)
    module = importlib.import_module(place) if place in _PLACES else None
    if attribute in getattr(module, "__all__", ()):
        function = getattr(module, attribute)
    if function is None or function not in _functions.values():
        raise ValueError(
            f"result was made by {name}, which is no function that records its calls; one of your "
            "own is known once its module is imported"
        )
    return function


def rerun(result: xr.Dataset, /, **changes: Any) -> xr.Dataset:
    """Repeat the call that produced a result, with `changes` to its arguments.

    Without changes the result is bit-identical on the same kind of machine with the same versions
    of the packages; a UserWarning names versions that differ from the record. The stored times of a
    sampler are kept unless a change affects the grid of times. In that case give `times` too;
    otherwise only the first and the last are stored.

    Arguments that are not recorded must be given: a function or an argument that names one, a layer
    with a block of your own, a model, or a Dataset, such as the two results that `compare`
    requires. Nothing is imported because a record names it.

    Parameters
    ----------
    result
        Dataset of a public function, which may come from a file.
    changes
        Arguments by name, in place of those recorded.

    Raises
    ------
    ValueError
        If `result` carries no record of this package or an invalid one, an unrecorded argument is
        missing, or a change is not an argument of the function (to change parameters of a block,
        give a new `layer`) or is not allowed.
    """
    function = function_of(result)
    check_keywords(function, changes)
    arguments = _arguments_of(result, function, changes)
    then, now = record(result)["versions"], versions()
    differing = [f"{x} {v}, now {now[x]}" for x, v in then.items() if now.get(x, v) != v]
    if differing:
        warnings.warn(
            f"versions differ from those in the record ({'; '.join(differing)}): numbers may "
            "differ",
            stacklevel=3,
        )
    # The stored times may be off the new grid; the default replaces them.
    if changes.keys() & _GRID:
        arguments.pop("times", None)
    return function(**(arguments | changes))
