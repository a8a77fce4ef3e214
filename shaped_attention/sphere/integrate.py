"""Integrator of flows on the sphere, with error control for each sample of a batch.

The method is Bogacki and Shampine's embedded pair of orders 3 and 2 (Appl. Math. Lett. 2, 1989),
with three evaluations per step. Every sample has its own time and step. The field is evaluated at
unit tokens only: x -> f(x / |x|) is a smooth extension of the field whose flow preserves the
sphere. So normalising the intermediate points and the new tokens does not lower the order, and
weights exp(beta |x|^2) off the sphere never arise. Output times do not shorten steps: the Hermite
cubic through both ends of a step, with the field as slopes, has the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Field = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Map of tokens (B, N, r), times (B,) and indices of the samples (B,) to dx/dt (B, N, r)."""

_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 5.0
_FIRST = 0.05
_STABLE = 2.0
_MOST_STEPS = 1_000_000

_STILL = 1e-15
"""Steps that move no token farther change only the last digit."""


def integrate_flow(
    field: Field,
    start: Float[Tensor, "B N r"],
    times: Sequence[float],
    observe: Callable[[Tensor], Tensor],
    tolerance: float,
    *,
    autonomous: bool = False,
) -> list[Tensor]:
    """Return ``observe(tokens)`` at increasing times >= 0, from tokens at time 0.

    Parameters
    ----------
    field
        Field tangent to the sphere; its last argument holds the indices of the samples.
    start
        Unit tokens (B, N, r).
    times
        Increasing times >= 0.
    observe
        Function of tokens whose value is kept.
    tolerance
        Largest local error of a token per step, as a distance.
    autonomous
        Whether the field is independent of time. If so, samples that no longer move beyond
        rounding are left where they are.

    Raises
    ------
    FloatingPointError
        If the field is not finite, a step is lost to rounding, or 10^6 steps do not suffice.
    """
    x = start.clone()
    everyone = torch.arange(len(x), device=x.device)
    now = x.new_zeros(len(x))
    still = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    slope = field(x, now, everyone)
    if not bool(torch.isfinite(slope).all()):
        raise FloatingPointError("the field at the start is not finite")
    step = _FIRST / _fastest(slope).clamp(min=1.0)
    output = _Output(x.new_tensor(list(times)), observe)
    output.keep(everyone, now, x)
    for steps in itertools.count():
        going = output.waiting(~still)
        if len(going) == 0:
            break
        if steps == _MOST_STEPS:
            raise FloatingPointError(
                f"the flow needs more than {_MOST_STEPS:g} steps to reach t = {times[-1]:g}; an "
                "earlier time, a smaller beta or a larger tolerance is needed (USA moves "
                "exp(beta) times faster than SA)"
            )
        # Usually all samples continue, and nothing is copied.
        alone = slice(None) if len(going) == len(x) else going
        old, first, began, h = x[alone], slope[alone], now[alone], step[alone]
        new, last, error, rate = _attempt(field, old, first, began, h, going)
        error = torch.nan_to_num(error, nan=torch.inf)
        accepted = error <= tolerance
        factor = _SAFETY * (tolerance / error.clamp(min=1e-300)) ** (1.0 / 3.0)
        # Steps above 2.5 / rate of relaxation are unstable: a cluster would not close but stay
        # as wide as the tolerance.
        proposed = torch.minimum(h * factor.clamp(_SHRINK, _GROW), _STABLE / rate)
        if bool((~accepted & (began + proposed == began)).any()):
            raise FloatingPointError(
                f"the flow needs a step that is negligible at t = {times[-1]:g}"
            )
        if bool(accepted.all()):
            output.between(going, old, new, first, last, began, h)
            x[alone], slope[alone], now[alone] = new, last, began + h
        else:
            moved, chosen = going[accepted], (old, new, first, last, began, h)
            output.between(moved, *(part[accepted] for part in chosen))
            x[moved], slope[moved] = new[accepted], last[accepted]
            now[moved] = (began + h)[accepted]
        step[alone] = proposed
        if autonomous:
            still[going] |= accepted & (_fastest(last) * proposed < _STILL)
    output.keep(everyone, now.new_full(now.shape, torch.inf), x)
    return output.kept


class _Output:
    """Observations at the output times; every sample has its own next output time."""

    def __init__(self, times: Float[Tensor, " T"], observe: Callable[[Tensor], Tensor]) -> None:
        self.times, self.observe = times, observe
        self.kept: list[Tensor] = []
        self.next: Tensor | None = None

    def waiting(self, among: Bool[Tensor, " B"]) -> Int[Tensor, " k"]:
        """Return the samples of `among` that have not reached the last time."""
        assert self.next is not None
        return torch.nonzero(among & (self.next < len(self.times))).flatten()

    def keep(
        self, which: Int[Tensor, " B"], now: Float[Tensor, " B"], tokens: Float[Tensor, "B N r"]
    ) -> None:
        """Record all samples at their current tokens, for all their times up to `now`."""
        if self.next is None:
            self.next = torch.zeros_like(which)
        seen = self.observe(tokens)
        if not self.kept:
            self.kept = [seen.clone() for _ in self.times]
        for k, time in enumerate(self.times):
            here = (self.next == k) & (time <= now)
            self.kept[k][here] = seen[here]
            self.next[here] += 1

    def between(
        self,
        which: Int[Tensor, " k"],
        old: Float[Tensor, "k N r"],
        new: Float[Tensor, "k N r"],
        first: Float[Tensor, "k N r"],
        last: Float[Tensor, "k N r"],
        began: Float[Tensor, " k"],
        h: Float[Tensor, " k"],
    ) -> None:
        """Record samples at their times in (began, began + h], on the Hermite cubic."""
        assert self.next is not None
        ended = torch.cat([self.times, self.times.new_tensor([torch.inf])])
        while True:
            due = ended[self.next[which]]
            reached = torch.nonzero(due <= began + h).flatten()
            if len(reached) == 0:
                return
            part = slice(None) if len(reached) == len(which) else reached
            a = ((due[part] - began[part]) / h[part])[:, None, None]
            width = h[part][:, None, None]
            b = 1.0 - a
            tokens = _unit(
                b**2 * (1.0 + 2.0 * a) * old[part] + a**2 * (1.0 + 2.0 * b) * new[part]
                + a * b * width * (b * first[part] - a * last[part])
            )  # fmt: skip
            seen, places = self.observe(tokens), self.next[which[part]]
            for k in torch.unique(places).tolist():
                self.kept[k][which[part][places == k]] = seen[places == k]
            self.next[which[part]] += 1


def _fastest(slope: Float[Tensor, "B N r"]) -> Float[Tensor, " B"]:
    """Return the largest speed of a token."""
    return slope.norm(dim=-1).amax(-1)


def _attempt(
    field: Field, x: Tensor, first: Tensor, now: Tensor, h: Tensor, which: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return new tokens, the field there, the largest error estimate and a rate of relaxation.

    The rate (B,) is that of the change of the field between the last two points.
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
