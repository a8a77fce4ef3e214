"""Cells of a sweep over the fields of a model's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import xarray as xr

from shaped_attention.architectures.configurations import read_config
from shaped_attention.architectures.model import Model
from shaped_attention.architectures.reading import model_from_config
from shaped_attention.architectures.tokens import checked_ids
from shaped_attention.blocks.reasons import check_chain
from shaped_attention.models.simulate import simulate_model
from shaped_attention.samplers.sweep_cells import whole_steps

_OWN = ("layer", "config", "tokens", "ids", "accept_approximation")


def config_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration as plain data, with its name."""
    values, name = read_config(config)
    return values | ({"_name_or_path": name} if name else {})


@dataclass(frozen=True)
class CellOfModel:
    """A model at initialisation and the vocabulary indices `ids` of its tokens; time is layers."""

    samplers = ("model",)
    any_name = True

    model: Model
    ids: tuple[int, ...]
    accept_approximation: bool

    @classmethod
    def parameters(cls, layer: Any) -> tuple[str, ...]:
        """Return the names that a sweep of models may fix or vary besides all fields."""
        return _OWN[1:]

    @classmethod
    def make(cls, values: Mapping[str, Any], samplers: tuple[str, ...]) -> Self:
        """Return the cell; raise ValueError if a field is missing, invalid or not covered."""
        if not isinstance(values.get("config"), Mapping):
            raise ValueError("config must be given, fixed or as an axis")
        if ("tokens" in values) == ("ids" in values):
            raise ValueError("tokens, ids: give exactly one of the two")
        fields = {name: value for name, value in values.items() if name not in _OWN}
        model = model_from_config(values["config"], **fields)
        ids = checked_ids(model.embedding, values.get("tokens", values.get("ids")))
        accept = values.get("accept_approximation", False)
        return cls(model, tuple(int(i) for i in ids), bool(accept))

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    def times(self, sampler: str, fractions: tuple[float, ...]) -> list[float]:
        """Return the layers at these fractions of the depth; raise ValueError between layers."""
        return list(map(float, self._positions(fractions)))

    def _positions(self, fractions: tuple[float, ...]) -> list[int]:
        return whole_steps(fractions, self.model.depth, "layers", "model")

    def check(self, sampler: str, samples: int, seed: int, dtype: str) -> None:
        """Raise the ValueError that `simulate_model` would, without simulating anything."""
        if self.model.approximations and not self.accept_approximation:
            raise ValueError(
                f"accept_approximation must be True: the initialisation of {self.model} is not "
                f"Gaussian ({'; '.join(self.model.approximations)})"
            )
        check_chain(self.model.layer)

    def sample(self, sampler: str, fractions: tuple[float, ...], **settings: Any) -> xr.Dataset:
        """Run the sampler."""
        result = simulate_model(
            self.model, list(self.ids), entropy=False, progress=False,
            accept_approximation=self.accept_approximation, **settings,
        )  # fmt: skip
        return result.isel(position=self._positions(fractions))
