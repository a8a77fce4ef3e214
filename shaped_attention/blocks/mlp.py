"""Shaped ReLU network: a hidden layer whose activation tends to the identity with the width.

    X' = lambda X + gamma sqrt(c / n) s(X W_pre / sqrt n) W_post,
    s(x) = s_+ max(x, 0) + s_- min(x, 0),   s_pm = 1 + c_pm / sqrt n,   1 / c = E s(g)^2,

see Li, Nica and Roy, "The neural covariance SDE" (arXiv 2206.02768). The limit has the drift
gamma^2 nu(rho_ab) sqrt(V_aa V_bb), nu(r) = (c_+ - c_-)^2 / (2 pi) (sqrt(1 - r^2) - r arccos r).
With J(r) = sqrt(1 - r^2) + r (pi - arccos r), the arc-cosine kernel of Cho and Saul (2009), this
is kappa (J - pi r) with kappa = gamma^2 (c_+ - c_-)^2 / (2 pi): a positive semidefinite matrix
minus a multiple of V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.base import Block, Project, Tiles, plain_fields
from shaped_attention.blocks.coupling import wishart_noise
from shaped_attention.checks import check_finite, check_fraction
from shaped_attention.draws import Draws
from shaped_attention.factors import semidefinite_cholesky
from shaped_attention.kernels.mlp import mlp_chain, mlp_flow

_LARGEST_C = 1e12
_SMALLEST_SLOPE = 1e-12
"""Below, a slope 1 + c / sqrt n is mostly the rounding of c."""

_COLUMNS = 256
"""Hidden units at once in torch; even, and fixed so that chunks do not change a sum's order."""


@dataclass(frozen=True)
class ShapedMLP(Block):
    """Shaped ReLU network with one hidden layer as wide as the tokens.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1]; the skip connection has sqrt(1 - gamma^2).
    c_plus, c_minus
        Slopes are 1 + c_plus / sqrt n for positive and 1 + c_minus / sqrt n for negative inputs.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    gamma: float
    c_plus: float = 0.0
    c_minus: float = -1.0

    def __post_init__(self) -> None:
        plain_fields(self)
        check_fraction("gamma", self.gamma)
        for name, c in (("c_plus", self.c_plus), ("c_minus", self.c_minus)):
            check_finite(name, c)
            if abs(c) > _LARGEST_C:
                raise ValueError(
                    f"{name}={c!r}: a number from {-_LARGEST_C:g} to {_LARGEST_C:g} is needed"
                )

    @property
    def has_flow(self) -> bool:  # type: ignore[override]
        """Whether the activation is not linear; if so the drift raises the rank of V."""
        return self.gamma > 0.0 and self.c_plus != self.c_minus

    @property
    def linear_rate(self) -> float:
        """``2 gamma^2``, one gamma^2 for each of the two weight matrices."""
        return 2.0 * self.gamma**2

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if both slopes vanish at this width."""
        if width is not None and max(map(abs, self.slopes(width))) < _SMALLEST_SLOPE:
            raise ValueError(
                f"c_plus={self.c_plus!r}, c_minus={self.c_minus!r}: at width {width} both slopes "
                "of the activation vanish; at least one must not"
            )

    def slopes(self, width: int) -> tuple[float, float]:
        """``s_+`` and ``s_-`` at a width."""
        root = math.sqrt(width)
        return 1.0 + self.c_plus / root, 1.0 + self.c_minus / root

    def _normalisation(self, width: int) -> float:
        """``c`` with 1 / c = E s(g)^2 = (s_+^2 + s_-^2) / 2."""
        plus, minus = self.slopes(width)
        return 2.0 / (plus**2 + minus**2)

    def _activation(self, x: Tensor, width: int) -> Tensor:
        plus, minus = self.slopes(width)
        return plus * x.clamp(min=0.0) + minus * x.clamp(max=0.0)

    def branch(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """The hidden layer with weights W_pre, W_post drawn in this order."""
        n = tokens.shape[-1]
        hidden = self._activation(project(tokens, n) / math.sqrt(n), n)
        return math.sqrt(self._normalisation(n) / n) * project(hidden, n)

    def branch_factor(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B m m"]:
        """A factor of the Gram of n hidden units h = F g.

        It costs O(n m^2): the Gram matrix of a nonlinear function has no simpler exact law.
        """
        m = factor.shape[-1]
        gram = torch.zeros_like(factor)
        for gaussian in draws.column_blocks(m, width, _COLUMNS):
            hidden = self._activation(factor @ gaussian, width)
            gram = gram + hidden @ hidden.mT
        return semidefinite_cholesky(gram * (self._normalisation(width) / width))

    def no_coupling(self, tokens: int, width: int) -> str:
        """Nothing: any width that the chain's branch needs is enough."""
        return ""

    def coupled_noise(self, numbers: list[Tensor], width: int) -> tuple[Tensor, None]:
        """gamma^2 W of the Gram of the hidden Gaussians: to leading order hidden units are them."""
        return self.gamma**2 * wishart_noise(semidefinite_cholesky(numbers[0]), width), None

    @property
    def _kappa(self) -> float:
        return self.gamma**2 * (self.c_plus - self.c_minus) ** 2 / (2.0 * math.pi)

    def drift(self, v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
        """``gamma^2 nu(rho_ab) sqrt(V_aa V_bb)``: zero on the diagonal."""
        root = v.diagonal(dim1=-2, dim2=-1).sqrt()
        scale = root[..., :, None] * root[..., None, :]
        return self._kappa * scale * _nu(v / torch.where(scale > 0.0, scale, 1.0))

    def flow(self, v: Float[Tensor, "B m m"], step: float) -> Float[Tensor, "B m m"]:
        """``exp(-kappa pi h) V + (1 - exp(-kappa pi h)) / pi sqrt(V_aa V_bb) J(rho_ab)``.

        A positive combination of two positive semidefinite matrices, with the diagonal of V.
        """
        decay = math.exp(-self._kappa * math.pi * step)
        root = v.diagonal(dim1=-2, dim2=-1).sqrt()
        scale = root[..., :, None] * root[..., None, :]
        r = (v / torch.where(scale > 0.0, scale, 1.0)).clamp(-1.0, 1.0)
        kernel_matrix = scale * ((1.0 - r * r).sqrt() + r * (math.pi - torch.arccos(r)))
        return decay * v + (1.0 - decay) / math.pi * kernel_matrix

    def compiled_chain(self, tokens: int, width: int) -> bool:
        """Always."""
        return True

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
        """Compiled `chain_step`."""
        plus, minus = self.slopes(width)
        scale = self._normalisation(width) / width
        mlp_chain(F, alive, width, self.gamma, plus, minus, scale, key, first, step, slot)

    def compiled_sde(self, tokens: int) -> bool:
        """Always."""
        return True

    def sde_tiles(
        self, F: Tiles, increments: Tiles, row: int, multiplier: Tiles, drift: Tiles, step: float
    ) -> None:
        """Nothing: the limit is the common noise and the flow."""

    def flow_tiles(self, F: Tiles, step: float) -> None:
        """Compiled `flow`."""
        mlp_flow(F, math.exp(-self._kappa * math.pi * step))


def _nu(r: Tensor) -> Tensor:
    """``sqrt(1 - r^2) - r arccos r``, and at the ends, or beyond by rounding, its tangents.

    Its derivative -arccos r is finite everywhere; those of the two terms are not at the ends.
    """
    inside = r.abs() < 1.0
    safe = torch.where(inside, r, 0.0)
    value = (1.0 - safe * safe).sqrt() - safe * torch.arccos(safe)
    return torch.where(inside, value, -math.pi * r.clamp(max=0.0))
