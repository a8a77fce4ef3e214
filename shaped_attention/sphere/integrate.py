"""Flows on the sphere, integrated with an error control for each sample of a batch.

Bogacki and Shampine's embedded pair of orders 3 and 2 (Appl. Math. Lett. 2, 1989): three
evaluations a step. Every sample has its own time and step; tokens are put back on the sphere after
each accepted step, which does not lower the order (the exact flow stays there).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Field = Callable[[Tensor, Tensor, Tensor], Tensor]
"""dx/dt (B, N, r) of tokens (B, N, r), at times (B,), of the samples with these numbers (B,)."""

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 5.0
_SMALLEST_STEP = 1e-10


def integrate_flow(
    field: Field,
    start: Float[Tensor, "B N r"],
    times: Sequence[float],
    observe: Callable[[Tensor], Tensor],
    tolerance: float,
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

    Raises
    ------
    FloatingPointError
        If the field is not finite, or a step below 1e-10 would be needed.
    """
    x = start.clone()
    samples = len(x)
    now = x.new_zeros(samples)
    step = x.new_full((samples,), 0.05)
    slope = field(x, now, torch.arange(samples, device=x.device))
    kept = []
    for time in times:
        while True:
            left = time - now
            going = torch.nonzero(left > 1e-12).flatten()
            if len(going) == 0:
                break
            h = torch.minimum(step[going], left[going])
            new, last, error = _attempt(field, x[going], slope[going], now[going], h, going)
            accepted = error <= tolerance
            if not bool(torch.isfinite(error).all()):
                raise FloatingPointError("the field on the sphere is not finite")
            factor = _SAFETY * (tolerance / error.clamp(min=1e-300)) ** (1.0 / 3.0)
            proposed = h * factor.clamp(_SHRINK, _GROW)
            if bool((~accepted & (proposed < _SMALLEST_STEP)).any()):
                raise FloatingPointError("the flow needs a step below 1e-10")
            moved = going[accepted]
            x[moved], slope[moved] = new[accepted], last[accepted]
            now[moved] = now[moved] + h[accepted]
            # A step cut short by an output time says little about the next one.
            cut = accepted & (h < step[going])
            step[going] = torch.where(cut, torch.maximum(step[going], proposed), proposed)
        kept.append(observe(x))
    return kept


def _attempt(
    field: Field, x: Tensor, first: Tensor, now: Tensor, h: Tensor, which: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """New tokens, the field there, and the largest difference of the pair to a token."""
    step = h[:, None, None]
    second = field(x + 0.5 * step * first, now + 0.5 * h, which)
    third = field(x + 0.75 * step * second, now + 0.75 * h, which)
    new = x + step * (2.0 * first + 3.0 * second + 4.0 * third) / 9.0
    new = new / new.norm(dim=-1, keepdim=True)
    last = field(new, now + h, which)
    apart = step * (-5.0 * first + 6.0 * second + 8.0 * third - 9.0 * last) / 72.0
    return new, last, apart.norm(dim=-1).amax(-1)
