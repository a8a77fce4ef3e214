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

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.base import Layer, check_limit
from shaped_attention.checks import check_choice, check_count, check_positive, real_array
from shaped_attention.numerics.jit import LANES
from shaped_attention.numerics.observables import observables
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chunks import thread_count
from shaped_attention.samplers.sde import count_steps
from shaped_attention.samplers.specification import Options, specify
from shaped_attention.statistics.level_pairs import Function, Level

_log = logging.getLogger(__name__)

Observable = str | Callable[[NDArray[np.float64]], ArrayLike]
"""A name among `observables`, or a function from V (samples, m, m) to numbers (samples,)."""

_PILOT = 2048
"""Samples from which the variance of a new level is first estimated."""

_LONG = 60.0
"""Expected seconds from which on a warning says so."""

_MARGIN = 1.02
"""Factor above the optimum: better estimates of the variances then rarely require more samples."""


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
        As in `shaped_attention.integrate_sde`. A path stops at the first grid time with
        |V| >= radius, and f is evaluated there. Extrapolation and bias rely on weak order 1, which
        is lost to the extent that paths stop (`stopped`), of which a warning tells.
    observable
        Lipschitz function f: a name from `shaped_attention.observables`, or a function that maps V
        (samples, m, m) to finite numbers (samples,) and may be called from several threads.
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
      finer path, `level_cost` of a sample in Euler steps, fine and coarse, and `stopped`, the
      fraction of samples in which a path reached the radius;
    - `cost`, the number of Euler steps taken, and `plain_cost`, the number that plain Monte Carlo
      would take for the same standard error and, with a bias of Y_L h / h_L, a bias of at most
      tolerance / sqrt 2. Most of the gain is due to extrapolation: at tolerances of 10^-4 and more,
      plain paths with the finest step here would cost less if one knew how to choose that step.

    Its attribute `converged` is 0, and a warning is logged, if levels or budget did not suffice.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the observable returns anything but finite numbers
        (samples,).

    Warns
    -----
    UserWarning
        If paths reached the radius, or the first samples let expect more than a minute.
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
    name = (
        observable if isinstance(observable, str) else getattr(observable, "__name__", "observable")
    )
    if base.v0.ndim != 2:
        raise ValueError(f"v0 has shape {base.v0.shape}; a matrix (m, m) is needed")
    f = _function(observable, name, base.v0)
    levels = [Level(base, number, f) for number in range(3)]
    with (
        ThreadPoolExecutor(thread_count(base.place)) as pool,
        # The total number of steps is not known in advance.
        progress_bar("expectation", progress, unit="step", unit_scale=True) as bar,
    ):
        affordable, warned = True, False
        while True:
            for level in levels:
                level.grow(_PILOT, pool)  # only new levels have fewer
                bar.update(_cost(levels) - bar.n)
            if not warned:
                warned = _warn_of_time(levels, tolerance, budget, time.perf_counter() - began)
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
            "radius with fixed steps, so that the error does not fall like the step and the bias "
            "may be underestimated",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    return _dataset(levels, tolerance).assign_attrs(
        converged=int(converged), radius=base.radius, seconds=time.perf_counter() - began
    )


def _warn_of_time(levels: list[Level], tolerance: float, budget: int, seconds: float) -> bool:
    """Warn if the first samples let expect minutes; return whether a warning was given."""
    costs, done, wanted = _wanted(levels, tolerance)
    steps = min(float(costs @ np.maximum(wanted - done, 0.0)), float(budget - costs @ done))
    left = seconds * steps / max(float(costs @ done), 1.0)
    if left < _LONG:
        return False
    stopped = max(level.stopped / level.count for level in levels)
    reason = f", {100.0 * stopped:.2g} % of the paths reach the radius" if stopped else ""
    warnings.warn(
        f"tolerance={tolerance!r}: about {left / 60.0:.0f} minutes or more are needed{reason}; a "
        "larger tolerance or a smaller budget takes less",
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


def _wanted(
    levels: list[Level], tolerance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
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
    found = []
    for i in range(max(2, len(levels) - 2), len(levels)):
        fine, coarse = levels[i], levels[i - 1]
        shrink = 3.0 * 4.0 ** (len(levels) - 1 - i)
        bias = abs(2.0 * fine.mean[0] - coarse.mean[0]) / shrink
        found.append((float(bias), math.sqrt(4.0 * fine.error2 + coarse.error2) / shrink))
    return max(found, key=sum)


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
        raise ValueError(
            f"max_levels={max_levels}: with first_step={horizon / steps:.6g} the finest level "
            "would have 2^32 steps; fewer levels are needed"
        )
    return steps


def _function(observable: Observable, name: str, v0: NDArray[np.float64]) -> Function:
    """Return the observable as a function of V (samples, m, m) that checks its values."""
    if isinstance(observable, str):
        check_choice("observable", observable, observables(v0[None]))
    elif not callable(observable):
        raise ValueError(f"observable={observable!r}: a name or a function is needed")

    def f(v: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(observable, str):
            return observables(v)[observable]
        values = real_array(observable(v), f"observable: what {name} returned")
        if values.shape != (len(v),) or not np.isfinite(values).all():
            raise ValueError(
                f"observable {name} returned shape {values.shape}, "
                f"{int((~np.isfinite(values)).sum())} numbers of them not finite; for V of shape "
                f"{v.shape} finite ones of shape ({len(v)},) are needed"
            )
        return values

    return f


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
