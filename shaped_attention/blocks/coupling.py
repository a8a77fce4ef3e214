"""The Brownian increments of the limit that correspond to the random numbers of a layer.

A layer of the chain draws Gaussian matrices and Bartlett factors. To leading order in 1 / sqrt n
its noise is F M F^T / sqrt n with a symmetric Gaussian M, plus the noise of the scores. The parts:

- a branch added to the skip connection (`Block.forward`) draws H and C with C C^T ~
  Wishart(n - m), and contributes lambda gamma (H + H^T) + gamma^2 W(C) to M;
- a Wishart matrix S = C C^T with k degrees of freedom is k I + sqrt k W(C) + ..., where W_ij = C_ij
  off the diagonal and W_ii = sqrt 2 Phi^-1(P(chi^2 <= C_ii^2)) on it: the quantile coupling of the
  chi variables of Bartlett's factor. The entries of W are independent and exactly Gaussian.

Bartlett: Muirhead, *Aspects of Multivariate Statistical Theory* (1982), theorem 3.2.14.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from scipy.special import chdtrc, ndtri

from shaped_attention.blocks.parameters import Parameters
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.named_numbers import TorchNumbers

Handed = dict[tuple[str, int], Tensor]
"""Numbers drawn by a block in a step, by name and head."""


@dataclass
class RecordedNumbers(TorchNumbers):
    """Numbers that are recorded when they are drawn; hidden columns as the sum of g g^T."""

    handed: Handed = field(default_factory=dict)

    def normal(
        self, name: str, rows: int, columns: int, head: int = 0
    ) -> Float[Tensor, "B rows columns"]:
        """Draw and record; see `TorchNumbers.normal`."""
        self.handed[name, head] = super().normal(name, rows, columns, head)
        return self.handed[name, head]

    def wishart(self, name: str, rows: int, dof: int, head: int = 0) -> Float[Tensor, "B m c"]:
        """Draw and record; see `TorchNumbers.wishart`."""
        self.handed[name, head] = super().wishart(name, rows, dof, head)
        return self.handed[name, head]

    def hidden_columns(self, name: str, rows: int, count: int, head: int = 0) -> Iterator[Tensor]:
        """Draw columns and record the sum of g g^T; see `TorchNumbers.hidden_columns`."""
        gram = torch.zeros(len(self.samples), rows, rows, dtype=self.dtype)
        self.handed[name, head] = gram
        for columns in super().hidden_columns(name, rows, count, head):
            gram += columns @ columns.mT
            yield columns


class Coupling:
    """Map from a block's random numbers in the chain to increments of the limit.

    The field `coupling` of a block is either such a map or the reason why chain and limit cannot be
    driven by the same numbers, as the end of a sentence.
    """

    def reason_against(self, tokens: int, width: int) -> str:
        """Return why chain and limit cannot be coupled at this size; empty if they can."""
        return ""

    def common(self, p: Parameters, handed: Handed, width: int) -> Float[Tensor, "B m m"] | float:
        """Return the symmetric M of the noise F M F^T / sqrt n without the part of the branch."""
        return 0.0

    def scores(self, handed: Handed) -> Float[Tensor, "B r c"] | None:
        """Return sqrt n times the increments of the block's own noise, or None."""
        return None


def least_width(tokens: int, groups: int) -> int:
    """Return the least width at which every branch has Bartlett factors, which are coupled."""
    return groups * (2 * tokens + 2)


def wishart_noise(lower: Float[Tensor, "B m m"], dof: int) -> Float[Tensor, "B m m"]:
    """Return W(C) of Bartlett factors C: symmetric, with variance 1 off and 2 on the diagonal."""
    diagonal = normal_of_chi(lower.diagonal(dim1=-2, dim2=-1), dof)
    below = lower.tril(-1)
    return below + below.mT + torch.diag_embed(diagonal)


def branch_noise(
    gaussian: Float[Tensor, "B m m"],
    rest: Float[Tensor, "B m m"],
    skip: float,
    gamma: float,
    dof: int,
) -> Float[Tensor, "B m m"]:
    """Return a branch's contribution to M, ``lambda gamma (H + H^T) + gamma^2 W(C)``."""
    return skip * gamma * (gaussian + gaussian.mT) + gamma**2 * wishart_noise(rest, dof)


def normal_of_chi(chi: Float[Tensor, "B m"], dof: int) -> Float[Tensor, "B m"]:
    """Return sqrt 2 times the normal quantiles of chi variables with dof, dof - 1, ... degrees."""
    degrees = dof - np.arange(chi.shape[-1])
    # The upper tail keeps the digits of probabilities near 1.
    return -math.sqrt(2.0) * torch.from_numpy(ndtri(chdtrc(degrees, chi.numpy() ** 2)))
