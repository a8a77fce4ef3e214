r"""Expectations under the limiting SDE to a given error, by multilevel Monte Carlo [1]_.

Let P_l be an observable f(V_T) computed with the Euler step h_l = h_0 2^-l. Level l > 0 samples the
difference P_l - P_{l-1} of two paths driven by the same Brownian motion (the coarse increment is
the sum of two fine ones); level 0 samples P_0. With Y_l the mean on level l, Y_0 + ... + Y_L
estimates E P_L. The differences are small, so few samples are needed where a path is expensive.

Euler's scheme has weak order 1, E P_l = E f + c_1 h_l + c_2 h_l^2 + ..., so the last level is
extrapolated: the estimator is

    R_L = Y_0 + ... + Y_L + Y_L,    E R_L = E f - 2 c_2 h_L^2 + ...,

and since E(R_L - R_{L-1}) = E(2 Y_L - Y_{L-1}) = 6 c_2 h_L^2, its bias is estimated by
|2 Y_L - Y_{L-1}| / 3. Y_L enters twice, so the variance sum_l w_l^2 Var_l / N_l has the weights
w = (1, ..., 1, 2). For a given cost sum_l N_l C_l it is least at N_l ~ w_l sqrt(Var_l / C_l), where
C_l is the number of Euler steps of a sample on level l.

References
----------
.. [1] M. B. Giles. Multilevel Monte Carlo path simulation. Operations Research 56 (2008) 607-617.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.reasons import check_limit
from shaped_attention.checks import argument_error, check_count, check_positive
from shaped_attention.numerics.jit import LANES
from shaped_attention.numerics.named_numbers import Keys
from shaped_attention.numerics.threads import thread_count
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.sde import count_steps
from shaped_attention.samplers.specification import Options, Specification, specify
from shaped_attention.samplers.steppers import stepper_of
from shaped_attention.samplers.task import task_of
from shaped_attention.statistics.reaction import Observable, value_of

_log = logging.getLogger(__name__)

Array = NDArray[np.float64]

_BLOCK, _BLOCK_ENTRIES = 4096, 2**16
"""Paths, and entries of their factors, in a block: bounded memory that fits into the cache."""

_PILOT = 2048
"""Samples from which the variance of a new level is first estimated."""

_LONG = 60.0
"""Expected seconds above which a warning is given."""

_MARGIN = 1.02
"""Factor above the optimum: better estimates of the variances then rarely require more samples."""


@dataclass
class Level:
    """A level: grids, random numbers, and moments of its samples.

    Its two paths have the steps h and 2 h and the same Brownian motion. `mean` and `squares`, the
    sum of squared deviations from the mean, have shape (2,): one entry for the difference and one
    for the finer value.
    """

    base: Specification
    number: int
    f: Callable[[Array], Array]
    count: int = 0
    stopped: int = 0
    mean: Array = field(default_factory=lambda: np.zeros(2))
    squares: Array = field(default_factory=lambda: np.zeros(2))

    def __post_init__(self) -> None:
        self.grids = [
            replace(self.base, steps=self.base.steps * 2**i, dt=self.base.dt / 2**i)
            for i in (self.number, self.number - 1)
            if i >= 0
        ]
        keys = Keys(self.base.seed, "multilevel", (self.number,))
        self.tasks = [replace(task_of(grid, "multilevel", None), keys=keys) for grid in self.grids]
        self.cost = sum(grid.steps for grid in self.grids)

    @property
    def variance(self) -> Array:
        """Variance of a difference and of a finer value."""
        return self.squares / (self.count - 1)

    @property
    def error2(self) -> float:
        """Variance of the mean difference."""
        return float(self.variance[0]) / self.count

    def grow(self, target: int, pool: ThreadPoolExecutor) -> None:
        """Add samples until there are `target`.

        Blocks are merged in their order (Chan, Golub and LeVeque, Am. Statistician 37, 1983).
        """
        size = max(LANES, min(_BLOCK, _BLOCK_ENTRIES // self.base.tokens**2 // LANES * LANES))
        firsts = range(self.count, target, size)
        counts = [min(size, target - first) for first in firsts]
        for count, (mean, squares, stopped) in zip(
            counts, pool.map(self._block, firsts, counts), strict=True
        ):
            total, apart = self.count + count, mean - self.mean
            self.mean = self.mean + apart * (count / total)
            self.squares = self.squares + squares + apart**2 * (self.count * count / total)
            self.count, self.stopped = total, self.stopped + stopped

    def _block(self, first: int, count: int) -> tuple[Array, Array, int]:
        """Return means, sums of squared deviations and the number stopped of some samples."""
        both = [
            starting_paths(grid, stepper_of(grid, task), first, count)
            for grid, task in zip(self.grids, self.tasks, strict=True)
        ]
        half: Any = 0.0
        for step in range(self.grids[0].steps):
            increment = both[0].increments(step)
            both[0].euler(increment)
            if step % 2:
                for coarse in both[1:]:
                    coarse.euler(half + increment)
            else:
                half = 1.0 * increment  # The next call overwrites it.
        for paths in both:
            paths.finish()
        values = [self.f(paths.covariances()) for paths in both]
        stopped = np.any([np.isfinite(paths.stopping_times()) for paths in both], axis=0)
        pair = np.stack([values[0] - values[1] if len(values) == 2 else values[0], values[0]])
        mean = pair.mean(axis=1)
        return mean, ((pair - mean[:, None]) ** 2).sum(axis=1), int(stopped.sum())


@recorded()
def expectation(
    layer: Layer,
    v0: ArrayLike,
    observable: Observable,
    *,
    horizon: float,
    tolerance: float,
    seed: int = 0,
    radius: float | None = None,
    first_step: float | None = None,
    max_levels: int = 10,
    budget: int = 10**10,
    device: str | torch.device = "cpu",
    progress: bool | None = None,
) -> xr.Dataset:
    """Estimate E f(V_T) under the limiting SDE to a given root mean square error.

    Levels and samples are added until standard error and bias are at most tolerance / sqrt 2 each,
    the bias including one standard error of its estimate. The result does not depend on the number
    of threads.

    Parameters
    ----------
    layer, v0, horizon, seed, radius, device
        As in `shaped_attention.integrate_sde`. A path stops at the first grid time with |V| >=
        radius, and f is evaluated there. Extrapolation and bias rely on weak order 1, which is lost
        to the extent that paths stop (`stopped`); a warning reports this.
    observable
        Lipschitz function f, as in `shaped_attention.rare_event`, with finite values. A function
        may be called from several threads.
    tolerance
        Root mean square error, positive, in units of f.
    first_step
        Step on level 0; it must divide the horizon. Default: the largest such step that is at most
        0.1 and a quarter of the horizon.
    max_levels
        Largest number of levels, at least 3.
    budget
        Largest total number of Euler steps. The first 2,048 samples of a level are drawn whatever
        the budget.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with

    - `value`, its `standard_error`, the estimated absolute `bias` and its error `bias_error`;
    - per level: `step`, `samples`, `mean` and `variance` of a sample, `variance_fine` of f on its
      finer path, `level_cost` of a sample in Euler steps, fine and coarse ones together, and
      `stopped`, the fraction of samples in which a path reached the radius;
    - `cost`, the number of Euler steps taken, and `plain_cost`, the number of steps that plain
      Monte Carlo would take for the same standard error and, with a bias of Y_L h / h_L at step h
      (Y_L is the mean on the finest level, h_L its step), a bias of at most tolerance / sqrt 2.
      Most of the gain over plain Monte Carlo is due to extrapolation: at tolerances of 10^-4 and
      more, plain paths with the finest step here would cost less if one knew how to choose that
      step.

    The attribute `converged` is 0, and a warning is logged, if levels or budget did not suffice.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the observable returns anything but finite numbers
        (samples,).

    Warns
    -----
    UserWarning
        If paths reached the radius, or the first samples suggest that the call will take more than
        a minute.
    """
    began = time.perf_counter()
    check_limit(layer)
    check_positive("horizon", horizon)
    check_positive("tolerance", tolerance)
    check_count("max_levels", max_levels, lowest=3)
    check_count("budget", budget)
    steps = _first_steps(horizon, first_step, max_levels)
    base = specify(
        layer, v0, width=None, steps=steps, dt=horizon / steps, samples=1, seed=seed,
        options=Options(radius=radius, device=device),
    )  # fmt: skip
    if base.v0.ndim != 2:
        raise argument_error("v0", "a matrix (m, m)", base.v0)
    f = value_of(observable, base.tokens, finite=True)
    levels = [Level(base, number, f) for number in range(3)]
    with (
        ThreadPoolExecutor(thread_count(base.place)) as pool,
        # The total number of steps is not known in advance.
        progress_bar("expectation", progress, unit="step", unit_scale=True) as bar,
    ):
        affordable, warned = True, False
        while True:
            for level in levels:
                started = time.perf_counter()
                level.grow(_PILOT, pool)  # only new levels have fewer
                seconds = time.perf_counter() - started
                bar.update(_cost(levels) - bar.n)
            if not warned:
                # The first levels may wait for kernels to be compiled, the last does not.
                pace = seconds / (levels[-1].cost * levels[-1].count)
                warned = _warn_of_time(levels, tolerance, budget, pace)
            while affordable and _error2(levels) > 0.5 * tolerance**2:
                affordable = _improve(levels, tolerance, budget, pool)
                bar.update(_cost(levels) - bar.n)
            bias, bias_error = _bias(levels)
            accurate = bias + bias_error <= math.sqrt(0.5) * tolerance
            if accurate or not affordable or len(levels) == max_levels:
                break
            levels.append(Level(base, len(levels), f))
    converged = accurate and affordable
    if not converged:
        _log.warning("expectation: levels or budget did not suffice for tolerance=%r", tolerance)
    if levels[-1].stopped:
        warnings.warn(
            f"{levels[-1].stopped} of {levels[-1].count} paths of the finest level reached the "
            "radius with fixed steps, so that the error is not proportional to the step and the "
            "bias may be underestimated",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    return _dataset(levels, tolerance).assign_attrs(
        converged=int(converged), radius=base.radius, seconds=time.perf_counter() - began
    )


def _warn_of_time(levels: list[Level], tolerance: float, budget: int, pace: float) -> bool:
    """Warn if minutes are to be expected at `pace`, in seconds a step; return whether it did."""
    costs, done, wanted = _wanted(levels, tolerance)
    steps = min(float(costs @ np.maximum(wanted - done, 0.0)), float(budget - costs @ done))
    left = pace * steps
    if left < _LONG:
        return False
    stopped = max(level.stopped / level.count for level in levels)
    reason = f", since {100.0 * stopped:.2g} % of the paths reach the radius" if stopped else ""
    warnings.warn(
        f"tolerance={tolerance!r} takes about {left / 60.0:.0f} minutes or more{reason}; a larger "
        "tolerance or a smaller budget takes less",
        UserWarning,
        stacklevel=4,  # the caller of the recorded function
    )
    return True


def _cost(levels: list[Level]) -> int:
    """Return the number of Euler steps taken."""
    return sum(level.cost * level.count for level in levels)


def _error2(levels: list[Level]) -> float:
    """Return the variance of the estimator."""
    return sum(level.error2 for level in levels) + 3.0 * levels[-1].error2


def _wanted(levels: list[Level], tolerance: float) -> tuple[Array, Array, Array]:
    """Return cost of a sample, number of samples, and the number that the variances require."""
    variances, costs, done = np.array(
        [(level.variance[0], level.cost, level.count) for level in levels], dtype=float
    ).T
    # Few samples can underestimate a variance, which falls at most fourfold per level.
    for i in range(2, len(levels)):
        variances[i] = max(variances[i], variances[i - 1] / 4.0)
    weights = np.where(np.arange(len(levels)) < len(levels) - 1, 1.0, 2.0)
    wanted = weights * np.sqrt(variances / costs) * (weights @ np.sqrt(variances * costs))
    wanted = np.ceil(_MARGIN * wanted / max(0.5 * tolerance**2, 1e-200) / LANES) * LANES
    return costs, done, wanted


def _improve(levels: list[Level], tolerance: float, budget: int, pool: ThreadPoolExecutor) -> bool:
    """Add the samples that the variances require; return False if the budget is too small."""
    costs, done, wanted = _wanted(levels, tolerance)
    more = np.maximum(wanted - done, 0.0)
    # A level numbers its samples with 32 bits.
    share = min((budget - costs @ done) / (costs @ more), 2.0**31 / more.max(), 1.0)
    if share < 1.0:
        more = np.floor(max(share, 0.0) * more / LANES) * LANES
    for level, number in zip(levels, more, strict=True):
        level.grow(level.count + int(number), pool)
    return bool(share == 1.0)


def _bias(levels: list[Level]) -> tuple[float, float]:
    """Estimate the absolute bias and its standard error.

    A quarter of the bias of the previous level counts too: the difference can pass through zero.
    """
    biases = []
    for i in range(max(2, len(levels) - 2), len(levels)):
        fine, coarse = levels[i], levels[i - 1]
        shrink = 3.0 * 4.0 ** (len(levels) - 1 - i)
        bias = abs(2.0 * fine.mean[0] - coarse.mean[0]) / shrink
        biases.append((float(bias), math.sqrt(4.0 * fine.error2 + coarse.error2) / shrink))
    return max(biases, key=sum)


def _first_steps(horizon: float, first_step: float | None, max_levels: int) -> int:
    """Return the number of steps on level 0."""
    if first_step is None:
        steps = max(4, math.ceil(horizon / 0.1))
    else:
        check_positive("first_step", first_step)
        try:
            steps = count_steps(horizon, first_step)
        except ValueError as error:
            raise ValueError(f"first_{error}") from None  # the message begins with "step="
    if steps * 2.0 ** (max_levels - 1) >= 2**32:
        most = f"<= {33 - steps.bit_length()} for first_step={horizon / steps:.6g}"
        raise argument_error("max_levels", most, max_levels)
    return steps


def _dataset(levels: list[Level], tolerance: float) -> xr.Dataset:
    error2, last = _error2(levels), levels[-1]
    bias, bias_error = _bias(levels)
    refined = abs(float(last.mean[0])) / (math.sqrt(0.5) * tolerance)
    paths = max(1.0, last.variance[1] / error2) if error2 > 0.0 else 1.0
    names = ("step", "samples", "mean", "variance", "variance_fine", "level_cost", "stopped")
    rows = [
        (x.grids[0].dt, x.count, x.mean[0], *x.variance, x.cost, x.stopped / x.count)
        for x in levels
    ]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return xr.Dataset(
        {
            "value": float(columns[2].sum() + last.mean[0]),
            "standard_error": math.sqrt(error2),
            "bias": bias,
            "bias_error": bias_error,
            "cost": _cost(levels),
            "plain_cost": float(paths * max(1.0, last.grids[0].steps * refined)),
            **{name: ("level", x) for name, x in zip(names, columns, strict=True)},
        },
        coords={"level": range(len(levels))},
    )
