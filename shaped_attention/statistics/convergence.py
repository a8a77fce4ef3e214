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
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.coupling import RecordedNumbers, branch_noise, least_width
from shaped_attention.blocks.reasons import check_limit, coupling_reason, limit_of
from shaped_attention.checks import argument_error, check_count
from shaped_attention.derived.state import State, total_factor
from shaped_attention.numerics.covariance import check_covariance
from shaped_attention.numerics.observables import observables
from shaped_attention.numerics.primitives import lower
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.loop import run_paths
from shaped_attention.samplers.specification import Options, Specification, specify
from shaped_attention.samplers.steppers import Batch
from shaped_attention.samplers.steppers.torch_descriptions import GivenNumbers, TorchStepper
from shaped_attention.samplers.steps import COMMON, limit_step
from shaped_attention.samplers.task import task_of
from shaped_attention.statistics.rates import check_widths, fitted_rate

Array = NDArray[np.float64]

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
        Widths n, increasing, each at least 2 m + 2 per group of columns (without an output
        projection, per head); width * horizon must be an integer. The SDE is integrated by Euler's
        scheme with the step 1/n.
    horizon
        Final time T = L / n.
    samples
        Number of pairs of paths.
    seed
        Seed from which the seed of each width is derived, so that errors at different widths are
        independent.
    radius
        Radius at which paths stop, by default 10 |V_0| (the theorem is local): a pair of paths
        stops before the step in which |V| (Frobenius norm) of either would reach the radius.
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

    def at(width: int) -> xr.Dataset:
        part = derived_seed(seed, {"study": "convergence", "width": width})
        depth = depths[list(widths).index(width)]
        return pair_errors(layer, start, int(width), depth, samples, part, radius)

    errors = over_grid(at, {"width": widths}, progress=progress)
    sizes, weak, chain = np.array(widths, dtype=float), errors["weak"], errors["chain"].to_numpy()
    pairs = zip(weak.to_numpy().T, errors["weak_error"].to_numpy().T, strict=True)
    rates = [fitted_rate(sizes, *pair) for pair in pairs]
    strong = fitted_rate(sizes, errors["strong"].to_numpy(), errors["strong_error"].to_numpy())
    doubled = sizes[-1] == 2 * sizes[-2]
    extrapolated = 2 * chain[-1] - chain[-2] if doubled else np.full(len(rates), np.nan)
    return errors.assign(
        weak_rate=("observable", [rate for rate, _ in rates]),
        weak_rate_error=("observable", [error for _, error in rates]),
        strong_rate=strong[0],
        strong_rate_error=strong[1],
        extrapolated=("observable", extrapolated),
    ).assign_attrs(radius=radius)


class PairStepper(TorchStepper):
    """Pairs of a path of the chain and one of the limit, driven by the same random numbers.

    A state has the factors (g, m, m) of the chain's groups, and last the lower triangular factors
    of V of the chain and of the limit. Where |V| of either would reach the radius, a pair stays
    where it was.
    """

    def __init__(self, spec: Specification, width: int) -> None:
        # The pairs are the chain's paths with this seed, so they share its stream.
        super().__init__(task_of(spec, "chain", width), torch.device("cpu"), torch.float64, 1)
        self.width = width

    def chunk(self, spec: Specification) -> int:
        """Return how many pairs move together."""
        return _CHUNK

    def starting(self, states: Array) -> Array:
        """Return the factors of the groups and, last, those of chain and limit."""
        return np.concatenate([states, states[:, :1], states[:, :1]], axis=1)

    def moved(self, batch: Batch, moving: Any, lengths: Array, point: int) -> Tensor:
        """Return the pairs after a layer of the chain and an Euler step 1/n."""
        task, width, groups = self.task, self.width, self.task.groups
        layer = point % len(task.pattern)
        blocks, parameters = task.pattern[layer], task.parameters(point, layer)
        *factors, _, limit = (factor.contiguous() for factor in batch.state.unbind(1))
        state, common = State(tuple(factors)), torch.zeros_like(limit)
        increments: dict[tuple[int, ...], Tensor] = {}
        for i, (block, p) in enumerate(zip(blocks, parameters, strict=True)):
            numbers = RecordedNumbers(task.keys, self.numbers_of(batch), point, place=(i,))
            state = block.step(p, state, numbers, width)
            handed, skip = numbers.handed, block.skip_weight(p)
            dof = width // groups - task.tokens
            noise = sum(
                branch_noise(
                    handed["branch", g], handed["branch, orthogonal", g], skip, p.gamma, dof
                )
                for g in range(groups)
            )
            coupling = block.coupling
            assert not isinstance(coupling, str), coupling
            common = common + coupling.common(p, handed, width) + noise / math.sqrt(groups)
            scores = coupling.scores(handed)
            if scores is not None:
                increments[(i,)] = scores / math.sqrt(width)
        pairs = zip(blocks, parameters, strict=True)
        rate = sum(limit_of(block).linear_rate(p) for block, p in pairs)
        i, j = torch.tril_indices(task.tokens, task.tokens)
        weight = torch.where(i == j, 2.0, 1.0).double().rsqrt() / math.sqrt(rate or 1.0)
        increments[COMMON] = ((common[:, i, j] * weight) / math.sqrt(width))[:, None]
        drift, noise = limit_step(
            [blocks], [parameters], limit,
            # A block without noise draws none.
            lambda place: GivenNumbers(increments.get(place, common).flatten(1)), 1.0 / width,
        )  # fmt: skip
        both = total_factor(state), lower(limit + drift + noise)
        norms = [torch.linalg.matrix_norm(factor @ factor.mT) for factor in both]
        # An overflow counts as outside.
        batch.work["norms"] = torch.nan_to_num(torch.maximum(*norms), nan=math.inf)
        inside = (batch.work["norms"] < task.radius)[:, None, None, None]
        return torch.where(inside, torch.stack([*state.factors, *both], 1), batch.state)

    def norms(self, batch: Batch, moving: Any, least: float) -> Tensor:
        """Return the larger |V| of each pair, or what it would have been."""
        norms: Tensor = batch.work["norms"]
        return norms


def coupled_pairs(spec: Specification, width: int) -> tuple[Array, NDArray[np.bool_]]:
    """Return V (samples, 2, m, m) of chain and limit at the horizon, and which pairs stopped."""
    run = run_paths(spec, PairStepper(spec, width), "pairs", {}, with_state=True)
    assert run.state is not None
    factors = torch.tensor(run.state[:, -2:])
    return (factors @ factors.mT).numpy(), np.isfinite(run.stopping_time)


def pair_errors(
    layer: Layer, v0: Array, width: int, depth: int, samples: int, seed: int, radius: float
) -> xr.Dataset:
    """Return the weak (observable) and strong errors at one width, with their standard errors."""
    spec = specify(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        options=Options(times=[depth / width], radius=radius, progress=False),
    )  # fmt: skip
    _check_degrees(spec, width)
    v, stopped = coupled_pairs(spec, width)
    names = list(observables(v[:1, 0]))
    chain, limit = (np.stack(list(observables(v[:, i]).values())) for i in (0, 1))
    difference, root = chain - limit, math.sqrt(samples)
    error = difference.std(axis=1) / root
    independent = chain.var(axis=1) + limit.var(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(error > 0.0, independent / difference.var(axis=1), math.inf)
    distance = np.sqrt(((v[:, 0] - v[:, 1]) ** 2).sum((1, 2)) / (v0**2).sum())
    columns = {
        "weak": difference.mean(axis=1), "weak_error": error, "gain": gain,
        "chain": chain.mean(axis=1),
    }  # fmt: skip
    return xr.Dataset(
        {name: ("observable", values) for name, values in columns.items()}
        | {
            "strong": distance.mean(), "strong_error": distance.std() / root,
            "stopped": stopped.mean(),
        },
        coords={"observable": names},
    )  # fmt: skip


def _check_degrees(spec: Specification, width: int) -> None:
    """Raise ValueError unless every Bartlett factor has the degrees of freedom it needs."""
    m = spec.tokens
    least = least_width(m, spec.groups)
    if width < least:
        groups = f"{m} tokens where the number of groups of columns (heads) is {spec.groups}"
        raise argument_error("widths", f">= {least}, to couple {groups}", width)
    for block in spec.blocks:
        if reason := coupling_reason(block, m, width):
            raise ValueError(f"layer contains {block!r}, which cannot be coupled: {reason}")
