"""Flows on the sphere, integrated with an error control for each sample of a batch.

Bogacki and Shampine's embedded pair of orders 3 and 2 (Appl. Math. Lett. 2, 1989): three
evaluations a step. Every sample has its own time and step. The field is asked about unit tokens
only: x -> f(x / |x|) is a smooth extension of the field whose flow keeps the sphere, so neither
normalising the points between nor the new tokens lowers the order, and weights exp(beta |x|^2) off
the sphere never arise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Field = Callable[[Tensor, Tensor, Tensor], Tensor]
"""dx/dt (B, N, r) of tokens (B, N, r), at times (B,), of the samples with these numbers (B,)."""

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 5.0
_FIRST = 0.05
_STABLE = 2.0
_MOST_STEPS = 1_000_000

_STILL = 1e-15
"""Steps that move no token farther change nothing but the last digit."""


def integrate_flow(
    field: Field,
    start: Float[Tensor, "B N r"],
    times: Sequence[float],
    observe: Callable[[Tensor], Tensor],
    tolerance: float,
    *,
    autonomous: bool = False,
) -> list[Tensor]:
    """``observe(tokens)`` at increasing times >= 0, from tokens at time 0.

    Parameters
    ----------
    field
        Tangent to the sphere; the numbers say which of the samples it is asked about.
    start
        Unit tokens (B, N, r).
    times
        Increasing.
    observe
        What is kept at a time.
    tolerance
        Largest local error of a token per step, as a distance.
    autonomous
        Whether the field does not depend on time: samples that do not move any more beyond
        rounding are then left where they are.

    Raises
    ------
    FloatingPointError
        If the field is not finite, a step would be lost in rounding, or 10^6 steps do not suffice.
    """
    x = start.clone()
    samples = len(x)
    now = x.new_zeros(samples)
    still = torch.zeros(samples, dtype=torch.bool, device=x.device)
    slope = field(x, now, torch.arange(samples, device=x.device))
    if not bool(torch.isfinite(slope).all()):
        raise FloatingPointError("the field at the start is not finite")
    step = _FIRST / _fastest(slope).clamp(min=1.0)
    kept, steps = [], 0
    for time in times:
        while True:
            going = torch.nonzero((now < time) & ~still).flatten()
            if len(going) == 0:
                break
            steps += 1
            if steps > _MOST_STEPS:
                raise FloatingPointError(
                    f"the flow needs more than {_MOST_STEPS:g} steps to reach t = {time:g}; an "
                    "earlier time, a smaller beta or a larger tolerance is needed (USA moves "
                    "exp(beta) times faster than SA)"
                )
            left = time - now[going]
            h = torch.minimum(step[going], left)
            new, last, error, rate = _attempt(field, x[going], slope[going], now[going], h, going)
            error = torch.nan_to_num(error, nan=torch.inf)
            accepted = error <= tolerance
            factor = _SAFETY * (tolerance / error.clamp(min=1e-300)) ** (1.0 / 3.0)
            # Beyond 2.5 over the rate of relaxation the scheme is unstable; a cluster would not
            # close, but stay as wide as the tolerance.
            proposed = torch.minimum(h * factor.clamp(_SHRINK, _GROW), _STABLE / rate)
            if bool((~accepted & (now[going] + proposed == now[going])).any()):
                raise FloatingPointError(f"the flow needs a step that is lost beside t = {time:g}")
            moved = going[accepted]
            x[moved], slope[moved] = new[accepted], last[accepted]
            now[going] = torch.where(accepted, now[going] + h, now[going])
            # The sum may stop just short of an output time.
            now[going] = torch.where(accepted & (h == left), time, now[going])
            # A step cut short by an output time says little about the next one.
            cut = accepted & (h < step[going])
            step[going] = torch.where(cut, torch.maximum(step[going], proposed), proposed)
            if autonomous:
                still[moved] = _fastest(last[accepted]) * step[moved] < _STILL
        now[still] = time
        kept.append(observe(x))
    return kept


def _fastest(slope: Float[Tensor, "B N r"]) -> Float[Tensor, " B"]:
    """The largest speed of a token."""
    return slope.norm(dim=-1).amax(-1)


def _attempt(
    field: Field, x: Tensor, first: Tensor, now: Tensor, h: Tensor, which: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """New tokens, the field there, the pair's largest difference, and a rate of relaxation.

    The rate (B,) is that at which the field changes between the last two points.
    """
    step = h[:, None, None]
    second = field(_unit(x + 0.5 * step * first), now + 0.5 * h, which)
    middle = _unit(x + 0.75 * step * second)
    third = field(middle, now + 0.75 * h, which)
    new = _unit(x + step * (2.0 * first + 3.0 * second + 4.0 * third) / 9.0)
    last = field(new, now + h, which)
    apart = step * (-5.0 * first + 6.0 * second + 8.0 * third - 9.0 * last) / 72.0
    rate = (last - third).flatten(1).norm(dim=-1) / (new - middle).flatten(1).norm(dim=-1)
    rate = torch.nan_to_num(rate, nan=0.0, posinf=0.0)
    return new, last, apart.norm(dim=-1).amax(-1), rate


def _unit(tokens: Tensor) -> Tensor:
    return tokens / tokens.norm(dim=-1, keepdim=True)
