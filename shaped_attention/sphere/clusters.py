"""Measures of clustering: functions of batches of Gram matrices V, V_ij = <x_i, x_j>.

Two tokens are close if V_ij >= 1 - delta. A cluster is a connected component of the graph of close
tokens, so a chain of close tokens is one cluster. The attractive flow converges to one cluster from
almost every initial condition (Geshkovski, Letrouit, Polyanskiy and Rigollet, arXiv 2312.10794).

All functions accept a tensor, a NumPy array or the `V` of a result, and return the same kind. Of
tokens with lengths they take the cosines V_ij / sqrt(V_ii V_jj).
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shaped_attention.checks import argument_error, check_inside
from shaped_attention.sphere.array_arguments import also_of_arrays


@also_of_arrays("gram")
def cluster_count(gram: Float[Tensor, "*B N N"], delta: float) -> Int[Tensor, "*B"]:
    """Return the number of clusters: connected components of the graph {V_ij >= 1 - delta}.

    After k squarings of the adjacency matrix a token is joined to all tokens within 2^k links.

    Parameters
    ----------
    gram
        Gram matrices (..., N, N), with positive diagonals.
    delta
        Two tokens are linked if their cosine is at least 1 - delta; strictly between 0 and 1.

    Returns
    -------
    Integers (...) from 1 to N.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    # A cluster is counted at its first token, which is joined to no earlier one.
    return (_joined(gram, delta).tril(-1).sum(-1) == 0.0).sum(-1)


@also_of_arrays("gram")
def cluster_masses(gram: Float[Tensor, "*B N N"], delta: float) -> Float[Tensor, "*B N"]:
    """Return the fractions of the tokens in each cluster, the largest first, then zeros.

    Arguments and errors are those of `cluster_count`, which returns the number of positive masses.
    For the `V` of a result the last dimension is `cluster`.

    Examples
    --------
    >>> gram = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.99], [0.0, 0.99, 1.0]]
    >>> cluster_masses(gram, 0.1).round(2)
    array([0.67, 0.33, 0.  ])
    """
    joined = _joined(gram, delta)
    first = joined.tril(-1).sum(-1) == 0.0
    sizes = torch.where(first, joined.sum(-1), 0.0).to(gram.dtype)
    return sizes.sort(-1, descending=True).values / gram.shape[-1]


def _joined(gram: Tensor, delta: float) -> Float[Tensor, "*B N N"]:
    """Return 1 where two tokens are in the same cluster, and 0 elsewhere."""
    near = _close(gram, delta)
    itself = torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device)
    joined = (near | near.mT | itself).float()
    for _ in range(math.ceil(math.log2(gram.shape[-1]))):
        joined = (joined @ joined).clamp(max=1.0)
    return joined


@also_of_arrays("gram")
def close_pairs(gram: Float[Tensor, "*B N N"], delta: float) -> Float[Tensor, "*B"]:
    """Return the fraction of pairs i < j with a cosine of at least 1 - delta.

    Raises
    ------
    ValueError
        If there are fewer than two tokens, or an argument is outside its range.
    """
    near = _close(gram, delta)
    if gram.shape[-1] < 2:
        raise argument_error("gram", "a matrix of at least two tokens", tuple(gram.shape))
    above = torch.ones(gram.shape[-2:], device=gram.device).triu(1) > 0.0
    return near[..., above].to(gram.dtype).mean(-1)


@also_of_arrays("gram")
def order_parameter(gram: Float[Tensor, "*B N N"]) -> Float[Tensor, "*B"]:
    """Return the norm of the mean direction, |sum_i x_i| / N = sqrt(sum_ij V_ij) / N if |x_i| = 1.

    It is 1 for one cluster.

    Raises
    ------
    ValueError
        If `gram` does not hold finite square matrices with positive diagonals.
    """
    gram = _cosines(gram)
    return gram.sum((-2, -1)).clamp(min=0.0).sqrt() / gram.shape[-1]


def _close(gram: Tensor, delta: float) -> Bool[Tensor, "*B N N"]:
    check_inside("delta", delta)
    return _cosines(gram) >= 1.0 - delta


def _cosines(gram: Tensor) -> Float[Tensor, "*B N N"]:
    """Return V_ij / sqrt(V_ii V_jj), or V itself if its diagonal is 1 to 1e-6."""
    if gram.ndim < 2 or gram.shape[-1] != gram.shape[-2]:
        raise argument_error("gram", "of shape (..., N, N)", tuple(gram.shape))
    if gram.shape[-1] == 0 or not bool(torch.isfinite(gram).all()):
        raise ValueError(
            "gram must be finite and not empty; it is empty or has NaN or infinite entries"
        )
    squares = gram.diagonal(dim1=-2, dim2=-1)
    if bool(((squares - 1.0).abs() < 1e-6).all()):
        return gram
    if not bool((squares > 0.0).all()):
        raise ValueError("gram must have a positive diagonal; a token of length 0 has no direction")
    # One length at a time: the product of two could overflow where the ratio does not.
    lengths = squares.sqrt()
    return gram / lengths[..., :, None] / lengths[..., None, :]
