"""Chain and SDE driven by the same Gaussians: weak and strong errors in the width.

The Euler step of length 1/n is driven by the random numbers of a layer of the chain at width n, to
leading order (`shaped_attention.blocks.coupling`): M = sqrt(k n) dZ_1 in law for the common noise,
the keys' Gaussians for the scores. With g groups of columns, M is the sum over groups divided by
sqrt g: the branches keep the groups' Grams within 1 / sqrt n of V.

All factors are kept lower triangular, so that the noise acts in nearby frames. A difference of
observables then has a variance of order 1/n; for independent samples it is of order 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer, check_limit
from shaped_attention.blocks.coupling import RecordedNumbers, branch_noise, least_width
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.state import State, total_factor
from shaped_attention.checks import check_count
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.numerics.factor import lower_factor
from shaped_attention.numerics.named_numbers import Keys
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.primitives import Numbers
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.specification import Options, Specification, specify
from shaped_attention.samplers.steps import COMMON, limit_step
from shaped_attention.statistics.rates import check_widths, fitted_rate

_CHUNK = 4096


@recorded()
def convergence(
    layer: Layer,
    v0: ArrayLike,
    widths: Sequence[int] = (16, 32, 64, 128, 256),
    *,
    horizon: float = 0.5,
    samples: int = 4096,
    seed: int = 0,
    radius: float | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute weak and strong errors of the SDE against the chain, by width, with coupled paths.

    Parameters
    ----------
    layer
        A block or a list of blocks that have a limit and can be coupled: shaped attention with
        any heads, mask, biases and output projection, and the shaped MLP. The size of the keys must
        be that of a head (`key_size=None`).
    v0
        Initial covariance (m, m), positive semidefinite.
    widths
        Widths n, increasing, each at least 2 m + 2 per group of columns (a head without an output
        projection); width * horizon must be an integer. The SDE is integrated by Euler's scheme
        with the step 1/n.
    horizon
        Final time T = L / n.
    samples
        Number of pairs of paths.
    seed
        Seed from which that of each width is derived: errors at different widths are independent.
    radius
        Radius at which paths stop, by default 10 |V_0| (the theorem is local): a pair of paths does
        not move from the step on in which |V| (Frobenius norm) of either would reach the radius.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with, for each observable (see `observables`) and width,

    - `weak`: E f(chain) - E f(SDE by Euler's scheme with the step 1/n), both of which differ from
      the limit by O(1/n); its standard error `weak_error`; `gain`, the factor by which independent
      samples would have to be more numerous for the same standard error; `chain`, E f(chain);
    - `strong` (width): E |V_chain - V_SDE|_F / |V_0|_F, and its standard error `strong_error`;
    - `stopped` (width): the fraction of pairs that reached the radius;
    - `weak_rate`, `strong_rate` and their standard errors: r of a fit a n^-r to the errors, by
      weighted least squares; NaN unless two widths have errors above 4 standard errors;
    - `extrapolated`: the chain's E f at n -> oo by Richardson extrapolation,
      2 E f(n_last) - E f(n_last / 2), if the last two widths differ by a factor of two (NaN
      otherwise); its statistical error is that of independent samples, 2 to 3 times that of
      `chain`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    start = check_covariance(v0, "v0")
    check_limit(layer)
    depths = check_widths(widths, horizon)
    check_count("samples", samples, lowest=2)
    if radius is None:
        radius = 10.0 * float(np.linalg.norm(start)) or 1.0
    rows = [
        _one_width(
            layer, start, int(width), depth, samples,
            derived_seed(seed, {"study": "convergence", "width": width}), radius,
        )
        for width, depth in progress_bar(
            "widths", progress, list(zip(widths, depths, strict=True))
        )
    ]  # fmt: skip
    names = list(rows[0].weak)
    sizes = np.array(widths, dtype=float)
    weak = np.array([[row.weak[f] for f in names] for row in rows])
    strong = np.array([[row.strong, row.strong_error] for row in rows])
    rates = [fitted_rate(sizes, weak[:, j, 0], weak[:, j, 1]) for j in range(len(names))]
    strong_rate = fitted_rate(sizes, strong[:, 0], strong[:, 1])
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
        attrs={"radius": radius},
    )


class Coupled:
    """Pairs of paths of chain and SDE, driven by the same random numbers.

    Attributes
    ----------
    chain, limit
        Lower triangular factors (B, m, m) of the two covariances.
    alive
        Pairs (B,) that still move: neither path has reached the radius.
    """

    def __init__(self, spec: Specification, width: int, first: int, count: int) -> None:
        self._spec, self._width = spec, width
        # The pairs are the chain's paths with this seed, so they share its stream.
        self._keys = Keys(spec.seed, "chain")
        self._numbers = torch.arange(first, first + count)
        m = spec.tokens
        self.chain = self.limit = torch.tensor(spec.start_factors(first, count, 1, m)[:, 0])
        factors = torch.tensor(spec.start_factors(first, count, spec.groups, m))
        self._state = State(factors.unbind(1))
        self.alive = torch.ones(count, dtype=torch.bool)

    def step(self, step: int) -> None:
        """Take one layer of the chain and one Euler step 1/n, in all pairs that stay inside."""
        spec, width, groups = self._spec, self._width, self._spec.groups
        dof = width // groups - spec.tokens
        blocks = spec.pattern[step % len(spec.pattern)]
        parameters = [at_depth(block, step / spec.steps) for block in blocks]
        state = self._state
        common = torch.zeros_like(self.limit)
        increments: dict[tuple[int, ...], Tensor] = {}
        for i, (block, p) in enumerate(zip(blocks, parameters, strict=True)):
            numbers = RecordedNumbers(self._keys, self._numbers, step, (i,))
            state = block.step(p, state, numbers, width)
            handed = numbers.handed
            skip = block.skip_weight(p)
            noise = sum(
                branch_noise(
                    handed["branch", g], handed["branch, orthogonal", g], skip, p.gamma, dof
                )
                for g in range(groups)
            )
            common = common + block.coupling.common(p, handed, width) + noise / math.sqrt(groups)
            own = block.coupling.scores(handed)
            if own is not None:
                increments[(i,)] = own / math.sqrt(width)
        rate = sum(block.limit.linear_rate(p) for block, p in zip(blocks, parameters, strict=True))
        m = spec.tokens
        i, j = torch.tril_indices(m, m)
        weight = torch.where(i == j, 2.0, 1.0).double().rsqrt() / math.sqrt(rate or 1.0)
        increments[COMMON] = ((common[:, i, j] * weight) / math.sqrt(width))[:, None]
        drift, noise = limit_step(
            [blocks], [parameters], self.limit, lambda place: Prepared(increments.get(place)),
            1.0 / width,
        )  # fmt: skip
        limit, chain = lower_factor(self.limit + drift + noise), total_factor(state)
        for factors in (chain, limit):
            self.alive = self.alive & (torch.linalg.matrix_norm(factors @ factors.mT) < spec.radius)
        keep = self.alive[:, None, None]
        pairs = zip(state.factors, self._state.factors, strict=True)
        self._state = State(tuple(torch.where(keep, new, old) for new, old in pairs))
        self.chain = torch.where(keep, chain, self.chain)
        self.limit = torch.where(keep, limit, self.limit)


class Prepared(Numbers):
    """Given increments of a block; None if it has none."""

    def __init__(self, increments: Tensor | None) -> None:
        self._increments = increments

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Tensor:
        """Return the increments."""
        assert self._increments is not None
        return self._increments


@dataclass(frozen=True)
class _Row:
    """Errors at one width; `weak` holds mean, standard error, gain and the chain's mean."""

    weak: dict[str, tuple[float, float, float, float]]
    strong: float
    strong_error: float
    stopped: float


def _one_width(
    layer: Layer,
    v0: NDArray[np.float64],
    width: int,
    depth: int,
    samples: int,
    seed: int,
    radius: float,
) -> _Row:
    spec = specify(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        options=Options(radius=radius),
    )  # fmt: skip
    _check_degrees(spec, width)
    pairs = []
    stopped = 0
    for first in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - first)
        coupled = Coupled(spec, width, first, count)
        for step in range(depth):
            coupled.step(step)
        stopped += int((~coupled.alive).sum())
        pairs.append((coupled.chain @ coupled.chain.mT, coupled.limit @ coupled.limit.mT))
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


def _check_degrees(spec: Specification, width: int) -> None:
    """Raise ValueError unless every Bartlett factor has the degrees of freedom it needs."""
    m = spec.tokens
    least = least_width(m, spec.groups)
    if width < least:
        raise ValueError(
            f"widths contain {width}: at least {least} is needed to couple "
            f"{m} tokens with groups of columns (heads): {spec.groups}"
        )
    for block in spec.blocks:
        coupling = block.coupling
        reason = coupling if isinstance(coupling, str) else coupling.reason_against(m, width)
        if reason:
            raise ValueError(f"layer contains {block!r}, which cannot be coupled: {reason}")
