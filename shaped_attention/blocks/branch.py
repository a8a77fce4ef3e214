"""The Gaussian residual branch that blocks end with, in torch.

The compiled twin is in `shaped_attention.kernels.wishart`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.draws import Draws
from shaped_attention.factors import lower_factor


def total_factor(factors: Float[Tensor, "B g m m"]) -> Float[Tensor, "B m m"]:
    """A factor of V = (1/g) sum of V_h, from factors of the Grams V_h of g groups of columns."""
    groups = factors.shape[1]
    root = factors.transpose(1, 2).flatten(-2) / math.sqrt(groups)
    return lower_factor(root)


def gaussian_branch(
    factor: Float[Tensor, "B m m"],
    branch: Float[Tensor, "B m c"],
    gamma: float,
    width: int,
    draws: Draws,
) -> Float[Tensor, "B m m"]:
    """A factor of the covariance of ``lambda X + gamma Z`` with Z = (branch) times Gaussian.

    X = sqrt(n) F Q with orthonormal rows Q (m, n), and the n columns of Z are independent
    N(0, branch branch^T). Z = branch W with W (c, n) Gaussian; W Q^T is a Gaussian H (c, m), and
    what is orthogonal to Q has the Gram of a Gaussian (c, n - m), whose law is Wishart. So

        V' = D D^T + E E^T,  D = lambda F + gamma branch H / sqrt n,  E = gamma branch B / sqrt n

    with B B^T ~ Wishart_c(n - m, I), exactly, and no n-dimensional object.
    """
    m, columns = factor.shape[-1], branch.shape[-1]
    gaussian = draws.normal(columns, m)
    rest = draws.wishart_factor(columns, width - m)
    scale = gamma / math.sqrt(width)
    along = math.sqrt(1.0 - gamma**2) * factor + scale * (branch @ gaussian)
    return lower_factor(torch.cat([along, scale * (branch @ rest)], dim=-1))
