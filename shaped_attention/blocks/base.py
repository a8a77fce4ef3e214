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

Time is t = l / n, so b is the limit of n E[V' - V] and Sigma that of n Cov V'. The integrator never
calls `drift`, which must equal H F^T + F H^T + E[G G^T] + (d/dt of `flow`), where H is the
`factor_drift` and G the `factor_noise` of a unit increment (the tests of the blocks check it so).

A whole block, X' = lambda X + gamma X W / sqrt n, whose V' - V has the cross term 2 gamma^2
(1 - gamma^2) and the Wishart term gamma^4, so that k = gamma^2 (2 - gamma^2) and b = 0::

    @dataclass(frozen=True)
    class Linear(Block):
        gamma: float

        @property
        def linear_rate(self):
            return self.gamma**2 * (2 - self.gamma**2)

        def branch(self, tokens, project):
            n = tokens.shape[-1]
            return project(tokens, n) / n**0.5

        def branch_factor(self, factor, width, draws):
            return factor

        def drift(self, v):
            return torch.zeros_like(v)

A branch ends in Gaussian weights, so that given everything else its n columns are independent
N(0, K): `branch_factor` is any root of K, and the exact step follows from it
(`shaped_attention.blocks.branch`). `draws` (`shaped_attention.draws.Draws`) hands out normals and
Wishart factors; `shaped_attention.checks` has the checks that `__post_init__` should make.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.blocks.branch import gaussian_branch, total_factor
from shaped_attention.draws import Draws

Project = Callable[[Tensor, int], Tensor]
"""``project(x, columns)`` is x @ W with a fresh matrix W of independent N(0, 1) weights."""

Tiles = NDArray[np.float64]


class Block(ABC):
    """A residual block ``X' = lambda X + gamma * branch(X)`` with lambda^2 + gamma^2 = 1.

    Subclasses are frozen dataclasses whose fields are plain data: a result stores them and can be
    run again from what it stores. The torch faces are enough for every sampler; a block whose
    `compiled_chain` or `compiled_sde` is true also has compiled faces on tiles (see
    `shaped_attention.kernels`), which must give the same paths. A subclass does not inherit them:
    what it overrides would have no effect.
    """

    gamma: float
    has_flow: ClassVar[bool] = False

    @property
    @abstractmethod
    def linear_rate(self) -> float:
        """The coefficient k of V_ac V_bd + V_ad V_bc in the diffusion."""

    @abstractmethod
    def branch(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """The branch of tokens, with real weight matrices."""

    @abstractmethod
    def branch_factor(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B *heads m c"]:
        """A root of the covariance of a column of the branch, for tokens with a factor of V.

        In law exactly as in a block of that width; (B, H, m, c) if the columns fall into `groups`
        H > 1 groups with a covariance each.
        """

    @property
    def groups(self) -> int:
        """Into how many groups of equal size the columns of the branch fall."""
        return 1

    @property
    def no_limit(self) -> str:
        """Why the block has no limit, as the end of a sentence; empty if it has one."""
        return ""

    @property
    def no_chain(self) -> str:
        """Why V does not suffice for the law of the next layer; empty if it does."""
        return ""

    def forward(self, tokens: Float[Tensor, "*B m n"], project: Project) -> Float[Tensor, "*B m n"]:
        """Apply the block to tokens with real weight matrices."""
        branch = self.branch(tokens, project)
        return math.sqrt(1.0 - self.gamma**2) * tokens + self.gamma * branch

    def chain_step(
        self, factor: Float[Tensor, "B m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B m m"]:
        """Take a factor of V_l to one of V_{l+1}, in law exactly as a block of that width does."""
        root = self.branch_factor(factor, width, draws)
        return gaussian_branch(factor, root, self.gamma, width, draws)

    def grouped_chain_step(
        self, factors: Float[Tensor, "B g m m"], width: int, draws: Draws
    ) -> Float[Tensor, "B g m m"]:
        """`chain_step` for the Grams of g groups of n / g columns each (see `total_factor`).

        The groups' branches are independent given the past, and a group's skip connection is its
        own: V_g' = Gram of lambda X_g + gamma Z_g, where the columns of Z_g have the covariance
        that `branch_factor` gives for all tokens.
        """
        groups = factors.shape[1]
        root = self.branch_factor(total_factor(factors), width, draws)
        heads = root if root.ndim == factors.ndim else root[:, None]
        share = groups // heads.shape[1]
        stepped = [
            gaussian_branch(factors[:, g], heads[:, g // share], self.gamma, width // groups, draws)
            for g in range(groups)
        ]
        return torch.stack(stepped, dim=1)

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

    def no_coupling(self, tokens: int, width: int) -> str:
        """Why chain and limit cannot be driven by the same numbers; empty if they can."""
        return "it does not say what its random numbers are in the limit (coupled_noise)"

    def coupled_noise(
        self, numbers: list[Tensor], width: int
    ) -> tuple[Float[Tensor, "B m m"] | float, Float[Tensor, "B k"] | None]:
        """Sqrt n times the Brownian increments that the numbers of `branch_factor` stand for.

        First the symmetric M with the noise F M F^T / sqrt n beyond that of the Gaussian branch,
        then those of `factor_noise` (see `shaped_attention.blocks.coupling`). Called only if
        `no_coupling` gives no reason.
        """
        raise RuntimeError(f"{type(self).__name__} cannot be coupled")

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
            plain = isinstance(value, np.ndarray | np.generic)
            if isinstance(value, Block):
                value = value.specification()
            values[entry.name] = value.tolist() if plain else value
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
    if isinstance(layer, Block):
        return (layer,)
    if not isinstance(layer, list | tuple) or not layer:
        raise ValueError(f"layer={layer!r}: a block or a non-empty list of blocks is needed")
    for i, block in enumerate(layer):
        if not isinstance(block, Block):
            raise ValueError(f"layer[{i}]={block!r}: a block is needed")
    return tuple(layer)


def has_compiled_chain(block: Block, tokens: int, width: int) -> bool:
    """Whether a compiled chain step of the block's own class fits.

    One that is inherited has the mathematics of the parent, whatever the subclass overrides.
    """
    return "chain_tiles" in vars(type(block)) and block.compiled_chain(tokens, width)


def has_compiled_sde(block: Block, tokens: int) -> bool:
    """Whether a compiled step of the limit, and of the flow, of the block's own class fits."""
    needed = {"sde_tiles", "flow_tiles"} if block.has_flow else {"sde_tiles"}
    return needed <= vars(type(block)).keys() and block.compiled_sde(tokens)


def plain_fields(block: Block) -> None:
    """Turn NumPy scalars in the fields of a frozen block into Python's numbers.

    A result stores Python's numbers, and run again they must give the same bits: NumPy would
    compute with a float32 scalar in single precision.
    """
    for entry in fields(block):  # type: ignore[arg-type]
        value = getattr(block, entry.name)
        if isinstance(value, np.generic):
            object.__setattr__(block, entry.name, value.item())


def check_limit(layer: Layer) -> None:
    """Raise ValueError if a block of the layer has no limit, with the reason."""
    for block in blocks_of(layer):
        if block.no_limit:
            raise ValueError(f"layer contains {block!r}, which has no limit: {block.no_limit}")


def check_chain(layer: Layer) -> None:
    """Raise ValueError if a block of the layer has no exact chain, with the reason."""
    for block in blocks_of(layer):
        if block.no_chain:
            raise ValueError(f"layer contains {block!r}, which has no chain: {block.no_chain}")


def check_storable(block: Block) -> None:
    """Raise ValueError unless a result can store the block: said before a run, not after it."""
    try:
        json.dumps(block.specification())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"layer contains {block!r}: a dataclass whose fields are plain data is needed ({error})"
        ) from None


def symmetric(x: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m"]:
    """``x + x^T``."""
    return x + x.mT


def linear_diffusion(v: Float[Tensor, "*B m m"]) -> Float[Tensor, "*B m m m m"]:
    """``Sigma_lin^{ab,cd} = V_ac V_bd + V_ad V_bc``."""
    return torch.einsum("...ac,...bd->...abcd", v, v) + torch.einsum("...ad,...bc->...abcd", v, v)
