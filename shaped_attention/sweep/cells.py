"""A cell of a sweep: parameters by name, and the sampler's arguments that they stand for."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.base import Block, blocks_of
from shaped_attention.checks import check_count, check_positive, check_width
from shaped_attention.covariance import check_covariance, equicorrelated
from shaped_attention.named import KINDS, named_layer, rescaled

LAYER = tuple(inspect.signature(named_layer).parameters)[1:]
"""Parameters of the named layers."""

START = ("tokens", "rho", "scale", "covariance")
"""Parameters of the start: `tokens` equicorrelated ones, or a matrix."""

GRID = ("width", "depth", "horizon", "step", "radius")
"""Parameters of the samplers."""

SAMPLERS = ("network", "chain", "sde")

_MOST_TOKENS = 4096

DEFAULTS: dict[str, Any] = {"layer": "attention", "rho": 0.2, "step": 0.01}


@dataclass(frozen=True)
class Cell:
    """What the samplers need for a point of the grid.

    Attributes
    ----------
    layer, v0
        Blocks and starting covariance.
    width, depth
        n and L; None if only the SDE is asked for.
    horizon, step
        T = L / n, and the SDE's step.
    radius
        As in the samplers.
    """

    layer: tuple[Block, ...]
    v0: NDArray[np.float64]
    width: int | None
    depth: int | None
    horizon: float
    step: float
    radius: float | None


def layer_function(name: str) -> Callable[..., Any]:
    """The function behind a layer 'module:function', which takes parameters by their names.

    Raises
    ------
    ValueError
        If there is none.
    """
    module, _, attribute = name.partition(":")
    # As `python -m` does, and unlike installed commands: modules in the working directory.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs any code
        raise ValueError(
            f"layer={name!r}: one of {', '.join(KINDS)}, or 'module:function' of a function that "
            f"can be imported, is needed ({error})"
        ) from None
    if not callable(function):
        raise ValueError(f"layer={name!r}: a function is needed")
    return function


def layer_source(layer: Any) -> str:
    """The source text of a layer 'module:function'; its name if there is none."""
    if layer in KINDS:
        return str(layer)
    try:
        return inspect.getsource(layer_function(layer))
    except (OSError, TypeError):
        return str(layer)


def known_parameters(layer: Any) -> tuple[str, ...]:
    """Names that a sweep with that layer may fix or vary.

    Raises
    ------
    ValueError
        If the layer is unknown.
    """
    if layer in KINDS:
        own = LAYER
    elif isinstance(layer, str) and ":" in layer:
        function = layer_function(layer)
        try:
            own = tuple(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            raise ValueError(
                f"layer={layer!r}: a function whose parameters Python can tell is needed"
            ) from None
    else:
        raise ValueError(f"layer={layer!r}: one of {', '.join(KINDS)}, or 'module:function'")
    return ("layer", *own, *START, *GRID)


def make_cell(values: Mapping[str, Any], samplers: tuple[str, ...]) -> Cell:
    """The cell of these parameters.

    Raises
    ------
    ValueError
        If a parameter is missing, superfluous or outside its range.
    """
    given = DEFAULTS | dict(values)
    kind = given["layer"]
    if given.get("mask") == "none":
        given["mask"] = None
    own = {name: given[name] for name in known_parameters(kind) if name in given}
    arguments = {name: own[name] for name in own if name not in ("layer", *START, *GRID)}
    if kind in KINDS:
        if "gamma" not in arguments and not (kind == "mlp" and "mlp_gamma" in arguments):
            raise ValueError("gamma: a value is needed, fixed or as an axis")
        layer = blocks_of(named_layer(kind, **{"gamma": 0.0, **arguments}))
    else:
        layer = blocks_of(layer_function(kind)(**arguments))
    width, depth, horizon = _grid(given, samplers)
    return Cell(layer, _start(given), width, depth, horizon, given["step"], given.get("radius"))


def _grid(
    given: Mapping[str, Any], samplers: tuple[str, ...]
) -> tuple[int | None, int | None, float]:
    width, depth, horizon = (given.get(name) for name in ("width", "depth", "horizon"))
    if (depth is None) == (horizon is None):
        raise ValueError("depth, horizon: one of the two is needed")
    if width is None:
        if horizon is None or set(samplers) != {"sde"}:
            raise ValueError("width: a value is needed (only an SDE with a horizon has none)")
        check_positive("horizon", horizon)
        return None, None, float(horizon)
    check_width("width", width)
    if depth is None:
        check_positive("horizon", horizon)  # type: ignore[arg-type]
        layers = width * float(horizon)  # type: ignore[arg-type]
        depth = round(layers)
        if abs(depth - layers) > 1e-9 * layers or depth < 1:
            raise ValueError(
                f"horizon={horizon!r}: a whole number of layers width * horizon is needed, not "
                f"{layers:g}"
            )
    check_count("depth", depth)
    return int(width), int(depth), depth / width


def _start(given: Mapping[str, Any]) -> NDArray[np.float64]:
    if ("tokens" in given) == ("covariance" in given):
        raise ValueError("tokens, covariance: one of the two is needed")
    scale = given.get("scale", "raw")
    if "covariance" in given:
        return rescaled(check_covariance(given["covariance"], "covariance"), scale)
    check_count("tokens", given["tokens"])
    if given["tokens"] > _MOST_TOKENS:
        raise ValueError(f"tokens={given['tokens']!r}: at most {_MOST_TOKENS} are needed")
    return rescaled(equicorrelated(given["tokens"], given["rho"]), scale)
