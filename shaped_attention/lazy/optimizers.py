"""Optimisers under which every weight stays k W_0 plus a matrix of low rank.

After s steps a matrix is ``k W_0 + sum_s c_s X_s^T G_s`` with the gradients X_s^T G_s of all steps,
and so is a momentum buffer: gradient descent acts on the numbers k and c_s. Muon adds the sign of
its buffer, whose factors are known as well. `entrywise` has those that leave this form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import (
    argument_error,
    check_nonnegative,
    check_positive,
    check_range,
)
from shaped_attention.lazy.low_rank import Coefficient, Factors, combined
from shaped_attention.lazy.parameters import Parameter

Rate = float | Mapping[str, float]


@dataclass
class State:
    """A parameter during training: a matrix, or some of its columns.

    `terms` are matrices of low rank that occur in it: gradients, and the signs of Muon. `weight`,
    `buffer` and `pure` are coefficients of W_0 and of the terms, in the matrix, in its momentum,
    and in what the momentum would be without weight decay; None before the first step.
    """

    parameter: Parameter
    terms: list[Factors] = field(default_factory=list)
    weight: list[Coefficient] = field(default_factory=lambda: [1.0])
    buffer: list[Coefficient] | None = None
    pure: list[Coefficient] | None = None

    def append(self, term: Factors) -> None:
        """Add a term, which occurs nowhere yet."""
        self.terms.append(term)
        for coefficients in (self.weight, self.buffer, self.pure):
            if coefficients is not None:
                coefficients.append(0.0)

    def of_rank(self, coefficients: list[Coefficient]) -> Factors:
        """Return the part of low rank that has these coefficients (that of W_0 is first)."""
        return combined(self.terms, coefficients[1:])

    def change(self, amounts: list[Coefficient]) -> None:
        """Add amounts to the coefficients of the matrix."""
        self.weight = [a + b for a, b in zip(self.weight, amounts, strict=True)]
        self.parameter.set(self.weight[0], self.of_rank(self.weight))


class OneByOne(ABC):
    """An optimiser that updates each parameter by itself, after all gradients are clipped."""

    lr: Rate
    clip: float | None

    def step(
        self, states: Mapping[str, State], gradients: Mapping[str, Factors]
    ) -> dict[str, Float[Tensor, " B"]]:
        """Take a step, and return the norms of the updates without any weight decay."""
        return {
            name: self.update(states[name], gradient, rate_of(self.lr, name))
            for name, gradient in clipped(gradients, self.clip).items()
        }

    @abstractmethod
    def update(self, state: State, gradient: Factors, rate: float) -> Float[Tensor, " B"]:
        """Update one parameter, and return the norm of that without any weight decay."""

    def _check_clip(self) -> None:
        if self.clip is not None:
            check_positive("clip", self.clip)


@dataclass(frozen=True)
class SGD(OneByOne):
    """Gradient descent with clipping, and with momentum and weight decay as in `torch.optim.SGD`.

    With the gradient g, clipped by the norm of all gradients together, g + weight_decay W is added
    to momentum times the buffer, and lr times the buffer is subtracted from W.

    Parameters
    ----------
    lr
        Learning rate; or a dictionary of rates, whose keys are patterns of names of parameters,
        such as "*.0.*" or "readout": the last pattern that matches counts. A parameter without a
        rate is not trained.
    momentum
        In [0, 1).
    weight_decay
        At least 0. It is coupled, as in torch: part of the gradient.
    clip
        Bound on the global norm of the gradients of each sample, as in
        `torch.nn.utils.clip_grad_norm_`, or None. In `Muon.rest` the norm is over the parameters
        that `rest` updates.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    lr: Rate
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        _check_settings(self)
        self._check_clip()

    def update(self, state: State, gradient: Factors, rate: float) -> Float[Tensor, " B"]:
        """Update one parameter, and return the norm of that without any weight decay."""
        state.append(gradient)
        pure: list[Coefficient] = [*[0.0] * (len(state.weight) - 1), 1.0]
        decay = [self.weight_decay * c for c in state.weight]
        direction = [a + b for a, b in zip(decay, pure, strict=True)]
        state.pure = self._after(state.pure, pure)
        state.buffer = self._after(state.buffer, direction)
        state.change([-rate * c for c in state.buffer])
        return rate * state.of_rank(state.pure).norm()

    def _after(
        self, buffer: list[Coefficient] | None, direction: list[Coefficient]
    ) -> list[Coefficient]:
        """Return the momentum after a step in this direction."""
        if buffer is None:
            return direction
        return [self.momentum * a + b for a, b in zip(buffer, direction, strict=True)]


@dataclass(frozen=True)
class Muon:
    """Momentum whose matrix sign is the update (Jordan et al. 2024).

    With the buffer B = momentum B + g, W becomes
    ``(1 - lr weight_decay) W - lr s sign(g + momentum B)``, with sign(B) instead if `nesterov` is
    False, where sign(U S V^T) = U V^T is exact, over nonzero singular values, and s = sqrt(max(1,
    outputs / inputs)). For a matrix that a library stores as (inputs, outputs), as in GPT-2, the
    two are exchanged in s. `rest` updates biases, embeddings and the readout. Singular values below
    64 eps of the largest count as zero, so that float32 drops directions which float64 keeps. The
    sign of a gradient that is exactly 0, such as that of queries when all tokens are equal, is the
    sign of what rounding leaves of it.

    Parameters
    ----------
    lr
        Learning rate, or a dictionary of rates as in `SGD`.
    momentum, nesterov
        Momentum in [0, 1), and whether the gradient is added once more.
    weight_decay
        Decoupled decay, at least 0.
    rest
        Optimiser of biases, gains, embeddings and readout: `SGD`, `AdamW` or `Lion`; None for SGD
        with the same rates.
    split
        Whether matrices that a library stores as one, such as those of queries, keys and values of
        GPT-2, are orthogonalised one by one.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    lr: Rate
    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.0
    rest: Rule | None = None
    split: bool = False

    def __post_init__(self) -> None:
        _check_settings(self)
        known = hasattr(self.rest, "step") and hasattr(self.rest, "lr")
        if isinstance(self.rest, Muon) or not (self.rest is None or known):
            raise argument_error("rest", "an SGD, AdamW, Lion or None", self.rest)

    def step(
        self, states: Mapping[str, State], gradients: Mapping[str, Factors]
    ) -> dict[str, Float[Tensor, " B"]]:
        """Take a step, and return the norms of the updates, without weight decay."""
        hidden = {name for name in gradients if states[name].parameter.hidden}
        others = {name: g for name, g in gradients.items() if name not in hidden}
        norms = (self.rest or SGD(self.lr)).step(states, others) if others else {}
        for name in hidden:
            norms[name] = self._update(states[name], gradients[name], rate_of(self.lr, name))
        return {name: norms[name] for name in gradients}

    def _update(self, state: State, gradient: Factors, rate: float) -> Float[Tensor, " B"]:
        """Update a hidden matrix, and return the norm of that without weight decay."""
        state.append(gradient)
        before: list[Coefficient] = state.buffer or [0.0] * len(state.weight)
        state.buffer = [self.momentum * c for c in before]
        state.buffer[-1] = 1.0
        seen = list(state.buffer)
        if self.nesterov:
            seen = [self.momentum * c for c in seen]
            seen[-1] = seen[-1] + 1.0
        sign = self._sign(state.parameter, state.of_rank(seen))
        state.append(sign)
        amounts: list[Coefficient] = [-rate * self.weight_decay * c for c in state.weight]
        amounts[-1] = amounts[-1] - rate
        state.change(amounts)
        return rate * sign.norm()

    def _sign(self, parameter: Parameter, term: Factors) -> Factors:
        """Return the signs of a term's sections, each times s of the matrix as it is stored."""
        signs, sizes = [], []
        for section, shape in parameter.sections(term, self.split):
            inputs, outputs = shape[::-1] if parameter.by_inputs else shape
            signs.append(section.sign())
            sizes.append(max(1.0, outputs / inputs) ** 0.5)
        return combined(signs, sizes)


class Rule(Protocol):
    """An optimiser."""

    @property
    def lr(self) -> Rate:
        """Learning rate, or rates by patterns of names."""

    def step(
        self, states: Mapping[str, State], gradients: Mapping[str, Factors]
    ) -> dict[str, Float[Tensor, " B"]]:
        """Take a step, and return the norms of the updates without any weight decay."""


def clipped(gradients: Mapping[str, Factors], clip: float | None) -> dict[str, Factors]:
    """Return gradients whose global norm is at most `clip`, for each sample."""
    if clip is None:
        return dict(gradients)
    total = torch.stack([g.norm() ** 2 for g in gradients.values()]).sum(0).sqrt()
    # The small number is torch's (clip_grad_norm_).
    shrink = (clip / (total + 1e-6)).clamp(max=1.0)[:, None, None]
    return {name: Factors(g.left, shrink * g.right) for name, g in gradients.items()}


def _check_settings(rule: SGD | Muon) -> None:
    check_rates("lr", rule.lr)
    check_range("momentum", rule.momentum, 0.0, 1.0)
    if rule.momentum == 1.0:
        raise argument_error("momentum", "below 1", rule.momentum)
    check_nonnegative("weight_decay", rule.weight_decay)


def check_rates(what: str, rates: Any) -> None:
    """Raise ValueError unless these are numbers >= 0, by names if there are several."""
    if not isinstance(rates, Mapping):
        check_nonnegative(what, rates)
        return
    for name, rate in rates.items():
        if not isinstance(name, str):
            raise argument_error(
                what, "a number, or a mapping from names of parameters to numbers", rates
            )
        check_nonnegative(f"{what}[{name!r}]", rate)


def check_parameters(rule: Rule, parameters: Mapping[str, Parameter]) -> None:
    """Raise ValueError if a rate or a decay is for no parameter that the rule updates."""
    if isinstance(rule, Muon) and rule.rest is not None:
        _check_patterns(rule, [name for name, x in parameters.items() if x.hidden])
        _check_patterns(rule.rest, [name for name, x in parameters.items() if not x.hidden])
    else:
        _check_patterns(rule, list(parameters))


def _check_patterns(rule: Rule, names: list[str]) -> None:
    for what in ("lr", "weight_decay"):
        rates = getattr(rule, what)
        for pattern in rates if isinstance(rates, Mapping) else ():
            if not any(fnmatchcase(name, pattern) for name in names):
                few = ", ".join(names[:9] if len(names) < 10 else [*names[:8], "..."])
                raise ValueError(f"{what} has a rate for {pattern!r}, but the parameters are {few}")


def rate_of(rates: Rate, name: str) -> float:
    """Return the learning rate of a parameter; 0 if there is none."""
    if not isinstance(rates, Mapping):
        return rates
    matching = [rate for pattern, rate in rates.items() if fnmatchcase(name, pattern)]
    return matching[-1] if matching else 0.0
