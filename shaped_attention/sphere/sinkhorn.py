"""Doubly stochastic attention: weights whose rows and columns all sum to 1.

    w = diag(e^f) exp(logits) diag(e^g),    sum_j w_ij = 1,    sum_i w_ij = 1,

see Sander, Ablin, Blondel and Peyre, "Sinkformers" (AISTATS 2022, arXiv 2110.11773), with all of
Sinkhorn's iterations. w is the plan of entropic optimal transport, times N: of all matrices with
these sums it has the largest sum_ij w_ij (logits_ij - log w_ij).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

_MOST_ITERATIONS = 10_000
_ROUNDING = 32.0
"""Error of a sum of weights, in units of eps (1 + the largest logit)."""

_SHARE = 2.0 / 3.0
"""Share of the way to the next potentials: the best for eigenvalues of w between 0 and 1."""


def doubly_stochastic(logits: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B N N"]:
    """Return the weights w (..., N, N) of logits (..., N, N); NaN if a logit is not finite.

    Both potentials go 2/3 of the way to their next values together. This converges for every
    matrix, since Sinkhorn's map does not increase the largest difference of potentials (averaged
    maps: Ishikawa, Proc. AMS 59, 1976), and keeps f = g if the logits are symmetric. Errors are
    then multiplied by (1 - 2 s) / 3 for each eigenvalue s of w: by at most 1/3 in absolute value
    for positive semidefinite kernels, whereas Sinkhorn's alternating iterations have s^2, near 1
    for tokens in separate clusters.

    Raises
    ------
    FloatingPointError
        If the sums are not 1 to rounding after 10,000 iterations.
    """
    largest = logits.abs().amax()
    tolerance = _ROUNDING * torch.finfo(logits.dtype).eps * (1.0 + largest)
    rows, columns = logits.amax(-1, keepdim=True), logits.amax(-2, keepdim=True)
    # No entry overflows, and each row and column has one of order 1.
    kernel = torch.exp(logits - 0.5 * (rows + columns))
    left = logits.new_ones((*logits.shape[:-1], 1))
    right = left
    for _ in range(_MOST_ITERATIONS):
        of_rows = left * (kernel @ right)
        of_columns = right * (kernel.mT @ left)
        apart = torch.maximum((of_rows - 1.0).abs().amax(), (of_columns - 1.0).abs().amax())
        if not bool(apart > tolerance):
            # Also if it is NaN.
            return left * kernel * right.mT
        left, right = left * of_rows**-_SHARE, right * of_columns**-_SHARE
    raise FloatingPointError(
        f"sums of the doubly stochastic weights differ from 1 by {float(apart):.1g} after "
        f"{_MOST_ITERATIONS} iterations; choose a smaller beta"
    )
