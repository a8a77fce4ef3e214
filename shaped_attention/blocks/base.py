"""What a residual block is: the faces that the drivers call.

A block owns its mathematics and knows nothing of loops; a driver owns a loop and knows nothing of
attention. With F any m x m factor of the covariance, V = F F^T, a block contributes to the limit

    dV = b(V) dt + sqrt(k) (F dZ_1 F^T) + (further noise),    k = `linear_rate`,

where Z_1 is a symmetric Brownian motion (variance t off the diagonal, 2 t on it). The first noise
is common to all blocks whose output weights are Gaussian, so it is a number here. The rest is given
for the factor: dF = `factor_drift` dt + `factor_noise` (dZ), plus the correction
-k (m + 1) / 8 F dt of the common noise, which the driver adds. A part of b that is positive
semidefinite without being of the form H F^T + F H^T (it raises the rank of V) cannot be a drift of
a square factor: it is given as `flow`, one step of dV = (that part) dt which keeps V positive
semidefinite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.draws import Draws

Project = Callable[[Tensor, int], Tensor]
"""``project(x, columns)`` is x @ W with a fresh matrix W of independent N(0, 1) weights."""

Tiles = NDArray[np.float64]


class Block(ABC):
    """A residual block ``X' = lambda X + gamma * branch(X)`` with lambda^2 + gamma^2 = 1.

    Subclasses are frozen dataclasses whose fields are plain data: a result stores them and can be
    run again from what it stores. The torch faces are enough for every sampler; a block whose
    `compiled_chain` or `compiled_sde` is true also has compiled faces on tiles (see
    `shaped_attention.kernels`), which must give the same paths.
    """

    has_flow: bool = False

    @property
    @abstractmethod
    def linear_rate(self) -> float:
        """The coefficient k of V_ac V_bd + V_ad V_bc in the diffusion."""

    @abstractmethod
    def forward(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """Apply the block to tokens with real weight matrices."""

    @abstractmethod
    def chain_step(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B m m"]:
        """Take a factor of V_l to one of V_{l+1}, in law exactly as a block of that width does."""

    @abstractmethod
    def drift(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """The drift b(V) of the limit, symmetric."""

    def extra_diffusion(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"] | None:
        """Diffusion Sigma^{ab,cd}(V) beyond `linear_rate`, or None."""
        return None

    def noise_size(self, tokens: int) -> int:
        """Number of scalar Brownian motions that `factor_noise` takes."""
        return 0

    def factor_drift(self, factor: Float[Tensor, "B m m"]) -> Float[Tensor, "B m m"] | None:
        """The drift of F, without `flow` and without the correction of the common noise."""
        return None

    def factor_noise(
        self, factor: Float[Tensor, "B m m"], increments: Float[Tensor, "B k"]
    ) -> Float[Tensor, "B m m"] | None:
        """The noise of F beyond the common one, for Brownian increments."""
        return None

    def flow(self, v: Float[Tensor, "B m m"], step: float) -> Float[Tensor, "B m m"]:
        """One step of the part of the drift that raises the rank; called if `has_flow`."""
        return v

    def check(self, tokens: int, width: int | None) -> None:  # noqa: B027 (most need no check)
        """Raise ValueError if the block cannot act on that many tokens at that width."""

    def compiled_chain(self, tokens: int, width: int) -> bool:
        """Whether `chain_tiles` works for that many tokens at that width."""
        return False

    def compiled_sde(self, tokens: int) -> bool:
        """Whether `sde_tiles` (and `flow_tiles`, if `has_flow`) work for that many tokens."""
        return False

    def chain_tiles(
        self,
        F: Tiles,
        alive: Tiles,
        width: int,
        key: NDArray[np.uint64],
        first: int,
        step: int,
        slot: int,
    ) -> None:
        """Compiled `chain_step`: advance lower triangular factors F (tiles, m, m, LANES)."""
        raise RuntimeError(f"{type(self).__name__} has no compiled chain step")

    def sde_tiles(
        self, F: Tiles, increments: Tiles, row: int, multiplier: Tiles, drift: Tiles, step: float
    ) -> None:
        """Compiled `factor_drift` and `factor_noise`: add step * drift, and the noise F M to M.

        Increments (tiles, rows, LANES) are read from `row` on.
        """
        raise RuntimeError(f"{type(self).__name__} has no compiled step of the limit")

    def flow_tiles(self, F: Tiles, step: float) -> None:
        """Compiled `flow`, from a factor to a lower triangular factor, in place."""
        raise RuntimeError(f"{type(self).__name__} has no compiled flow")

    def specification(self) -> dict[str, Any]:
        """Name and fields, as plain data that JSON can hold."""
        values: dict[str, Any] = {"block": type(self).__name__, "module": type(self).__module__}
        for entry in fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            values[entry.name] = value.tolist() if isinstance(value, np.ndarray) else value
        return values


Layer = Block | list[Block] | tuple[Block, ...]
"""One block, or the blocks of one layer in the order in which they act."""


def blocks_of(layer: Layer) -> tuple[Block, ...]:
    """The blocks of a layer as a tuple.

    Raises
    ------
    ValueError
        If `layer` is neither a block nor a non-empty list of blocks.
    """
    blocks = (layer,) if isinstance(layer, Block) else tuple(layer) if _is_list(layer) else ()
    if not blocks or not all(isinstance(block, Block) for block in blocks):
        raise ValueError(f"layer={layer!r}: a block or a non-empty list of blocks is needed")
    return blocks


def _is_list(layer: object) -> bool:
    return isinstance(layer, list | tuple)


def check_fraction(name: str, value: float) -> None:
    """Raise ValueError unless 0 <= value <= 1."""
    if not (_is_number(value) and 0.0 <= value <= 1.0):
        raise ValueError(f"{name}={value!r}: a number from 0 to 1 is needed")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless value is finite and positive."""
    if not (_is_number(value) and np.isfinite(value) and value > 0.0):
        raise ValueError(f"{name}={value!r}: a positive finite number is needed")


def check_finite(name: str, value: float) -> None:
    """Raise ValueError unless value is a finite number."""
    if not (_is_number(value) and np.isfinite(value)):
        raise ValueError(f"{name}={value!r}: a finite number is needed")


def check_count(name: str, value: int, lowest: int = 1) -> None:
    """Raise ValueError unless value is a whole number >= lowest."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and value >= lowest):
        raise ValueError(f"{name}={value!r}: a whole number >= {lowest} is needed")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def symmetric(x: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """``x + x^T``."""
    return x + x.mT


def linear_diffusion(v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"]:
    """``Sigma_lin^{ab,cd} = V_ac V_bd + V_ad V_bc``."""
    return torch.einsum("...ac,...bd->...abcd", v, v) + torch.einsum("...ad,...bc->...abcd", v, v)
