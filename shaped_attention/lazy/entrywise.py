"""Optimisers that act on entries: AdamW, and Lion with signSGD.

After s steps a matrix is ``d^s W_0 + U`` with d = 1 - lr weight_decay, and an entry of U is a
function of the same entry of the gradients G_t = X_t^T D_t so far. So U is a function of what has
been asked of W_0, which is revealed as before; a product with U is computed in blocks from the
factors (`numerics.entrywise_product`). Entries exist in the standard basis alone, so that all
spaces of the network are explicit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import argument_error, check_nonnegative
from shaped_attention.lazy.low_rank import Factors
from shaped_attention.lazy.optimizers import (
    SGD,
    Muon,
    OneByOne,
    Rate,
    Rule,
    State,
    check_rates,
    rate_of,
)
from shaped_attention.numerics.entrywise_product import last_norm, product
from shaped_attention.rows.coordinates import cut
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.values import Plain


class Decayed(NamedTuple):
    """The function of entries U = sum_t lr d^(s - t) change_t(G_1, ..., G_t)."""

    rule: AdamW | Lion
    rate: float
    decay: float

    @property
    def kind(self) -> type:
        """The class of the rule."""
        return type(self.rule)

    def constants(self, steps: int) -> list[float]:
        """Return the weights of the changes, and the numbers of the rule."""
        weights = [-self.rate * self.decay ** (steps - t) for t in range(1, steps + 1)]
        return [*weights, *self.rule.constants(steps)]

    def last(self, e: Any, gradients: Sequence[Any], numbers: Sequence[Any]) -> tuple[Any, Any]:
        """Return the entry of U, and the last term of its sum."""
        steps = len(gradients)
        changes = self.rule.changes(e, gradients, numbers[steps:])
        whole: Any = 0.0
        for weight, change in zip(numbers[: steps - 1], changes, strict=False):
            whole = e.fma(weight, change, whole)
        last = e.fmul(numbers[steps - 1], changes[-1])
        return e.fadd(whole, last), last


class EntrywiseUpdate(NamedTuple):
    """The matrix U of the gradients so far."""

    terms: Sequence[Factors]
    function: Decayed

    def product(self, x: Rows, side: int) -> list[Plain]:
        """Return the parts of x U from the side 0, or of x U^T from the side 1."""
        pairs = [(f.left.coordinates, f.right.coordinates) for f in self.terms]
        lefts, rights = zip(*(pair[::-1] if side else pair for pair in pairs), strict=True)
        space = self.terms[0][1 - side].space
        return list(cut(product(x.coordinates, lefts, rights, self.function), space))

    def last_norm(self) -> Float[Tensor, " B"]:
        """Return the norm of what the last step added."""
        lefts, rights = zip(
            *((f.left.coordinates, f.right.coordinates) for f in self.terms), strict=True
        )
        return last_norm(lefts, rights, self.function)


class _OfEntries(OneByOne):
    """What the optimisers share."""

    weight_decay: Rate

    def _check(self, betas: Any) -> None:
        check_rates("lr", self.lr)
        check_rates("weight_decay", self.weight_decay)
        pair = isinstance(betas, tuple | list) and len(betas) == 2
        if not pair or not all(isinstance(x, float | int) and 0 <= x < 1 for x in betas):
            raise argument_error("betas", "two numbers in [0, 1)", betas)
        self._check_clip()

    def update(self, state: State, gradient: Factors, rate: float) -> Float[Tensor, " B"]:
        """Update one parameter, and return the norm of that without any weight decay."""
        state.terms.append(gradient)
        decay = 1.0 - rate * rate_of(self.weight_decay, state.parameter.name)
        update = EntrywiseUpdate(state.terms, Decayed(self, rate, decay))  # type: ignore[arg-type]
        state.parameter.set(decay ** len(state.terms), update)
        return update.last_norm()


@dataclass(frozen=True)
class AdamW(_OfEntries):
    """AdamW as `torch.optim.AdamW`: bias correction, and decoupled weight decay.

    With the gradient g of step t, m = beta_1 m + (1 - beta_1) g and v = beta_2 v + (1 - beta_2)
    g^2, a weight becomes ``(1 - lr weight_decay) w - lr mhat / (sqrt(vhat) + eps)``, where mhat = m
    / (1 - beta_1^t) and vhat = v / (1 - beta_2^t) (Loshchilov and Hutter, arXiv 1711.05101). A
    gradient that is 0 in theory, as that of the biases of keys, is rounding noise, whose sign Adam
    enlarges, as in torch.

    Parameters
    ----------
    lr
        Learning rate, at least 0; or a dictionary of rates as in `SGD`.
    betas
        Two numbers in [0, 1).
    eps
        At least 0.
    weight_decay
        At least 0; or a dictionary, as for `lr`. A parameter without a number does not decay.
    clip
        Bound on the global norm of the gradients of each sample, or None, as in `SGD`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    lr: Rate
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: Rate = 0.01
    clip: float | None = None

    def __post_init__(self) -> None:
        self._check(self.betas)
        check_nonnegative("eps", self.eps)

    def constants(self, steps: int) -> list[float]:
        """Return the betas, then the factor of m / (1 - beta_1) and eps for each step."""
        (a, b), numbers = self.betas, list(self.betas)
        for t in range(1, steps + 1):
            root = math.sqrt((1.0 - b**t) / (1.0 - b))
            numbers += [root * (1.0 - a) / (1.0 - a**t), root * self.eps]
        return numbers

    def changes(self, e: Any, gradients: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """Return the changes after each gradient, over -lr."""
        a, b, *rest = numbers
        m: Any = 0.0
        v: Any = 0.0
        changes = []
        for t, g in enumerate(gradients):
            m, v = e.fma(a, m, g), e.fma(b, v, e.fmul(g, g))
            changes.append(e.fmul(rest[2 * t], e.fdiv(m, e.fadd(e.sqrt(v), rest[2 * t + 1]))))
        return changes


@dataclass(frozen=True)
class Lion(_OfEntries):
    """Signs of a momentum (Chen et al., arXiv 2302.06675); with equal betas signSGD with momentum.

    With the gradient g and the momentum m, a weight becomes ``(1 - lr weight_decay) w - lr
    sign(beta_1 m + (1 - beta_1) g)``, and then m = beta_2 m + (1 - beta_2) g. ``betas=(0.0, 0.0)``
    is signSGD.

    Parameters
    ----------
    lr, weight_decay, clip
        As in `AdamW`.
    betas
        Two numbers in [0, 1).

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    lr: Rate
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: Rate = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        self._check(self.betas)

    def constants(self, steps: int) -> list[float]:
        """Return what the momentum and the gradient are multiplied by."""
        a, b = self.betas
        return [a, 1.0 - a, b, 1.0 - b]

    def changes(self, e: Any, gradients: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """Return the changes after each gradient, over -lr."""
        a, new, b, more = numbers
        m: Any = 0.0
        changes = []
        for g in gradients:
            changes.append(e.sign(e.fma(a, m, e.fmul(new, g))))
            m = e.fma(b, m, e.fmul(more, g))
        return changes


RULES = SGD, Muon, AdamW, Lion
"""Optimisers that `simulate_training` takes."""


def check_rule(rule: Any) -> None:
    """Raise ValueError unless this is an optimiser of this package."""
    if isinstance(rule, type) and issubclass(rule, RULES):
        name = rule.__name__
        raise ValueError(
            f"optimizer must be an instance; got the class {name}: call it, as in sa.{name}(0.1)"
        )
    if not isinstance(rule, RULES):
        raise argument_error(
            "optimizer",
            "an SGD, Muon, AdamW or Lion of this package, such as sa.AdamW(0.001); optimisers that "
            "read the weights, such as LAMB, LARS and Adam with coupled weight decay, are not "
            "functions of gradients, and not covered",
            rule,
        )


def of_entries(rule: Rule) -> bool:
    """Return whether a rule acts on entries."""
    return isinstance(rule, _OfEntries) or (
        isinstance(rule, Muon) and isinstance(rule.rest, _OfEntries)
    )
