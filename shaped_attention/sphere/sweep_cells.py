"""Cells of a sweep over self-attention on the sphere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import xarray as xr

from shaped_attention.checks import argument_error, check_count, check_positive, check_width
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.starts import uniform_start

_FIELD = ("beta", "normalised", "repulsion", "causal")

_NEEDED = ("beta", "tokens", "dimension", "horizon")
"""Parameters without a default."""

_TOLERANCE = 1e-5


@dataclass(frozen=True)
class SphereCell:
    """Flow from uniform tokens on S^{d-1}; samples and seed are those of `uniform_start`."""

    samplers = ("sphere",)

    attention: SphereAttention
    tokens: int
    dimension: int
    horizon: float
    tolerance: float

    @classmethod
    def parameters(cls, layer: Any) -> tuple[str, ...]:
        """Return the names that a sweep of flows may fix or vary."""
        return (*_FIELD, "tokens", "dimension", "horizon", "tolerance")

    @classmethod
    def make(cls, values: Mapping[str, Any], samplers: tuple[str, ...]) -> Self:
        """Return the cell; raise ValueError if a parameter is missing or outside its range."""
        for name in _NEEDED:
            if name not in values:
                raise ValueError(f"{name} must have a value, fixed or as an axis")
        tokens, dimension, horizon = (values[name] for name in _NEEDED[1:])
        tolerance = values.get("tolerance", _TOLERANCE)
        check_count("tokens", tokens)
        check_width("dimension", dimension)
        check_positive("horizon", horizon)
        check_positive("tolerance", tolerance)
        attention = SphereAttention(**{name: values[name] for name in _FIELD if name in values})
        return cls(attention, tokens, dimension, float(horizon), tolerance)

    def times(self, sampler: str, fractions: tuple[float, ...]) -> list[float]:
        """Return the times at these fractions of the horizon; there is no grid."""
        return [fraction * self.horizon for fraction in fractions]

    def check(self, sampler: str, samples: int, seed: int, dtype: str) -> None:
        """Raise ValueError for float32, in which the flow is not computed."""
        if dtype != "float64":
            raise argument_error("dtype", "'float64' for flows on the sphere", dtype)

    def sample(self, sampler: str, fractions: tuple[float, ...], **settings: Any) -> xr.Dataset:
        """Run the flow."""
        start = uniform_start(self.tokens, self.dimension, settings["samples"], settings["seed"])
        return sphere_flow(
            self.attention, start.to(settings["device"]), self.times(sampler, fractions),
            tolerance=self.tolerance, chunk=settings["chunk"],
        )  # fmt: skip
