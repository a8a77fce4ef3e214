"""Integrator of flows on the sphere, with error control for each sample of a batch.

The method is Bogacki and Shampine's embedded pair of orders 3 and 2 (Appl. Math. Lett. 2, 1989),
with three evaluations per step. Every sample has its own time and step. On the sphere the field is
evaluated at unit tokens only: x -> f(x / |x|) is a smooth extension of the field whose flow
preserves the sphere. So normalising the intermediate points and the new tokens does not lower the
order, and weights exp(beta |x|^2) off the sphere never arise. Output times do not shorten steps:
the Hermite cubic through both ends of a step, with the field as slopes, has the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.checks import argument_error, check_count, check_positive, real_array
from shaped_attention.numerics.threads import few_threads
from shaped_attention.sphere.attention import tangential

Field = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Map of tokens (B, N, r), times (B,) and samples (B,) to dx/dt, tangent or not (B, N, r)."""

Keep = Callable[[Tensor], Tensor]
"""Map of tokens or Gram matrices (B, ...) of a part of the samples to what is kept of each."""

CHUNK_ENTRIES = 2**16
"""Token entries per chunk: few enough for the cache, enough to hide the interpreter's cost."""

_SAFETY, _SHRINK, _GROW, _FIRST, _STABLE = 0.9, 0.2, 5.0, 0.05, 2.0
_MOST_STEPS = 1_000_000
_FINEST = 1e-12

_STILL = 1e-15
"""Steps that move no token farther change only the last digit."""

_SHORTEST = 10.0
"""Tolerances at which a token loses its direction.

A step through 0 has an error of at least a twelfth of its length, and of a sixth if it starts
farther than a third of its length from 0. So it is accepted only from below 6 tolerances.
"""


def integrate_flow(
    field: Field,
    start: Float[Tensor, "samples N r"],
    times: Sequence[float],
    keep: Keep,
    tolerance: float,
    chunk: int | None = None,
    *,
    autonomous: bool = False,
    sphere: bool = True,
    directed: bool = False,
) -> NDArray[np.float64]:
    """Return ``keep(tokens)`` (time, sample, ...) at increasing times, from tokens at time 0.

    `tolerance` bounds the local error of a token per step, as a distance divided by max(1, |x|). If
    the field is `autonomous`, samples that no longer move beyond rounding are left where they are.
    Tokens stay on the `sphere`, or move in space, where a `directed` field needs their directions.
    """
    check_positive("tolerance", tolerance)
    if tolerance < _FINEST:
        raise argument_error("tolerance", f"at least {_FINEST:g}", tolerance)
    size = max(1, CHUNK_ENTRIES // start[0].numel()) if chunk is None else chunk
    check_count("chunk", size)
    least = _SHORTEST * tolerance if directed else 0.0
    parts = []
    for first in range(0, len(start), size):

        def slope(tokens: Tensor, time: Tensor, which: Tensor, first: int = first) -> Tensor:
            moved = field(tokens, time, which + first)
            return tangential(moved, tokens) if sphere else moved

        x = start[first : first + size]
        with few_threads(x.numel() * max(1.0, x.shape[1] / x.shape[2])):
            kept = _integrated(
                slope, x, times, keep, tolerance, autonomous=autonomous, sphere=sphere, least=least
            )
        parts.append(torch.stack(kept))
    return torch.cat(parts, dim=1).cpu().numpy()


def checked_times(times: ArrayLike) -> NDArray[np.float64]:
    """Return `times` as an array; raise ValueError unless finite, increasing and >= 0."""
    array = real_array(times, "times")
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise argument_error("times", "a non-empty list of finite numbers", times)
    if (array < 0.0).any() or (np.diff(array) <= 0.0).any():
        raise argument_error("times", "increasing numbers >= 0", times)
    return array


def _integrated(
    field: Field,
    start: Tensor,
    times: Sequence[float],
    keep: Keep,
    tolerance: float,
    *,
    autonomous: bool,
    sphere: bool,
    least: float,
) -> list[Tensor]:
    """Return what is kept at the times.

    The samples are integrated together, on the sphere or in space, where tokens of at most the
    length `least` are an error.
    """
    x = start.clone()
    everyone = torch.arange(len(x), device=x.device)
    now = x.new_zeros(len(x))
    still = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    slope = field(x, now, everyone)
    if not bool(torch.isfinite(slope).all()):
        raise FloatingPointError("the field at the start is not finite")
    step = _FIRST / _fastest(slope).clamp(min=1.0)
    seen = keep(x)
    kept = [seen.clone() for _ in times]
    # The index of the next output time of each sample, and these times.
    due = torch.full_like(everyone, int(times[0] == 0.0))
    ends = x.new_tensor([*times, torch.inf])

    for steps in itertools.count():
        going = torch.nonzero(~still & (due < len(times))).flatten()
        if len(going) == 0:
            break
        if steps == _MOST_STEPS:
            raise FloatingPointError(
                f"the flow does not reach t = {times[-1]:g} in {_MOST_STEPS:g} steps; choose an "
                "earlier time, a smaller beta or a larger tolerance (USA moves exp(beta) times "
                "faster than SA)"
            )
        # Usually all samples continue, and nothing is copied.
        those = slice(None) if len(going) == len(x) else going
        old, first, began, h = x[those], slope[those], now[those], step[those]
        new, last, error, rate = _attempt(field, old, first, began, h, going, sphere)
        error = torch.nan_to_num(error, nan=torch.inf)
        accepted = error <= tolerance
        factor = _SAFETY * (tolerance / error.clamp(min=1e-300)) ** (1.0 / 3.0)
        # Steps above 2.5 / rate of relaxation are unstable: a cluster would not close but stay
        # as wide as the tolerance.
        proposed = torch.minimum(h * factor.clamp(_SHRINK, _GROW), _STABLE / rate)
        if bool((~accepted & (began + proposed == began)).any()):
            raise FloatingPointError(
                f"the flow does not reach t = {times[-1]:g}; it needs steps too small to advance"
            )
        if autonomous:
            still[going] |= accepted & (_fastest(last) * proposed < _STILL)
        if least and bool(((length := new.norm(dim=-1).amin(-1)) < least)[accepted].any()):
            when = float((began + h)[accepted & (length < least)].min())
            raise FloatingPointError(
                f"a token reaches length 0 near t = {when:g}, where it has no direction"
            )
        moved, ended = going, began + h
        if not bool(accepted.all()):
            moved, those = going[accepted], going[accepted]
            old, new, first, last, began, ended, h = (
                part[accepted] for part in (old, new, first, last, began, ended, h)
            )
        while len(reached := torch.nonzero(ends[due[moved]] <= ended).flatten()):
            part = slice(None) if len(reached) == len(moved) else reached
            which = moved[part]
            place = due[which]
            share = ((ends[place] - began[part]) / h[part])[:, None, None]
            here = _between(share, h[part], old[part], new[part], first[part], last[part])
            seen = keep(_unit(here, sphere))
            for k in torch.unique(place).tolist():
                kept[k][which[place == k]] = seen[place == k]
            due[which] += 1
        # Only now: what was read above may be a view of these.
        x[those], slope[those], now[those] = new, last, ended
        step[going] = proposed

    seen = keep(x)
    for k, values in enumerate(kept):
        values[due <= k] = seen[due <= k]
    return kept


def _between(
    a: Float[Tensor, "k 1 1"], h: Float[Tensor, " k"], old: Tensor, new: Tensor,
    first: Tensor, last: Tensor,
) -> Float[Tensor, "k N r"]:  # fmt: skip
    """Return the tokens at the share `a` of a step, on the Hermite cubic."""
    b, width = 1.0 - a, h[:, None, None]
    return (
        b**2 * (1.0 + 2.0 * a) * old + a**2 * (1.0 + 2.0 * b) * new
        + a * b * width * (b * first - a * last)
    )  # fmt: skip


def _fastest(slope: Float[Tensor, "B N r"]) -> Float[Tensor, " B"]:
    """Return the largest speed of a token."""
    return slope.norm(dim=-1).amax(-1)


def _attempt(
    field: Field, x: Tensor, first: Tensor, now: Tensor, h: Tensor, which: Int[Tensor, " B"],
    sphere: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return new tokens, the field there, the largest error estimate and a rate of relaxation.

    The rate (B,) is that of the change of the field between the last two points.
    """
    step = h[:, None, None]
    second = field(_unit(x + 0.5 * step * first, sphere), now + 0.5 * h, which)
    middle = _unit(x + 0.75 * step * second, sphere)
    third = field(middle, now + 0.75 * h, which)
    new = _unit(x + step * (2.0 * first + 3.0 * second + 4.0 * third) / 9.0, sphere)
    last = field(new, now + h, which)
    error = (step * (-5.0 * first + 6.0 * second + 8.0 * third - 9.0 * last) / 72.0).norm(dim=-1)
    if not sphere:
        error = error / new.norm(dim=-1).clamp(min=1.0)
    rate = (last - third).flatten(1).norm(dim=-1) / (new - middle).flatten(1).norm(dim=-1)
    return new, last, error.amax(-1), torch.nan_to_num(rate, nan=0.0, posinf=0.0)


def _unit(tokens: Tensor, sphere: bool) -> Tensor:
    return tokens / tokens.norm(dim=-1, keepdim=True) if sphere else tokens
