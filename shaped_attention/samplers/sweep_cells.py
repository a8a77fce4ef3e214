"""Cells of a sweep whose layer is made of blocks, for the network, the chain and the SDE."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks import Pattern, Schedule
from shaped_attention.blocks.base import Block, blocks_of
from shaped_attention.blocks.catalogue import ARGUMENTS, named_layer, rescaled
from shaped_attention.blocks.reasons import check_chain, check_limit
from shaped_attention.checks import (
    argument_error,
    check_count,
    check_positive,
    check_range,
    check_width,
)
from shaped_attention.numerics.covariance import check_covariance, equicorrelated
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.sde import count_steps, integrate_sde
from shaped_attention.samplers.specification import specify

START = ("tokens", "rho", "scale", "covariance")
"""Parameters of the initial covariance: `tokens` equicorrelated tokens, or a matrix."""

GRID = ("width", "depth", "horizon", "step", "radius")
"""Parameters of the samplers."""

_MOST_TOKENS = 4096


@dataclass(frozen=True)
class CellOfLayer:
    """Cell whose layer is made of blocks, with the samplers' arguments.

    `width` n and `depth` L are None if only the SDE is sampled; `horizon` is T = L / n.
    """

    samplers = ("network", "chain", "sde")

    layer: tuple[Block, ...] | Pattern
    v0: NDArray[np.float64]
    width: int | None
    depth: int | None
    horizon: float
    step: float
    radius: float | None

    @classmethod
    def parameters(cls, layer: Any) -> tuple[str, ...]:
        """Return the names that a sweep with this layer may fix or vary."""
        own = tuple(inspect.signature(layer).parameters) if callable(layer) else ARGUMENTS
        return (*own, *START, *GRID)

    @classmethod
    def make(cls, values: Mapping[str, Any], samplers: tuple[str, ...]) -> Self:
        """Return the cell of these parameters; raise ValueError if one is missing or invalid."""
        kind = values["layer"]
        arguments = {
            name: _argument(name, values[name])
            for name in cls.parameters(kind)
            if name in values and name not in (*START, *GRID)
        }
        layer: tuple[Block, ...] | Pattern
        if not callable(kind):
            if "gamma" not in arguments and not (kind == "mlp" and "mlp_gamma" in arguments):
                raise ValueError("gamma must be given, fixed or as an axis")
            layer = blocks_of(named_layer(kind, **{"gamma": 0.0, **arguments}))
        else:
            made = kind(**arguments)
            layer = made if isinstance(made, Pattern) else blocks_of(made)
        grid = _grid(values, samplers)
        return cls(layer, _start(values), *grid, values["step"], values.get("radius"))

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.v0)

    def steps(self, sampler: str) -> int:
        """Return the number of steps of the SDE, or of layers."""
        # `make` has checked that there is a depth.
        return count_steps(self.horizon, self.step) if sampler == "sde" else self.depth or 0

    def times(self, sampler: str, fractions: tuple[float, ...]) -> list[float]:
        """Return the times at these fractions of the horizon; raise ValueError if off the grid."""
        steps = self.steps(sampler)
        dt = self.horizon / steps
        return [step * dt for step in whole_steps(fractions, steps, "steps", sampler)]

    def check(self, sampler: str, samples: int, seed: int, dtype: str) -> None:
        """Raise the ValueError that the sampler would, without simulating anything."""
        if sampler == "sde":
            check_limit(self.layer)
        elif sampler == "chain":
            check_chain(self.layer)
        width = None if sampler == "sde" else self.width
        specify(
            self.layer, self.v0, width=width, steps=self.steps(sampler),
            dt=self.step if width is None else None, samples=samples, seed=seed,
            radius=self.radius, dtype=dtype,
        )  # fmt: skip

    def sample(self, sampler: str, fractions: tuple[float, ...], **settings: Any) -> xr.Dataset:
        """Run the sampler."""
        settings |= {"times": self.times(sampler, fractions), "radius": self.radius}
        settings |= {"progress": False}
        if sampler == "sde":
            settings |= {"horizon": self.horizon, "step": self.step}
            return integrate_sde(self.layer, self.v0, **settings)
        settings |= {"width": self.width, "depth": self.depth}
        if sampler == "chain":
            return simulate_chain(self.layer, self.v0, **settings)
        # It loads torch, which takes seconds.
        from shaped_attention.samplers.network import simulate_network

        return simulate_network(self.layer, self.v0, **settings)


def _argument(name: str, value: Any) -> Any:
    """Return an argument of a layer: a table may be the knots of a `Schedule`, as in TOML."""
    if isinstance(value, Mapping) and set(value) == {"schedule"}:
        return Schedule(value["schedule"])
    return None if name == "mask" and value == "none" else value


def _grid(
    values: Mapping[str, Any], samplers: tuple[str, ...]
) -> tuple[int | None, int | None, float]:
    width, depth, horizon = (values.get(name) for name in ("width", "depth", "horizon"))
    if (depth is None) == (horizon is None):
        raise ValueError("depth, horizon: give exactly one of the two")
    if horizon is not None:
        check_positive("horizon", horizon)
    if width is None:
        if horizon is None or set(samplers) != {"sde"}:
            raise ValueError("width must be given (only an SDE with a horizon needs none)")
        return None, None, float(horizon)
    check_width("width", width)
    if horizon is not None:
        layers = width * float(horizon)
        depth = round(layers)
        if abs(depth - layers) > 1e-9 * layers or depth < 1:
            raise argument_error(
                "horizon", f"a whole number of layers divided by width={width}", horizon
            )
    check_count("depth", depth)  # type: ignore[arg-type]
    return int(width), int(depth), depth / width  # type: ignore[arg-type]


def _start(values: Mapping[str, Any]) -> NDArray[np.float64]:
    tokens, scale = values.get("tokens"), values.get("scale", "raw")
    if ("tokens" in values) == ("covariance" in values):
        raise ValueError("tokens, covariance: give exactly one of the two")
    if "covariance" in values:
        return rescaled(check_covariance(values["covariance"], "covariance"), scale)
    check_range("tokens", tokens, 1, _MOST_TOKENS)  # type: ignore[arg-type]
    return rescaled(equicorrelated(tokens, values["rho"]), scale)  # type: ignore[arg-type]


def whole_steps(fractions: tuple[float, ...], number: int, steps: str, what: str) -> list[int]:
    """Return the steps at these fractions of all; raise ValueError between two of them."""
    for fraction in fractions:
        if abs(fraction * number - round(fraction * number)) > 1e-6:
            raise ValueError(
                f"fractions: {fraction:g} of the {number} {steps} of the {what} is not a whole "
                f"number of {steps}"
            )
    return [round(fraction * number) for fraction in fractions]
