"""The Brownian increments of the limit that the random numbers of a layer stand for.

A layer of the chain draws Gaussian matrices and Bartlett factors. To leading order in 1 / sqrt n
its noise is F M F^T / sqrt n with a symmetric Gaussian M, and the noise of the scores. Each piece:

- a branch added to the skip connection (`branch.gaussian_branch`) draws H and C with C C^T ~
  Wishart(n - m), and M has the part lambda gamma (H + H^T) + gamma^2 W(C);
- a Wishart matrix S = C C^T with k degrees of freedom is k I + sqrt k W(C) + ..., where W_ij = C_ij
  off the diagonal and W_ii = sqrt 2 Phi^-1(P(chi^2 <= C_ii^2)) on it: the quantile coupling of the
  chi variables of Bartlett's factor. The entries of W are independent and exactly Gaussian.

Bartlett: Muirhead, *Aspects of Multivariate Statistical Theory* (1982), theorem 3.2.14.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import chi2, norm
from torch import Tensor

from shaped_attention.draws import Draws


@dataclass
class RecordedDraws(Draws):
    """Draws that keep what they hand out, in order; of a series of columns, the sum of g g^T."""

    handed: list[Tensor] = field(default_factory=list)

    def normal(self, rows: int, columns: int) -> Float[Tensor, "B rows columns"]:
        """As `Draws.normal`."""
        self.handed.append(super().normal(rows, columns))
        return self.handed[-1]

    def wishart_factor(self, m: int, dof: int) -> Float[Tensor, "B m c"]:
        """As `Draws.wishart_factor`."""
        self.handed.append(super().wishart_factor(m, dof))
        return self.handed[-1]

    def column_blocks(self, rows, count, block):  # type: ignore[no-untyped-def]
        """As `Draws.column_blocks`."""
        gram = torch.zeros(len(self.samples), rows, rows, dtype=self.dtype)
        self.handed.append(gram)
        for columns in super().column_blocks(rows, count, block):
            gram += columns @ columns.mT
            yield columns


def wishart_noise(lower: Float[Tensor, "B m m"], dof: int) -> Float[Tensor, "B m m"]:
    """W(C), symmetric with variance 1 off and 2 on the diagonal, of Bartlett factors C."""
    diagonal = normal_of_chi(lower.diagonal(dim1=-2, dim2=-1), dof)
    below = lower.tril(-1)
    return below + below.mT + torch.diag_embed(diagonal)


def branch_noise(
    gaussian: Float[Tensor, "B m m"], rest: Float[Tensor, "B m m"], gamma: float, dof: int
) -> Float[Tensor, "B m m"]:
    """The part of M that a branch brings: ``lambda gamma (H + H^T) + gamma^2 W(C)``."""
    skip = math.sqrt(1.0 - gamma**2)
    return skip * gamma * (gaussian + gaussian.mT) + gamma**2 * wishart_noise(rest, dof)


def normal_of_chi(chi: Float[Tensor, "B m"], dof: int) -> Float[Tensor, "B m"]:
    """sqrt 2 times the normal quantile of chi variables with dof, dof - 1, ... degrees."""
    degrees = dof - np.arange(chi.shape[-1])
    # The upper tail keeps digits where the probability is near 1.
    return math.sqrt(2.0) * torch.from_numpy(norm.isf(chi2.sf(chi.numpy() ** 2, degrees)))
