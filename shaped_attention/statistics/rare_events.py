"""Probabilities of rare events of the chain and of the SDE, by adaptive multilevel splitting."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from shaped_attention.blocks.base import Layer, specification_of
from shaped_attention.blocks.reasons import check_chain, check_limit
from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_finite,
    check_inside,
    check_positive,
)
from shaped_attention.libraries import __version__
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.arguments import LARGEST_RADIUS
from shaped_attention.samplers.clock_step import can_explode
from shaped_attention.samplers.sde import count_steps
from shaped_attention.samplers.specification import (
    MEMORY_BUDGET,
    Options,
    Specification,
    specify,
)
from shaped_attention.samplers.steppers import SHIFT
from shaped_attention.statistics.proportions import fraction_bounds
from shaped_attention.statistics.rare_event_runs import (
    PILOTS,
    Study,
    finished_runs,
    pilot,
    plain_paths,
    run_all,
)
from shaped_attention.statistics.reaction import (
    Coordinate,
    Observable,
    Reaction,
    checked,
    gap_of,
    is_size,
    name_of_function,
    scale_of,
    step_deviation,
    value_of,
)
from shaped_attention.statistics.splitting import Run

_SIZES = "rare_event takes a horizon, with step and method, or a width and a depth"


@recorded()
def rare_event(
    layer: Layer,
    v0: ArrayLike,
    observable: Observable,
    level: float,
    *,
    above: bool = True,
    when: str = "ever",
    horizon: float | None = None,
    step: float | None = None,
    method: str | None = None,
    width: int | None = None,
    depth: int | None = None,
    replicas: int = 1000,
    runs: int = 10,
    seed: int = 0,
    confidence: float = 0.95,
    coordinate: Coordinate = None,
    radius: float | None = None,
    store: str | Path | None = None,
    memory: int = MEMORY_BUDGET,
    progress: bool | None = None,
    estimator: str | None = None,
) -> xr.Dataset:
    """Estimate the probability that an observable reaches a level, by multilevel splitting.

    Paths that come closest to the level are continued several times with new random numbers (Cérou
    and Guyader, Stochastic Analysis and Applications 25, 2007). The estimator is unbiased (Bréhier,
    Gazeau, Goudenège, Lelièvre and Rousset, Annals of Applied Probability 26, 2016). Its cost grows
    with the logarithm of 1 / P: a probability of 10^-9 takes about 10^4 paths in each run of 1000
    replicas, for a relative standard deviation of about 15 %.

    Parameters
    ----------
    layer, v0, seed, radius
        As in `shaped_attention.simulate_chain`, with one v0 for all paths. A path that stops at the
        radius counts with its value there. If the observable is a size of V, the radius must lie
        beyond the level; the default is then raised to at least 4 m times that size.
    observable
        A name of `shaped_attention.observables`; "norm", the Frobenius norm of V; "u", V_11 - 2
        V_12 + V_22 for two tokens and 4 |C V C| / m in general, C = I - 11^T / m; "module:function"
        or a function that maps V (samples, m, m) to numbers (samples,).
    level, above
        The event: the observable is at least the level, or at most the level if `above` is False.
    when
        "ever": at any layer or step after the first; "end": at the last.
    horizon, step, method
        For the SDE, as in `shaped_attention.integrate_sde`; the step is 0.01 by default. With
        "clock" the level is moved so that a path that passes it between two steps counts; "direct"
        is the scheme itself at its steps. None, the default, means the clock where paths can
        explode.
    width, depth
        For the chain in place of horizon and step.
    replicas
        Number of replicas of a run, at least 8. The relative variance of a run is at best about
        log(1 / P) / replicas.
    runs
        Number of independent runs, at least 2.
    confidence
        Confidence level of the interval.
    coordinate
        Function that maps V (samples, m, m) and the time left (samples,) to numbers (samples,),
        larger where the event is closer, or "module:function". Default: one for the observable. It
        changes the variance, not the expectation.
    store
        File of finished runs. The same call, possibly with more runs, continues from it.
    memory
        Bytes that the paths of the replicas may take.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.
    estimator
        "splitting"; "plain", for events at the end that are not rare; None for whichever takes less
        time.

    Returns
    -------
    xarray.Dataset with

    - `probability`, the mean of the runs; `relative_error`, its standard error divided by it; and
      `interval` (bound), Student's on the logarithmic scale. If all runs agree, it is that of
      Clopper and Pearson for their first replicas;
    - `cost`, in paths: the number of steps taken divided by that of one path, including 256 pilot
      paths; `steps`, the number of steps itself; the attribute `seconds` has the time of this call;
    - `estimator`, "splitting" or "plain"; plain paths are taken for events at the end, if they have
      the same error in less time;
    - `stopped_share`, the share of paths that had stopped at the radius before the end among the
      paths in the event at the end;
    - `run_probability`, `run_cost`, `run_hits` (run): the estimate of a run, its cost, and the
      number of its first replicas, or plain paths, in the event;
    - `levels`, `killed` (run, generation): scores below which replicas were killed, and their
      number; NaN and 0 after the last generation.

    Raises
    ------
    ValueError
        If an argument is outside its range, if V_0 is in the event, or if the coordinate has the
        same values on all paths.

    Warns
    -----
    UserWarning
        If runs lost all replicas: the interval is then too optimistic, and more replicas help. Or
        if so many paths in the event had stopped at the radius that another radius could change the
        probability by more than half the width of the interval.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> result = sa.rare_event(
    ...     sa.ShapedAttention(0.3), sa.equicorrelated(2, 0.2), "log trace V", 3.0,
    ...     width=32, depth=16, replicas=100, runs=4,
    ... )
    >>> lower, upper = result.interval.values
    >>> bool(lower < result.probability < upper < 1e-4)
    True
    """
    began = time.perf_counter()
    check_choice("when", when, ("ever", "end"))
    if method is not None:
        check_choice("method", method, ("clock", "direct"))
    if estimator is not None:
        check_choice("estimator", estimator, ("splitting", "plain"))
    check_finite("level", level)
    check_count("replicas", replicas, lowest=8)
    check_count("runs", runs, lowest=2)
    check_inside("confidence", confidence)
    if observable in ("norm", "u"):
        check_positive("level", level)
    spec, method = _specification(
        layer, v0, horizon, step, method, width, depth, replicas, seed, radius, memory
    )
    if above and (observable in ("norm", "u") or is_size(observable)):
        size = float(level) if observable in ("norm", "u") else math.exp(min(level, 700.0))
        # |V| <= tr V <= m |V|, and the clock stops paths a little inside the radius.
        if radius is None:
            least = min(4.0 * spec.tokens * size, LARGEST_RADIUS)
            spec = replace(spec, radius=max(spec.radius, least))
        if spec.radius <= 2.0 * spec.tokens * size:
            least = 2.0 * spec.tokens * size
            raise argument_error("radius", f"above {least:g} for level={level!r}", spec.radius)
    value = value_of(observable, spec.tokens)
    score = None if coordinate is None else checked(coordinate, "coordinate", 2)
    start = value(spec.v0[None])
    _check_outside(start, level, above, when, level, "")
    names = {
        name: function and name_of_function(function)
        for name, function in (("observable", observable), ("coordinate", coordinate))
    }
    for name, text in names.items():
        if store is not None and text is not None and "<" in text:
            raise argument_error(
                name, "a function defined in a module, so that a store can keep its name", text
            )
    call = {
            "function": "rare_event", "version": __version__,
            "layer": specification_of(spec.pattern), "v0": spec.v0.tolist(),
            "level": float(level), "above": above,
            "when": when, "width": width, "steps": spec.steps, "dt": spec.dt,
            "method": method, "replicas": replicas, "seed": spec.seed, "radius": spec.radius,
            **names,
        }  # fmt: skip
    study, scale = Study(spec, width, method), scale_of(observable)
    pilots = pilot(study, lambda v: scale.forward(value(v)), score)
    if score is not None and not pilots.varies:
        varying = "a function that depends on V: its values are equal on all paths"
        raise argument_error("coordinate", varying, names["coordinate"])
    barrier = float(level)
    if method == "clock" and when == "ever":
        # A path passes a barrier more often between steps than at their ends.
        large = above and (observable == "u" or is_size(observable))
        size = float(scale.forward(level))
        deviation = pilots.deviation
        if large:
            u = math.exp(size) * (1.0 if observable == "u" else 4.0 / spec.tokens)
            deviation = step_deviation(spec.pattern, spec.tokens, u, spec.dt)
        shift = SHIFT * deviation
        barrier = float(scale.inverse(size - (shift if above else -shift)))
        _check_outside(start, barrier, above, when, level, ", by more than a step")
    gap = gap_of(observable, barrier, above, spec.pattern, spec.tokens)
    gaps = gap(spec.v0[None], start), np.median(gap(pilots.ends, value(pilots.ends)))
    reaction = Reaction(
        value=value,
        level=barrier,
        above=bool(above),
        at_end=when == "end",
        horizon=study.horizon,
        gap=gap,
        drift=float(gaps[0][0] - gaps[1]) / study.horizon,
        coordinate=score,
    )
    plain, probed = None, 0
    if estimator != "splitting":
        plain, probed = plain_paths(study, reaction, replicas, runs)
    if estimator == "plain" and plain is None:
        splitting = "'splitting' or None if the event is rare or when='ever'"
        raise argument_error("estimator", splitting, estimator)
    file = None if store is None else Path(store)
    known = {} if file is None else finished_runs(file, {**call, "plain": plain})
    finished = run_all(study, reaction, replicas, known, runs, file, progress, plain)
    lost = sum(run.probability == 0.0 for run in finished)
    if lost:
        warnings.warn(
            f"replicas={replicas}: {lost} of {runs} runs lost all replicas before the event; more "
            "replicas, or another coordinate, make the interval reliable",
            UserWarning,
            stacklevel=3,  # the caller of the recorded function
        )
    result = dataset_of(finished, spec.steps, plain or replicas, confidence)
    _warn_of_stopped(result, spec.radius)
    return result.assign(
        cost=result["cost"] + probed / spec.steps,
        steps=result["steps"] + probed,
        estimator="splitting" if plain is None else "plain",
    ).assign_attrs(seconds=time.perf_counter() - began)


def _check_outside(
    start: NDArray[np.float64], barrier: float, above: bool, when: str, level: float, how: str
) -> None:
    """Raise ValueError if paths are in the event before their first step."""
    if when == "ever" and ((start >= barrier) if above else (start <= barrier))[0]:
        outside = f"{'above' if above else 'below'} the value of v0, {start[0]:.6g}{how}"
        raise argument_error("level", outside, level)


def _warn_of_stopped(result: xr.Dataset, radius: float) -> None:
    """Warn if paths that stopped at the radius could change the probability."""
    share, p = float(result["stopped_share"]), float(result["probability"])
    low, high = result["interval"].to_numpy()
    if share * p > 0.5 * (high - low):
        warnings.warn(
            f"radius={radius:g}: {100.0 * share:.3g} % of the paths in the event had stopped at "
            "the radius and count with their value there; another radius could change the "
            "probability by more than its error",
            UserWarning,
            stacklevel=4,  # the caller of the recorded function
        )


def _specification(
    layer: Layer, v0: ArrayLike, horizon: float | None, step: float | None, method: str | None,
    width: int | None, depth: int | None, replicas: int, seed: int, radius: float | None,
    memory: int,
) -> tuple[Specification, str]:  # fmt: skip
    """Return the specification of one run, and the method."""
    of_chain = (width, depth) != (None, None)
    if of_chain == (horizon is not None) or (of_chain and (step, method) != (None, None)):
        raise ValueError(_SIZES)
    if horizon is not None:
        check_limit(layer)
        steps = count_steps(horizon, 0.01 if step is None else step)
        dt = horizon / steps
    elif width is None or depth is None:
        raise ValueError(_SIZES)
    else:
        check_chain(layer)
        check_count("width", width)
        check_count("depth", depth)
        steps, dt = depth, 1.0 / width
    spec = specify(
        layer, v0, width=width, steps=steps, dt=dt, samples=replicas, seed=seed,
        options=Options(radius=radius, memory=memory, progress=False),
    )  # fmt: skip
    if spec.v0.ndim != 2:
        raise argument_error("v0", "a matrix (m, m)", spec.v0)
    most = memory // (8 * (steps + 1) * (2 + spec.groups * spec.tokens**2))
    if replicas > most:
        raise argument_error("replicas", f"<= {most}, which fit into {memory} bytes", replicas)
    if width is None and method is None:
        method = "clock" if can_explode(spec.pattern, spec.tokens) else "direct"
    return spec, method or "direct"


def interval_of(
    estimates: NDArray[np.float64], hits: int, trials: int, confidence: float
) -> tuple[float, float]:
    """Return Student's interval of the mean of positive estimates, on the logarithm's scale.

    If the estimates are equal, return Clopper and Pearson's for `hits` of independent `trials`.
    """
    mean, count = float(estimates.mean()), len(estimates)
    error = float(estimates.std(ddof=1)) / math.sqrt(count)
    if error == 0.0:
        lower, upper = map(float, fraction_bounds(hits, trials, confidence))
        return lower, upper
    factor = math.exp(float(student.ppf(0.5 + 0.5 * confidence, count - 1)) * error / mean)
    return mean / factor, min(1.0, mean * factor)


def dataset_of(
    finished: list[Run], steps: int, replicas: int, confidence: float, pilots: int = PILOTS
) -> xr.Dataset:
    """Return the estimate of independent runs, its interval, and its cost in paths of `steps`."""
    estimates = np.array([run.probability for run in finished])
    hits = np.array([run.hits for run in finished])
    costs = np.array([run.steps / steps for run in finished])
    mean = float(estimates.mean())
    error = float(estimates.std(ddof=1)) / math.sqrt(len(finished))
    weights = estimates if mean > 0.0 else np.ones(len(finished))
    levels = list(zip_longest(*(run.levels for run in finished), fillvalue=np.nan))
    killed = list(zip_longest(*(run.killed for run in finished), fillvalue=0))
    shape = len(finished), len(levels)
    bounds = interval_of(estimates, int(hits.sum()), replicas * len(finished), confidence)
    return xr.Dataset(
        {
            "probability": mean,
            "relative_error": error / mean if mean > 0.0 else math.inf,
            "interval": ("bound", list(bounds)),
            "cost": float(costs.sum()) + pilots,
            "steps": sum(run.steps for run in finished) + pilots * steps,
            "stopped_share": float(np.average([run.stopped for run in finished], weights=weights)),
            "run_probability": ("run", estimates),
            "run_cost": ("run", costs),
            "run_hits": ("run", hits),
            "levels": (("run", "generation"), np.array(levels).T.reshape(shape)),
            "killed": (("run", "generation"), np.array(killed, dtype=np.int64).T.reshape(shape)),
        },
        coords={"bound": ["lower", "upper"], "run": range(len(finished))},
    )
