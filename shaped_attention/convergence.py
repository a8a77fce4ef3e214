"""Chain and SDE driven by the same Gaussians: weak and strong errors in the width.

A layer of the chain at width n (`shaped_attention.blocks.branch`) draws B B^T ~ Wishart(n_k) and K
for the scores, H and C C^T ~ Wishart(n - m) for the values. The SDE's Euler step of length 1/n is
driven by what these are to leading order:

- scores: B / sqrt(n_k) -> I, so that dZ_2 = K^T / sqrt n;
- values: with V' = D D^T + E E^T the noise of order 1/sqrt n is F M F^T / sqrt n,
  M = lambda gamma (H + H^T) + gamma^2 W, where W is symmetric with W_ij = C_ij off the diagonal and
  W_ii = sqrt 2 Phi^-1(P(chi^2 <= C_ii^2)) on it (quantile coupling of the chi variables of
  Bartlett's factor). The entries are exactly Gaussian, and M = sqrt(k n) dZ_1 in law.

Both factors are kept lower triangular, so that the noise acts in nearby frames. A difference of
observables then has a variance of order 1/n, where independent samples leave one of order 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import curve_fit
from scipy.stats import chi2, norm
from torch import Tensor

from shaped_attention.blocks import ShapedAttention
from shaped_attention.blocks.branch import lower_factor, semidefinite_cholesky
from shaped_attention.checks import check_count, check_positive, check_width
from shaped_attention.covariance import check_covariance, factor
from shaped_attention.draws import Draws, stream_key
from shaped_attention.observables import observables

_CHUNK = 4096


def convergence(
    block: ShapedAttention,
    v0: ArrayLike,
    widths: Sequence[int] = (16, 32, 64, 128, 256),
    *,
    horizon: float = 0.5,
    samples: int = 4096,
    seed: int = 0,
    radius: float = 10.0,
) -> xr.Dataset:
    """Weak and strong errors of the SDE against the chain, by width, with coupled paths.

    Parameters
    ----------
    block
        Single-head shaped attention without output projection or biases.
    v0
        Starting covariance (m, m), positive definite.
    widths
        Widths n, increasing, each at least m + 2 more than m; width * horizon is a whole number.
        The SDE is integrated by Euler's scheme with the step 1/n.
    horizon, samples, seed
        T = L / n, number of pairs of paths, and the seed.
    radius
        The theorem is local: a pair of paths stays where it is from the step on in which tr V of
        either would exceed `radius` times tr V_0.

    Returns
    -------
    xarray.Dataset with, for each observable (see `observables`) and width,

    - `weak`: E f(chain) - E f(SDE), its standard error `weak_error`, and `gain`, how many times
      more independent samples would be needed for the same standard error; `chain` is E f(chain);
    - `strong` (width): E |V_chain - V_SDE|_F / |V_0|_F, and its standard error `strong_error`;
    - `stopped` (width): the fraction of pairs that reached the radius;
    - `weak_rate`, `strong_rate` and their standard errors: r of a fit a n^-r to the errors, by
      weighted least squares; NaN unless two widths have errors above 4 standard errors;
    - `extrapolated`: the chain's E f at n -> oo by Richardson, 2 E f(n_last) - E f(n_last / 2), if
      the last two widths differ by a factor of two (NaN otherwise).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    start = check_covariance(v0, "v0")
    _check_block(block, len(start))
    check_positive("horizon", horizon)
    check_count("samples", samples, lowest=2)
    check_count("seed", seed, lowest=0)
    check_positive("radius", radius)
    if len(widths) < 2 or list(widths) != sorted(set(widths)):
        raise ValueError(f"widths={list(widths)}: at least two, increasing, are needed")
    rows = [_one_width(block, start, int(n), horizon, samples, seed, radius) for n in widths]
    names = list(rows[0].weak)
    sizes = np.array(widths, dtype=float)
    weak = np.array([[row.weak[f] for f in names] for row in rows])
    strong = np.array([[row.strong, row.strong_error] for row in rows])
    rates = [_rate(sizes, weak[:, j, 0], weak[:, j, 1]) for j in range(len(names))]
    strong_rate = _rate(sizes, strong[:, 0], strong[:, 1])
    doubled = sizes[-1] == 2 * sizes[-2]
    extrapolated = 2 * weak[-1, :, 3] - weak[-2, :, 3] if doubled else np.full(len(names), np.nan)
    by_width = ("width", "observable")
    return xr.Dataset(
        {
            "weak": (by_width, weak[..., 0]),
            "weak_error": (by_width, weak[..., 1]),
            "gain": (by_width, weak[..., 2]),
            "chain": (by_width, weak[..., 3]),
            "strong": ("width", strong[:, 0]),
            "strong_error": ("width", strong[:, 1]),
            "stopped": ("width", [row.stopped for row in rows]),
            "weak_rate": ("observable", [r[0] for r in rates]),
            "weak_rate_error": ("observable", [r[1] for r in rates]),
            "strong_rate": strong_rate[0],
            "strong_rate_error": strong_rate[1],
            "extrapolated": ("observable", extrapolated),
        },
        coords={"width": list(widths), "observable": names},
        attrs={"horizon": horizon, "samples": samples, "seed": seed},
    )


@dataclass
class RecordedDraws(Draws):
    """Draws that keep what they hand out, for the SDE to be driven by the same numbers."""

    handed: list[Tensor] = field(default_factory=list)

    def normal(self, rows: int, columns: int) -> Float[Tensor, "B rows columns"]:
        """As `Draws.normal`."""
        self.handed.append(super().normal(rows, columns))
        return self.handed[-1]

    def wishart_factor(self, m: int, dof: int) -> Float[Tensor, "B m c"]:
        """As `Draws.wishart_factor`."""
        self.handed.append(super().wishart_factor(m, dof))
        return self.handed[-1]


def coupled_step(
    block: ShapedAttention,
    chain: Float[Tensor, "B m m"],
    limit: Float[Tensor, "B m m"],
    width: int,
    draws: RecordedDraws,
) -> tuple[Float[Tensor, "B m m"], Float[Tensor, "B m m"]]:
    """One layer of the chain and one Euler step 1/n of the SDE, from the same random numbers.

    Factors are lower triangular on both sides.
    """
    m, root, gamma = chain.shape[-1], math.sqrt(width), block.gamma
    new_chain = block.chain_step(chain, width, draws)
    _, key, gaussian, rest = draws.handed
    skip = math.sqrt(1.0 - gamma**2)
    below = rest.tril(-1)
    diagonal = torch.diag_embed(_normal_of_chi(rest.diagonal(dim1=-2, dim2=-1), width - m))
    symmetric = skip * gamma * (gaussian + gaussian.mT) + gamma**2 * (below + below.mT + diagonal)
    h = 1.0 / width
    if block.has_flow:
        limit = semidefinite_cholesky(block.flow(limit @ limit.mT, h))
    drift = block.factor_drift(limit) - block.linear_rate * (m + 1) / 8.0 * limit
    noise = limit @ symmetric / (2.0 * root)
    scores = block.factor_noise(limit, key.mT.flatten(1) / root)
    return new_chain, lower_factor(limit + h * drift + noise + scores)


def _normal_of_chi(chi: Float[Tensor, "B m"], dof: int) -> Float[Tensor, "B m"]:
    """sqrt 2 times the normal quantile of chi variables with dof, dof - 1, ... degrees."""
    degrees = dof - np.arange(chi.shape[-1])
    # The upper tail keeps digits where the probability is near 1.
    return math.sqrt(2.0) * torch.from_numpy(norm.isf(chi2.sf(chi.numpy() ** 2, degrees)))


@dataclass(frozen=True)
class _Row:
    """The errors at one width; `weak` is mean, standard error, gain and the chain's mean."""

    weak: dict[str, tuple[float, float, float, float]]
    strong: float
    strong_error: float
    stopped: float


def _one_width(
    block: ShapedAttention,
    v0: NDArray[np.float64],
    width: int,
    horizon: float,
    samples: int,
    seed: int,
    radius: float,
) -> _Row:
    check_width("widths", width)
    m = len(v0)
    depth = round(width * horizon)
    if width < 2 * m + 2 or abs(depth - width * horizon) > 1e-9 or depth < 1:
        raise ValueError(
            f"widths contain {width}: at least {2 * m + 2} is needed, with a whole number "
            f"width * horizon = {width * horizon:g}"
        )
    # The coupled pairs are the chain's paths with this seed, so they share its stream.
    key = stream_key(seed, "chain")
    start = torch.tensor(factor(v0)).tril()
    radius = radius * float(np.trace(v0))
    pairs = []
    stopped = 0
    for first in range(0, samples, _CHUNK):
        numbers = torch.arange(first, min(first + _CHUNK, samples))
        chain = limit = start.expand(len(numbers), -1, -1)
        alive = torch.ones(len(numbers), dtype=torch.bool)
        for step in range(depth):
            draws = RecordedDraws(key, numbers, step)
            stepped = coupled_step(block, chain, limit, width, draws)
            inside = (torch.stack(stepped).pow(2).sum((-2, -1)) < radius).all(0)
            alive = alive & inside
            chain, limit = (
                torch.where(alive[:, None, None], new, old)
                for new, old in zip(stepped, (chain, limit), strict=True)
            )
        stopped += int((~alive).sum())
        pairs.append((chain @ chain.mT, limit @ limit.mT))
    both = [torch.cat(side).numpy() for side in zip(*pairs, strict=True)]
    values = [observables(v) for v in both]
    weak = {}
    for name, on_chain in values[0].items():
        on_limit = values[1][name]
        difference = on_chain - on_limit
        error = difference.std() / math.sqrt(samples)
        independent = on_chain.var() + on_limit.var()
        gain = independent / difference.var() if error > 0.0 else math.inf
        weak[name] = (float(difference.mean()), error, gain, float(on_chain.mean()))
    distance = np.sqrt(((both[0] - both[1]) ** 2).sum((1, 2)) / (v0**2).sum())
    error = distance.std() / math.sqrt(samples)
    return _Row(weak, float(distance.mean()), float(error), stopped / samples)


def _rate(
    widths: NDArray[np.float64], errors: NDArray[np.float64], standard: NDArray[np.float64]
) -> tuple[float, float]:
    """r and its standard error in ``error = a n^-r``, by weighted least squares on the errors.

    All widths enter, resolved or not: a fit of logarithms to the resolved ones alone would see the
    errors that chance made large. NaN unless two widths have errors above 4 standard errors.
    """
    resolved = (np.abs(errors) > 4.0 * standard) & (standard > 0.0)
    if resolved.sum() < 2:
        return math.nan, math.nan
    scale = widths / widths[0]
    try:
        (_, rate), covariance = curve_fit(
            lambda x, size, rate: size * x**-rate,
            scale, errors, p0=(errors[resolved][0], 1.0), sigma=standard, absolute_sigma=True,
        )  # fmt: skip
    except RuntimeError:
        return math.nan, math.nan
    return float(rate), float(math.sqrt(covariance[1, 1]))


def _check_block(block: ShapedAttention, tokens: int) -> None:
    plain = isinstance(block, ShapedAttention) and not block.no_limit
    if not plain or block.heads > 1 or block.output_projection or block.query_bias + block.key_bias:
        raise ValueError(
            f"block={block!r}: single-head shaped attention without output projection or biases is "
            "needed"
        )
    if block.key_size is not None and block.key_size < tokens + 2:
        raise ValueError(f"key_size={block.key_size}: at least {tokens + 2} is needed to couple")
    block.check(tokens, None)
