"""Measures of clustering: functions of batches of Gram matrices V, V_ij = <x_i, x_j>.

Two tokens are close if V_ij >= 1 - delta. A cluster is a connected component of the graph of close
tokens, so a chain of close tokens is one cluster. The attractive flow converges to one cluster from
almost every initial condition (Geshkovski, Letrouit, Polyanskiy and Rigollet, arXiv 2312.10794).

All functions accept a tensor, a NumPy array or the `V` of a result, and return the same kind. Of
tokens with lengths they take the cosines V_ij / sqrt(V_ii V_jj).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shaped_attention.checks import argument_error, check_inside, real_array


def _of_any_kind(*dimensions: str) -> Callable[[Callable[..., Tensor]], Callable[..., Any]]:
    """Let a function of tensors accept arrays and the V of a result; `dimensions` are its own."""

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Any]:
        @wraps(function)
        def call(gram: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(gram, Tensor):
                return function(gram, *args, **kwargs)
            return xr.apply_ufunc(
                lambda x: function(torch.tensor(real_array(x, "gram")), *args, **kwargs).numpy(),
                gram, input_core_dims=[["row", "col"]], output_core_dims=[[*dimensions]],
            )  # fmt: skip

        return call

    return decorate


@_of_any_kind()
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


@_of_any_kind("cluster")
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


@_of_any_kind()
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


def _close(gram: Tensor, delta: float) -> Bool[Tensor, "*B N N"]:
    check_inside("delta", delta)
    return _cosines(gram) >= 1.0 - delta


def _cosines(gram: Tensor) -> Float[Tensor, "*B N N"]:
    """Return V_ij / sqrt(V_ii V_jj)."""
    if gram.ndim < 2 or gram.shape[-1] != gram.shape[-2]:
        raise argument_error("gram", "of shape (..., N, N)", tuple(gram.shape))
    lengths = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    if not bool((lengths > 0.0).all()):
        raise ValueError("gram must have a positive diagonal; a token of length 0 has no direction")
    return gram / (lengths[..., :, None] * lengths[..., None, :])
