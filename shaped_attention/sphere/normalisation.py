"""Where a layer on the sphere normalises, and the flow that such layers converge to.

With A the attention (and MLP) before the projection, N(y) = y / |y|, and a step h,

    "after"     x' = N(x + h A(x))        Post-LN
    "before"    x' = x + h A(N(x))        Pre-LN
    "sandwich"  x' = x + h N(A(N(x)))     Peri-LN
    "ngpt"      x' = N(x + h N(A(x)))     nGPT, with h its learning rate alpha
    None        x' = x + h A(x)           no normalisation

and `MixLN(until)` is "after" in layers at times h k < until, "before" in later ones. As h -> 0 a
token x = r u with |u| = 1 follows

    du/dt = P_u A(u) / s,    after: s = 1,  before: s = r,  sandwich: s = r |A|,  ngpt: s = |A|,
    dr/dt = <u, A> (before),  <u, A> / |A| (sandwich),

since N(x + h y) = N(x) + h P_u y / |x| + O(h^2): normalisation changes the speed of each token, not
its direction (Karagodin, Ge, Polyanskiy and Rigollet, arXiv 2510.22026). A weight alpha(t) of the
branch of nGPT replaces t by the integral of alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from shaped_attention.checks import argument_error, check_positive
from shaped_attention.results.plain_arguments import storable


@storable
@dataclass(frozen=True)
class MixLN:
    """Post-LN in the layers before the time `until` > 0, Pre-LN in later ones.

    Proposed by Li, Yin and Liu (arXiv 2412.13795). Raises ValueError unless `until` is positive and
    finite.
    """

    until: float

    def __post_init__(self) -> None:
        check_positive("until", self.until)


Normalise = str | MixLN | None
"""Values of `normalise`."""


class Places(NamedTuple):
    """What is normalised: the tokens that the branch reads, its output, and tokens before a time.

    Tokens are unit vectors before the time `until`, and have lengths afterwards.
    """

    read: bool
    branch: bool
    until: float

    def output(
        self, moved: Callable[[Tensor], Tensor], tokens: Tensor, unit: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return the output of the branch `moved`, with `unit` for N."""
        result = moved(unit(tokens) if self.read else tokens)
        return unit(result) if self.branch else result


_PLACES: dict[str | None, Places] = {
    "after": Places(False, False, math.inf),
    None: Places(False, False, 0.0),
    "before": Places(True, False, 0.0),
    "sandwich": Places(True, True, 0.0),
    "ngpt": Places(False, True, math.inf),
}


def places_of(normalise: Normalise) -> Places:
    """Return what is normalised; raise ValueError unless `normalise` is one of these values."""
    if isinstance(normalise, MixLN):
        return Places(True, False, normalise.until)
    if (normalise is not None and not isinstance(normalise, str)) or normalise not in _PLACES:
        named = ", ".join(repr(name) for name in _PLACES)
        raise argument_error("normalise", f"{named} or MixLN(until)", normalise)
    return _PLACES[normalise]
