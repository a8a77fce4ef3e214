"""Lyapunov exponents of the layers' Jacobian at a finite depth, at any width, and in the limit.

Tangents X._1, ..., X._p with independent N(0, 1) entries become J X._1, ..., J X._p, with the
Jacobian J of the tokens X_L in X_0. The matrix of their inner products over all entries is L L^T,
and the exponents over the time T are log(L_ii(T) / L_ii(0)) / T.

J^T instead of J has the same law: with the singular values J = U S W^T, only S^2 enters the inner
products of Gaussian vectors, before and after. So the tangents may be p gradients that go back.

In the limit the tangents start with D_kl = 1 for k = l, 0 otherwise, independent of V
(`blocks.tangents`), and the matrix of inner products is tr D_kl.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.tangents import with_tangents
from shaped_attention.checks import argument_error, check_count
from shaped_attention.lazy.deep import LayerGradients
from shaped_attention.lazy.deep_runs import Network, deep_networks
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.numerics.primitives import diagonal
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.directions import directions
from shaped_attention.rows.joining import cut_rows
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.values import in_one_row, stacked
from shaped_attention.samplers.sde import integrate_sde
from shaped_attention.samplers.specification import RunOptions, with_options

Array = NDArray[np.float64]


@recorded(sampler="lyapunov")
@with_options(RunOptions)
def lyapunov(
    layer: Layer,
    v0: ArrayLike,
    *,
    width: int | None = None,
    depth: int | None = None,
    horizon: float | None = None,
    step: float = 0.01,
    samples: int,
    exponents: int = 2,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Sample the first Lyapunov exponents of random networks over a finite depth.

    They are the rates at which perturbations of the tokens, and gradients, grow or decay with
    depth, per unit of t = layer / width: 0.5 log of the growth of squared lengths, areas, ... of
    random tangents, divided by T = depth / width. The samples are exact in law. In the limit of a
    linear network of one token, with k = gamma^2 for each matrix of a layer, the mean of exponent
    i = 1, 2, ... is -i k / 2; with m tokens each of these values occurs m times for large T.

    Parameters
    ----------
    layer, v0, samples, seed, device, dtype
        As in `gradient_norms`.
    width, depth
        Width n and number of layers L of networks, T = L / n.
    horizon, step
        Instead of these T itself, for the limit, and the step of `integrate_sde`. Paths that stop
        because V reaches the radius have the exponents up to then.
    exponents
        Number p of exponents, at most m n.
    chunk, memory, progress
        As in `gradient_norms`.

    Returns
    -------
    Dataset with `exponent` (index, sample), and `time` (sample) that they cover.

    Raises
    ------
    ValueError
        If an argument is invalid, or the tangents of a block have no limit.
    FloatingPointError
        If the tangents are linearly dependent at the end, up to rounding.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> data = sa.lyapunov(
    ...     sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=1000, depth=5, samples=4
    ... )
    >>> dict(data.exponent.sizes)
    {'index': 2, 'sample': 4}
    """
    check_count("exponents", exponents)
    if horizon is not None and width is None and depth is None:
        logs, times = _in_the_limit(layer, v0, horizon, step, samples, seed, options, exponents)
    elif horizon is None and width is not None and depth is not None:
        check_count("width", width)
        most = width * (np.shape(v0)[-1] if np.ndim(v0) else 1)
        if exponents > most:
            raise argument_error("exponents", f"at most {most} (m n)", exponents)
        logs = np.concatenate(deep_networks(
            layer, v0, width, depth, samples, seed, options, exponents, _pivots, "exponents",
            lambda network: _growth(network, exponents),
        ))  # fmt: skip
        times = np.full(samples, depth / width)
    else:
        raise ValueError(
            "width and depth or horizon must be given; got "
            f"width={width!r}, depth={depth!r}, horizon={horizon!r}"
        )
    if not np.isfinite(logs).all():
        raise FloatingPointError(
            "the tangents are linearly dependent at the end, up to rounding; fewer exponents or a "
            "smaller depth would keep them independent"
        )
    return xr.Dataset(
        {
            "exponent": (
                ("index", "sample"),
                (logs / times[:, None]).T,
                {"long_name": "Lyapunov exponent per unit of t = layer / width"},
            ),
            "time": ("sample", times, {"long_name": "time that the exponents cover"}),
        },
        coords={"index": np.arange(1, exponents + 1)},
    )


def _in_the_limit(
    layer: Layer, v0: ArrayLike, horizon: float, step: float, samples: int, seed: int,
    options: RunOptions, count: int,
) -> tuple[Array, Array]:  # fmt: skip
    """Return log L_ii at the end minus that at the start (samples, count), and the times."""
    v = check_covariance(v0, "v0")
    m, rows = len(v), (1 + count) * len(v)
    start = np.eye(rows)
    start[:m, :m] = v
    run = integrate_sde(
        with_tangents(layer, count), start, horizon=horizon, step=step, samples=samples, seed=seed,
        times=[horizon], **options,
    )  # fmt: skip
    parts = run["V"].values[-1].reshape(samples, 1 + count, m, 1 + count, m)
    products = np.einsum("skala->skl", parts[:, 1:, :, 1:])
    try:
        lower = np.linalg.cholesky(products)
    except np.linalg.LinAlgError:
        lower = np.full_like(products, np.nan)
    logs: Array = np.log(np.diagonal(lower, axis1=1, axis2=2)) - 0.5 * np.log(m)
    return logs, np.minimum(run["stopping_time"].values, horizon)


def _growth(network: Network, count: int) -> Array:
    """Return log L_ii at the end minus that at the start (samples, count)."""
    last = network.forward()
    draws = network.source.stream("tangents").draws()
    m = last.shape[1]
    fresh = Rows(last.space, tuple(part.fresh(count * m, draws) for part in last.space))
    tangents = [cut_rows(fresh, k * m, (k + 1) * m) for k in range(count)]
    before = _pivots_of_rows(tangents)
    *_, after = network.measured(tangents)
    return (after["pivots"].double().log() - before.double().log()).flatten(1).cpu().numpy()


def _pivots(layer: LayerGradients) -> dict[str, Tensor]:
    """Return L_ii of the tangents of the first layer."""
    return {"pivots": _pivots_of_rows(layer.entering)} if layer.number == 0 else {}


def _pivots_of_rows(tangents: list[Rows]) -> Float[Tensor, "B p"]:
    """Return L_ii of some tangents, each with m rows; from their coordinates, not L L^T."""
    return diagonal(directions(stacked([in_one_row(x.coordinates) for x in tangents])).lower)
