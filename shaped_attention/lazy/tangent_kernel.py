"""The neural tangent kernel of a random network at finite width and depth, exactly in law."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.blocks.base import Block, Layer, pattern_of
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.reasons import limit_of, limit_reason
from shaped_attention.lazy.deep import LayerGradients
from shaped_attention.lazy.deep_runs import Network, deep_networks
from shaped_attention.lazy.low_rank import frobenius
from shaped_attention.numerics.primitives import concatenate
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.coordinates import inner, total
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.values import stacked
from shaped_attention.samplers.specification import RunOptions, with_options


@recorded(sampler="neural_tangent_kernel")
@with_options(RunOptions)
def neural_tangent_kernel(
    layer: Layer,
    v0: ArrayLike,
    *,
    width: int,
    depth: int,
    samples: int,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Sample the neural tangent kernel of a network at initialisation.

    With f_a = <x_a, v> / sqrt n, where x_a is token a after the last layer and v has N(0, 1)
    entries, the kernel is Theta_ab = sum over all weights of (d f_a / d w) (d f_b / d w), for
    weight matrices of independent N(0, 1) entries. If depth and width grow together it is random.
    In the limit of infinite width at a fixed depth, shaped blocks become linear, V stays V_0, and
    the mean of the kernel is the sum over all layers of kappa V_0, where kappa is gamma^2 times the
    number of matrices on the path of the tokens (`Limit.weight_rate`). The kernel itself tends to
    it if all matrices become infinitely wide; with heads or hidden layers of a fixed size it stays
    random.

    Parameters
    ----------
    layer, v0, width, depth, samples, seed, device, dtype, chunk, memory, progress
        As in `gradient_norms`. The cost is that of m backward passes for m tokens.

    Returns
    -------
    Dataset with `kernel` (sample, row, col), the sum over the weights of all layers, and
    `readout_kernel` (sample, row, col), the part of the readout's own weights, which is V_L; and
    `infinite_width_kernel` (row, col), or one per sample like v0: the limit of the mean of
    `kernel`, left out if it is not known, as for blocks without a limit and for norms.

    Raises
    ------
    ValueError
        If an argument is invalid, or one sample needs more than `memory`.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> data = sa.neural_tangent_kernel(
    ...     sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=10**6, depth=3, samples=5
    ... )
    >>> dict(data.kernel.sizes)
    {'sample': 5, 'row': 2, 'col': 2}
    """
    tokens = np.shape(v0)[-1] if np.ndim(v0) else 1

    def of_network(network: Network) -> tuple[Tensor, Tensor]:
        last = network.forward()
        return inner(last, last) / width, _kernel(network, last, width)

    found = deep_networks(
        layer, v0, width, depth, samples, seed, options, tokens, _kernel_of_layer, "kernel",
        of_network,
    )  # fmt: skip
    own, kernels = zip(*found, strict=True)
    dims = ("sample", "row", "col")
    data = xr.Dataset(
        {
            "kernel": (dims, torch.cat(kernels).double().cpu().numpy()),
            "readout_kernel": (dims, torch.cat(own).double().cpu().numpy()),
        }
    )
    rate = _rate_of_all_layers(pattern_of(layer), depth)
    if rate is not None:
        v = np.asarray(v0, dtype=np.float64)
        data["infinite_width_kernel"] = dims[-v.ndim :], rate * v
    return data


def _rate_of_all_layers(pattern: Sequence[Sequence[Block]], depth: int) -> float | None:
    """Return the sum of kappa over the layers; None if it is not known."""
    total = 0.0
    for number in range(depth):
        for block in pattern[number % len(pattern)]:
            if limit_reason(block):
                return None
            rate = limit_of(block).weight_rate(at_depth(block, number / depth))
            if rate is None:
                return None
            total += rate
    return total


def _kernel(network: Network, last: Rows, width: int) -> Float[Tensor, "B m m"]:
    """Return the kernel of the layers' weights."""
    draws = network.source.stream("readout").draws()
    v = Rows(last.space, tuple(part.fresh(1, draws) for part in last.space))
    m = last.shape[1]
    columns = torch.eye(m, dtype=network.source.dtype, device=network.source.device)
    seeds = [(columns[:, a : a + 1] / width**0.5) @ v for a in range(m)]
    return total([x["kernel"] for x in network.measured(seeds)])


def _kernel_of_layer(layer: LayerGradients) -> dict[str, Float[Tensor, "B m m"]]:
    """Return the kernel of the weights of a layer."""
    count, terms = len(layer.entering), list(layer.weights.values())
    rows = [
        concatenate([total([frobenius(x[max(a, b)], x[min(a, b)]) for x in terms])
                     for b in range(count)])
        for a in range(count)
    ]  # fmt: skip
    return {"kernel": stacked(rows)}
