"""Checks of a custom block: whether its descriptions agree with each other.

A block describes one model several times: with real weights (`branch`), in Gram space (`root`) and
in the limit (`limit`). Each check compares two of these, or one with what the package derives from
it, and states the size of an error that it would have noticed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from shaped_attention.argument_types import with_types
from shaped_attention.blocks import superlinear
from shaped_attention.blocks.base import Block, Limit, chain_reason, limit_reason
from shaped_attention.blocks.parameters import Schedule, at_depth, resolved, scheduled
from shaped_attention.checks import check_count
from shaped_attention.numerics.covariance import check_covariance, half_vectorise
from shaped_attention.numerics.factor import semidefinite_cholesky
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.observables import observables
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.pathwise import pathwise
from shaped_attention.samplers.request import common_groups
from shaped_attention.samplers.steps import check_coefficients, traced_chain, traced_limit
from shaped_attention.theory.drift_diffusion import diffusion, drift

Array = NDArray[np.float64]

PASS, FAIL, NOT_TESTED = "pass", "fail", "not tested"

_LEVEL = 1e-3
"""Probability that a correct block fails a statistical check."""

_ERRORS = 5.0
"""Standard errors by which a mean of one wide layer may differ from its limit."""

_SHARE = 0.05
"""Share of the observed deviation from the limit at a finite width that extrapolation may leave."""

_WIDE = 128
"""Columns of a group in the narrower of two wide layers."""

_ROOTS = 2**14
"""Number of roots that are made at once."""


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Attributes
    ----------
    name
        What was compared.
    outcome
        "pass", "fail" or "not tested".
    detail
        What was found, or why it was not tested.
    noticed
        The size of an error that would have been noticed.
    """

    name: str
    outcome: str
    detail: str
    noticed: str = ""


@dataclass(frozen=True)
class BlockReport:
    """Result of `check_block`; printing it prints the table.

    Attributes
    ----------
    table
        The checks.
    """

    table: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(check.outcome != FAIL for check in self.table)

    def __str__(self) -> str:
        lines = [f"{check.outcome:<10} {check.name}: {check.detail}" for check in self.table]
        lines += [
            f"{'':<10} {check.name} would have noticed {check.noticed}"
            for check in self.table
            if check.noticed
        ]
        failed = sum(check.outcome == FAIL for check in self.table)
        return "\n".join([*lines, f"{failed} of {len(self.table)} checks failed"])


@with_types
def check_block(
    block: Block, v0: ArrayLike, *, width: int | None = None, samples: int = 2000, seed: int = 0
) -> BlockReport:
    """Check whether the descriptions of a block agree with each other.

    It compares networks with real weights with the chain, one wide layer with drift and diffusion,
    what the clock uses with what is derived from drift and noise, and derivatives of paths with
    differences. It tests whether the law depends on the means of the tokens, whether the block
    inherits what it should declare, whether parameters outside their ranges are refused, and
    whether its descriptions can be traced. What it cannot know is whether `branch` is the model
    that was meant: `symbolic` and exact laws show that.

    Parameters
    ----------
    block
        The block; schedules are replaced by their values at depth 0.
    v0
        Covariance (m, m) at which it is checked, and at twice it.
    width
        Width of the networks, by default the smallest multiple of the number of groups with at
        least 4 m columns a group, and 32 columns in all.
    samples
        Number of networks; the chain has ten times and a wide layer a thousand times as many.
    seed
        Seed of all samples.

    Returns
    -------
    BlockReport with `ok` and `table`, one `Check` for each line.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> report = sa.check_block(sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), samples=200)
    >>> report.ok
    True
    """
    if not isinstance(block, Block):
        raise ValueError(f"block={block!r}: a block is needed")
    start = check_covariance(v0, "v0")
    check_count("samples", samples, lowest=100)
    check_count("seed", seed, lowest=0)
    plain = resolved(block, 0.0) if scheduled(block) else block
    groups = common_groups([plain])
    least = groups * max(4 * len(start), -(-32 // groups))
    trial = _Trial(plain, start, least if width is None else width, samples, seed)
    return BlockReport(tuple(check for each in _CHECKS for check in each(trial)))


@dataclass(frozen=True)
class _Trial:
    """A block and the sizes at which it is checked."""

    block: Block
    v0: Array
    width: int
    samples: int
    seed: int

    @property
    def tokens(self) -> int:
        return len(self.v0)

    @property
    def limit(self) -> Limit | None:
        """The limit, if there is one."""
        return None if limit_reason(self.block) else self.block.limit

    def parameters(self) -> Any:
        """Return the parameters as numbers."""
        return at_depth(self.block, 0.0)


def _inherited(trial: _Trial) -> Iterator[Check]:
    """What a class overrides and what it then does not inherit."""
    block = trial.block
    if not block.overridden:
        yield Check("overridden methods", PASS, "the block overrides no method of another block")
        return
    for name, reason in (("limit", limit_reason(block)), ("chain", chain_reason(block))):
        if f"{type(block).__name__} overrides" in reason:
            yield Check(f"overridden methods and {name}", FAIL, reason)
            return
    names = ", ".join(block.overridden)
    yield Check("overridden methods", PASS, f"it declares what rests on {names}")


def _traced(trial: _Trial) -> Iterator[Check]:
    block, tokens = trial.block, trial.tokens
    groups = common_groups([block])
    width = trial.width
    traces: tuple[tuple[str, str, Callable[[], object]], ...] = (
        ("chain", chain_reason(block), lambda: traced_chain([[block]], tokens, width, groups)),
        ("limit", limit_reason(block), lambda: traced_limit([[block]], tokens, 0.01)),
    )
    for name, reason, trace in traces:
        if reason:
            yield Check(f"tracing of the {name}", NOT_TESTED, f"there is none: {reason}")
            continue
        try:
            trace()
            yield Check(f"tracing of the {name}", PASS, "compiled code can run it")
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            yield Check(f"tracing of the {name}", FAIL, str(error))


def _ranges(trial: _Trial) -> Iterator[Check]:
    """Whether the block refuses what is not a number, and parameters without a limit."""
    accepted = []
    for name in _parameters_of(trial.block):
        for value in (math.nan, math.inf):
            if (changed := _changed(trial.block, name, value)) is not None:
                accepted.append(f"{name}={value!r}")
                del changed
                break
        for value in (0.0, -1.0, 1.5):
            changed = _changed(trial.block, name, value)
            if changed is None or limit_reason(changed):
                continue
            try:
                check_coefficients([[changed]], trial.tokens, 1)
            except FloatingPointError:
                accepted.append(f"{name}={value!r}")
                break
    if not _parameters_of(trial.block):
        yield Check("ranges of parameters", NOT_TESTED, "the block has no numerical parameter")
    elif accepted:
        yield Check(
            "ranges of parameters", FAIL,
            f"{', '.join(accepted)} are accepted, which have no limit: a field "
            "`name: float = bounded(low, high)` of blocks.parameters refuses them",
        )  # fmt: skip
    else:
        yield Check(
            "ranges of parameters", PASS, "NaN, infinity and numbers without a limit are refused"
        )


def _parameters_of(block: Block) -> list[str]:
    """Return the names of the numerical fields that descriptions take from `p`."""
    return [
        entry.name
        for entry in fields(block)  # type: ignore[arg-type]
        if isinstance(getattr(block, entry.name), float | Schedule)
        and entry.name not in block.fixed
    ]


def _changed(block: Block, name: str, value: float) -> Block | None:
    """Return the block with another value of a field; None if it is refused."""
    try:
        return replace(block, **{name: value})  # type: ignore[type-var]
    except (ArithmeticError, ValueError):
        return None


def _chain_and_network(trial: _Trial) -> Iterator[Check]:
    """Networks against the chain, after one layer and after four, by Kolmogorov and Smirnov."""
    name, block = "branch against root", trial.block
    if reason := chain_reason(block):
        yield Check(name, NOT_TESTED, f"there is no chain: {reason}")
        return
    options: dict[str, Any] = {"width": trial.width, "depth": 4, "save_every": 1, "progress": False}
    try:
        network = simulate_network(
            block, trial.v0, samples=trial.samples, seed=trial.seed, **options
        )
        chain = simulate_chain(
            block, trial.v0, samples=10 * trial.samples, seed=trial.seed, **options
        )
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        yield Check(name, FAIL, f"a run fails: {error}")
        return
    found = _smallest([(_at(network, i), _at(chain, i)) for i in (1, 4)], ("layer 1", "layer 4"))
    yield replace(found, name=name)


def _at(result: xr.Dataset, i: int) -> dict[str, Array]:
    return observables(result["V"].to_numpy()[i])


def _smallest(
    pairs: list[tuple[dict[str, Array], dict[str, Array]]], words: tuple[str, ...]
) -> Check:
    """Return the check of the smallest p-value of all observables of some pairs of samples."""
    found = [
        (float(stats.ks_2samp(_rounded(a[key]), _rounded(b[key])).pvalue), f"{key}, {word}")
        for (a, b), word in zip(pairs, words, strict=True)
        for key in a
    ]
    p, where = min(found)
    sizes = [len(next(iter(x.values()))) for x in pairs[0]]
    effective = sizes[0] * sizes[1] / (sizes[0] + sizes[1])
    apart = math.sqrt(0.5 * math.log(2.0 * len(found) / _LEVEL) / effective)
    corrected = min(1.0, p * len(found))
    return Check(
        "", PASS if corrected > _LEVEL else FAIL,
        f"smallest p-value times the number of {len(found)} tests: {corrected:.2g} ({where})",
        f"a distance of {apart:.2g} between distribution functions, in half of all cases",
    )  # fmt: skip


def _rounded(values: Array) -> Array:
    """Return values without their rounding errors, which differ where a law has atoms."""
    return np.round(values, 9)


def _means(trial: _Trial) -> Iterator[Check]:
    """Whether the law of a layer depends on the means of the tokens, and the block says so."""
    block, width = trial.block, trial.width
    factor = semidefinite_cholesky(torch.tensor(trial.v0))
    tokens = torch.zeros(trial.samples, trial.tokens, width, dtype=torch.float64)
    tokens[..., : trial.tokens] = width**0.5 * factor
    constant = torch.full((width,), width**-0.5, dtype=torch.float64)
    axis = torch.zeros(width, dtype=torch.float64)
    axis[0] = 1.0
    # The reflection that exchanges the first axis with the direction of 1 gives the tokens means.
    normal = (axis - constant) / torch.linalg.vector_norm(axis - constant)
    turned = tokens - 2.0 * (tokens @ normal)[..., None] * normal
    generator = torch.Generator().manual_seed(trial.seed)

    def project(x: torch.Tensor, columns: int) -> torch.Tensor:
        shape = (*x.shape[:-2], x.shape[-1], columns)
        return x @ torch.randn(shape, dtype=x.dtype, generator=generator)

    sides = []
    for x in (tokens, turned):
        new = block.forward(trial.parameters(), x, project)
        sides.append(observables((new @ new.mT / width).numpy()))
    found = _smallest([(sides[0], sides[1])], ("one layer",))
    name = "means of the tokens"
    if block.means:
        yield Check(name, PASS, "the state has them (means)")
    elif common_groups([block]) > 1:
        yield Check(name, NOT_TESTED, "heads without an output projection see parts of the columns")
    elif found.outcome == FAIL:
        detail = f"the law depends on them, but `means` is False: {found.detail}"
        yield Check(name, FAIL, detail)
    else:
        yield replace(found, name=name, detail=f"the law does not depend on them: {found.detail}")


def _wide_layer(trial: _Trial) -> Iterator[Check]:
    """One wide layer, extrapolated from two widths, against drift and diffusion."""
    names, block = ("drift from one wide layer", "diffusion from one wide layer"), trial.block
    if trial.limit is None:
        for name in names:
            yield Check(name, NOT_TESTED, f"there is no limit: {limit_reason(block)}")
        return
    if trial.limit.normalised:
        for name in names:
            yield Check(name, NOT_TESTED, "the limit is that of correlations after many layers")
        return
    worst = {name: (0.0, "", "") for name in names}
    for scale in (1.0, 2.0):
        v = scale * trial.v0
        try:
            known = half_vectorise(drift(block, v)), diffusion(block, v)
            measured = _extrapolated(trial, v)
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            yield Check(" and ".join(names), FAIL, f"a run fails: {error}")
            return
        for name, theory, (value, deviation, left) in zip(names, known, measured, strict=True):
            allowed = _ERRORS * deviation + _SHARE * left + 1e-9 * np.abs(known[1]).max()
            excess = np.abs(value - theory) / allowed
            index = np.unravel_index(int(excess.argmax()), excess.shape)
            where = (
                f"at {scale:g} v0 entry {tuple(int(i) for i in index)} is {theory[index]:.4g}, and "
                f"{value[index]:.4g} +- {deviation[index]:.2g} from one layer"
            )
            if excess.max() >= worst[name][0]:
                size = f"an error of {allowed.max():.2g} (the largest entry is"
                worst[name] = float(excess.max()), where, f"{size} {np.abs(theory).max():.3g})"
    for name in names:
        most, where, size = worst[name]
        yield Check(name, PASS if most <= 1.0 else FAIL, where, size)


def _extrapolated(trial: _Trial, v: Array) -> list[tuple[Array, Array, Array]]:
    """Return drift and diffusion at width infinity: value, standard error, and what was added."""
    found = [_moments_at(trial, v, common_groups([trial.block]) * n) for n in (_WIDE, 2 * _WIDE)]
    result = []
    for (narrow, narrow_error), (wide, wide_error) in zip(*found, strict=True):
        value = 2.0 * wide - narrow
        result.append((value, np.hypot(2.0 * wide_error, narrow_error), np.abs(wide - narrow)))
    return result


def _moments_at(trial: _Trial, v: Array, width: int) -> list[tuple[Array, Array]]:
    """Return n E[V' - V] and n Cov[V'] of one layer with their standard errors."""
    block = trial.block
    run, count = simulate_chain, 1000 * trial.samples
    if chain_reason(block):
        run, count = simulate_network, 10 * trial.samples
    new, means = [], []
    for k, size in enumerate(_blocks(count, trial.tokens)):
        seed = trial.seed + 1 + k
        result = run(block, v, width=width, depth=1, samples=size, seed=seed, progress=False)
        new.append(half_vectorise(result["V"].to_numpy()[-1] - v))
        few = max(_ROOTS, size // 5)
        means.append(new[-1] if chain_reason(block) else _conditional(trial, v, width, few, seed))
    change, mean = np.concatenate(new), np.concatenate(means)
    apart = change - change.mean(axis=0)
    spread = width * (apart.T @ apart) / len(change)
    squares = width**2 * ((apart**2).T @ apart**2) / len(change)
    errors = np.sqrt(np.maximum(squares - spread**2, 0.0) / len(change))
    drift_error = width * mean.std(axis=0) / math.sqrt(len(mean))
    return [(width * mean.mean(axis=0), drift_error), (spread, errors)]


def _conditional(trial: _Trial, v: Array, width: int, count: int, seed: int) -> Array:
    """Return E[V' - V | R] = lambda^2 V + gamma^2 K - V, half-vectorised, for samples of the root.

    K = R R^T is the covariance of a column of the branch, or its mean over the groups of columns.
    Its mean has the drift, without the noise of the last weights.
    """
    block, p = trial.block, trial.parameters()
    if type(block).step is not Block.step or type(block).forward is not Block.forward:
        result = simulate_chain(
            block, v, width=width, depth=1, samples=count, seed=seed + 2**32, progress=False
        )
        return half_vectorise(result["V"].to_numpy()[-1] - v)
    factor, keys = semidefinite_cholesky(torch.tensor(v)), Keys(seed, "derived")
    skip, gamma = float(block.skip_weight(p)), float(p.gamma)
    parts = []
    for first in range(0, count, _ROOTS):
        samples = torch.arange(first, min(first + _ROOTS, count))
        numbers = TorchNumbers(keys, samples, 0)
        roots = block.root(p, factor.expand(len(samples), -1, -1), numbers, width)
        grams = [root @ root.mT for root in (roots if isinstance(roots, list) else [roots])]
        k = (sum(grams[1:], grams[0]) / len(grams)).numpy()
        parts.append(half_vectorise(skip**2 * v + gamma**2 * k - v))
    return np.concatenate(parts)


def _blocks(count: int, tokens: int) -> list[int]:
    """Return sizes of blocks of samples whose covariances take little memory."""
    size = max(1000, 2**22 // tokens**2)
    return [min(size, count - first) for first in range(0, count, size)]


def _clock(trial: _Trial) -> Iterator[Check]:
    """What the clock uses against what follows from drift and noise."""
    limit, name = trial.limit, "superlinear terms against speed"
    if limit is None or limit.normalised:
        yield Check(name, NOT_TESTED, "there is no limit, or its paths cannot explode")
        return
    p, m = trial.parameters(), trial.tokens
    rng = np.random.default_rng(trial.seed)
    shape = (4, m, m)
    factor = torch.tensor(rng.normal(size=shape) / math.sqrt(m))
    declared = type(limit).speed is not Limit.speed
    grows = superlinear.is_superlinear(limit, p, m, m)
    speeds = [limit.speed(p, scale * factor) for scale in (10.0, 100.0)]
    derived = [_entries(superlinear.relative_speed(limit, p, s * factor)) for s in (10.0, 100.0)]
    if not grows:
        yield Check(name, PASS, "drift and noise grow at most linearly: paths cannot explode")
    elif not declared:
        yield Check(name, PASS, "drift or noise grow faster than V; the speed is derived from them")
    elif speeds[1] is None:
        # A bound by cancellation, as with a single token: the derived rate does not grow either.
        growth = derived[1] / np.maximum(derived[0], 1e-300)
        bounded = bool((growth < 10.0).all())
        yield Check(
            name, PASS if bounded else FAIL,
            "speed is None, and the terms of higher order cancel" if bounded else
            f"speed is None, but the relative rate of V grows by {growth.max():.3g} if F is ten "
            "times as large",
        )  # fmt: skip
    else:
        ratio = _entries(speeds[1]) / np.maximum(derived[1], 1e-300)
        good = bool((ratio > 0.1).all())
        yield Check(
            name, PASS if good else FAIL,
            f"the declared speed is {ratio.min():.3g} to {ratio.max():.3g} times the rate that "
            "follows from drift and noise",
            "a speed that is less than a tenth of this rate",
        )  # fmt: skip
    yield from _noise_moments(trial, limit, p, factor)


def _noise_moments(trial: _Trial, limit: Limit, p: Any, factor: torch.Tensor) -> Iterator[Check]:
    direction = factor @ factor.mT
    for name, ours, derived in (
        ("noise_drift", limit.noise_drift(p, factor), superlinear.noise_drift(limit, p, factor)),
        (
            "noise_along", limit.noise_along(p, factor, direction),
            superlinear.noise_along(limit, p, factor, direction),
        ),
    ):  # fmt: skip
        if getattr(type(limit), name) is getattr(Limit, name):
            continue
        if ours is None or derived is None:
            yield Check(name, NOT_TESTED, "it is None, or there are too many increments")
            continue
        apart = float((ours - derived).abs().max() / derived.abs().max().clamp(min=1e-300))
        yield Check(
            name, PASS if apart < 1e-9 else FAIL,
            f"it differs from that of factor_noise by {apart:.2g}", "a relative error of 1e-9",
        )  # fmt: skip


def _entries(x: torch.Tensor) -> Array:
    return np.asarray(x.detach().numpy()).reshape(-1)


def _derivatives(trial: _Trial) -> Iterator[Check]:
    """Derivatives of paths against difference quotients with the same random numbers."""
    block, names = trial.block, _parameters_of(trial.block)
    if not names:
        yield Check("derivatives", NOT_TESTED, "the block has no numerical parameter")
        return
    runs: list[tuple[str, dict[str, Any]]] = []
    if not chain_reason(block):
        runs.append(("chain", {"width": trial.width, "depth": 4}))
    if trial.limit is not None:
        runs.append(("limit", {"horizon": 0.02, "step": 0.005}))
    v0 = torch.tensor(trial.v0)
    for kind, size in runs:
        options = {**size, "samples": 64, "seed": trial.seed}
        wrong, largest = [], 0.0
        for name in names:
            value = float(getattr(block, name))
            if kind == "limit" and _without_limit(block, name, value):
                continue
            apart = _derivative_error(block, name, value, v0, options)
            largest = max(largest, apart)
            if not apart < 1e-4:
                wrong.append(f"{name} ({apart:.2g})")
        yield Check(
            f"derivatives of the {kind}", FAIL if wrong else PASS,
            f"wrong for {', '.join(wrong)}: a value read from self has none" if wrong else
            f"those of {', '.join(names)} agree with differences to {largest:.2g}",
            "a relative error of 1e-4",
        )  # fmt: skip


def _without_limit(block: Block, name: str, value: float) -> bool:
    """Return whether the block has a limit for this value of a parameter only."""
    changed = _changed(block, name, 1.001 * value + 1e-6)
    return changed is None or bool(limit_reason(changed))


def _derivative_error(
    block: Block, name: str, value: float, v0: torch.Tensor, options: dict[str, Any]
) -> float:
    """Return the relative difference of derivative and quotient; NaN if a run fails."""
    tensor = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    step = 1e-6 * max(abs(value), 1e-2)

    def total(changed: float) -> float:
        there = _changed(block, name, changed)
        if there is None:
            raise ValueError(f"{name}={changed!r} is refused")
        return float(pathwise(there, v0, **options).sum())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            v = pathwise(block, v0, parameters={name: tensor}, **options).sum()
            slope = None
            if v.requires_grad:
                (slope,) = torch.autograd.grad(v, tensor, allow_unused=True)
            quotient = (total(value + step) - total(value - step)) / (2.0 * step)
        except (ArithmeticError, LookupError, RuntimeError, ValueError):
            return math.nan
    ours = 0.0 if slope is None else float(slope)
    return abs(ours - quotient) / max(abs(quotient), 1e-3 * abs(float(v.detach())))


_CHECKS: tuple[Callable[[_Trial], Iterator[Check]], ...] = (
    _inherited, _traced, _ranges, _chain_and_network, _means, _wide_layer, _clock, _derivatives,
)  # fmt: skip
