"""One wide layer against drift and diffusion of the limit.

To leading order sqrt n (V' - V) is linear in the normals and the Wishart matrices of a layer. The
regression on these, whose moments are known, leaves noise of order n^-1/2 for the diffusion. For
the drift the mean over the last weights is taken in closed form, and signs of the others are
changed so that terms with an odd number of them cancel; this leaves noise of order 1 at any width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from shaped_attention.blocks.base import Block
from shaped_attention.blocks.reasons import limit_reason
from shaped_attention.derived.spaces import DerivationError
from shaped_attention.derived.state import State, covariance
from shaped_attention.numerics.covariance import vech
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.statistics.block_checks.report import (
    UNRESOLVED,
    Array,
    Check,
    Trial,
    judged,
    untested,
)
from shaped_attention.theory.drift_diffusion import diffusion, drift

SECONDS = 20.0
"""Time after which no more samples are drawn for the drift at one covariance."""

_ERRORS, _POWER = 5.0, 2.0
"""Standard errors by which a value may differ, and by which an error that is seen exceeds that."""

_LARGEST, _ENOUGH = 0.1, 0.02
"""Relative errors: the largest that may stay unseen, and one at which no more samples are drawn."""

_WIDTHS = tuple(2**k for k in (7, 11, 15, 19))
"""Columns of a group; only the first two if the numbers that a layer draws grow with them."""

_REST, _UNSURE = 0.2, 0.15
"""What is left of the difference between two widths: a third if it falls as n^-1/2, else less."""

_PILOT, _NUMBERS, _ENTRIES = 2**11, 2**27, 256
"""Samples at once, and at every width; numbers that are drawn in time; entries that are kept."""

_TINY = 1e-6
"""A drift or a diffusion that is relatively smaller than this is zero."""


@dataclass
class Signed(TorchNumbers):
    """Numbers with signs by one row of a Hadamard matrix, which keep controls: what has mean 0.

    A name of normals has one of three columns. Over the four rows, a sign and the product of two
    signs of different columns have mean 0. The controls are uncorrelated and have variance 1.
    """

    row: int = 0
    names: list[Any] = field(default_factory=list)
    controls: list[torch.Tensor] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)

    def again(self) -> Signed:
        """Return the numbers of the same step, of which none is drawn yet."""
        return replace(super().again(), names=[], controls=self.controls.clear() or self.controls)

    def _sign(self, name: str, count: int) -> float:
        self.drawn.append(count)
        if (self.place, name) not in self.names:
            self.names.append((self.place, name))
        column = 1 + self.names.index((self.place, name)) % 3
        return (-1.0) ** (self.row & column).bit_count()

    def _keep(self, gram: torch.Tensor, count: int) -> None:
        i, j = np.tril_indices(gram.shape[-1])
        scale = torch.tensor(np.where(i == j, 2.0, 1.0) * count).sqrt()
        self.controls.append((gram - count * torch.eye(gram.shape[-1]))[..., i, j] / scale)

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> torch.Tensor:
        """Return independent standard normals (B, rows, columns)."""
        x = self._sign(name, rows * columns) * super().normal(name, rows, columns, head)
        self.controls.append(x[..., : max(1, _ENTRIES // rows)].flatten(1))
        self._keep(x @ x.mT, columns)
        return x

    def wishart(self, name: str, rows: int, dof: int, head: int = 0) -> torch.Tensor:
        """Return roots of Wishart matrices."""
        x = super().wishart(name, rows, dof, head)
        self._keep(x @ x.mT, dof)
        return x

    def hidden_columns(
        self, name: str, rows: int, count: int, head: int = 0
    ) -> Iterator[torch.Tensor]:
        """Yield a Gaussian matrix (B, rows, count), a fixed number of columns at a time."""
        sign, gram = self._sign(name, rows * count), torch.zeros(())
        for x in super().hidden_columns(name, rows, count, head):
            gram = gram + x @ x.mT
            yield sign * x
        self._keep(gram, count)


@dataclass(frozen=True)
class WideLayer:
    """Increments of V, as vectors, in one layer of a block."""

    trial: Trial
    v: Array

    def increments(
        self, width: int, first: int, count: int, row: int, means: bool
    ) -> tuple[Array, Array, Signed]:
        """Return n (V' - V), or its means over the last weights, the controls, and the numbers."""
        block, p = self.trial.block, self.trial.parameters
        samples, v = torch.arange(first, first + count), torch.tensor(self.v)
        numbers = Signed(Keys(self.trial.seed, "derived"), samples, 0, place=(0,), row=row)
        factor = cholesky(v).expand(count, -1, -1)
        if means:
            roots = block.root(p, factor, numbers, width)
            k = covariance(State(tuple(roots) if isinstance(roots, list) else (roots,)))
            new = float(block.skip_weight(p)) ** 2 * v + float(p.gamma) ** 2 * k
        else:
            new = covariance(block.step(p, State((factor,) * block.groups), numbers, width))
        change = vech((width * (new - v)).expand(count, -1, -1).numpy())
        controls = torch.cat([factor.new_zeros(count, 1), *numbers.controls], dim=-1)
        return change, controls.numpy()[:, : _PILOT // 4], numbers

    def averaged(self, width: int, first: int, count: int) -> tuple[Array, Array, int]:
        """Return n (V' - V) and controls, averaged over signs, and how many numbers were drawn."""
        change, controls, numbers = self.increments(width, first, count, 0, self.ends_in_weights)
        rows = 4 if len(numbers.names) > 1 else 2 if numbers.names else 1
        for row in range(1, rows):
            more = self.increments(width, first, count, row, self.ends_in_weights)
            change, controls = change + more[0], controls + more[1]
        return change / rows, controls / rows, rows * sum(numbers.drawn)

    @cached_property
    def ends_in_weights(self) -> bool:
        """Whether the mean over the last weights has a closed form."""
        block = self.trial.block
        if type(block).step is not Block.step or type(block).forward is not Block.forward:
            return False
        try:
            self.increments(block.groups * _WIDTHS[0], 0, 1, 0, True)
        except DerivationError:
            return False
        return True

    @cached_property
    def widths(self) -> list[int]:
        """Widths, without those at which the numbers of a layer are too many."""
        sizes = [self.trial.block.groups * size for size in _WIDTHS]
        drawn = [sum(self.increments(n, 0, 1, 0, False)[2].drawn) for n in sizes[:2]]
        return sizes if drawn[1] <= 2 * drawn[0] else sizes[:2]

    def drift(self, size: float) -> tuple[Array, Array, Array]:
        """Return the drift, its standard error, and what is unsure about its value at infinity."""
        pilot, slopes, costs = [], [], []
        for width in self.widths:
            change, controls, drawn = self.averaged(width, 0, _PILOT)
            slopes.append(_slopes(controls, change))
            pilot.append(change - controls @ slopes[-1])
            costs.append(max(drawn, 1))
        last, few = pilot[-1] - pilot[-2], _PILOT - _PILOT // 4
        beyond = [pilot[-1] - x + _REST * last for x in pilot]
        unsure = _UNSURE * np.abs(last.mean(axis=0))
        # Most samples have the width at which these and the rest together are most precise.
        variances = [
            (x.var(axis=0) * cost / _NUMBERS + y.var(axis=0) / few).max()
            for x, y, cost in zip(pilot, beyond, costs, strict=True)
        ]
        best = int(np.argmin(variances))
        total, squares, count, start = 0.0, 0.0, 0, time.monotonic()
        while True:
            change, controls, _ = self.averaged(self.widths[best], _PILOT + count, _PILOT)
            here = change - controls @ slopes[best]
            total, squares = total + here.sum(axis=0), squares + (here**2).sum(axis=0)
            count += _PILOT
            variance = np.maximum(squares / count - (total / count) ** 2, 0.0) / count
            error = np.sqrt(variance + beyond[best].var(axis=0) / few)
            enough = ((_ERRORS + _POWER) * error + unsure).max() < _ENOUGH * size
            late = time.monotonic() - start > SECONDS
            if enough or late or count >= 1000 * self.trial.samples:
                return total / count + beyond[best].mean(axis=0), error, unsure

    def diffusion(self) -> tuple[Array, Array, Array]:
        """Return the diffusion, its standard error, and what is unsure about its value."""
        values: list[Array] = []
        count = 2 * _PILOT
        for width in self.widths[-2:]:
            change, controls, _ = self.increments(width, 0, count, 0, False)
            slopes = _slopes(controls, change / math.sqrt(width))
            f = controls @ slopes
            rest = change / math.sqrt(width) - f
            rest -= rest.mean(axis=0)
            y, freedom = f + rest, count - np.count_nonzero(slopes.any(axis=1))
            values.append(slopes.T @ slopes + rest.T @ rest / freedom)
            apart = (y.T @ y - f.T @ f) / count
            squares = (y**2).T @ y**2 - 2.0 * (y * f).T @ (y * f) + (f**2).T @ f**2
            error = np.sqrt(np.maximum(squares / count - apart**2, 0.0) / freedom)
        last = values[-1] - values[-2]
        return values[-1] + _REST * last, error, _UNSURE * np.abs(last)


def _slopes(controls: Array, y: Array) -> Array:
    """Return the coefficients of the regression on the controls whose variance is not zero."""
    c = controls - controls.mean(axis=0)
    there = c.var(axis=0) > 0.1
    slopes, c = np.zeros((c.shape[1], y.shape[1])), c[:, there]
    slopes[there] = np.linalg.solve(c.T @ c + 1e-9 * np.eye(c.shape[1]), c.T @ (y - y.mean(axis=0)))
    return slopes


def wide_layer(trial: Trial) -> Iterator[Check]:
    """One wide layer, as its width grows, against drift and diffusion."""
    names, block = ("drift from one wide layer", "diffusion from one wide layer"), trial.block
    reason = f"there is no limit: {limit_reason(block)}" if trial.limit is None else ""
    if block.no_chain:
        reason = reason or f"there is no chain: {block.no_chain}"
    elif trial.limit is not None and (trial.limit.normalised or block.means):
        reason = "the limit is that of correlations after many layers, or the state has means"
    if reason:
        yield from (untested(name, reason) for name in names)
        return
    found: dict[str, list[Check]] = {name: [] for name in names}
    for scale in (1.0, 2.0):
        layer = WideLayer(trial, scale * trial.v0)
        theory = vech(drift(block, layer.v)), diffusion(block, layer.v)
        spread = np.abs(theory[1]).max()
        sizes = [np.abs(theory[0]).max(), spread]
        if sizes[0] <= _TINY * spread / np.abs(layer.v).max():
            sizes[0] = spread / np.abs(layer.v).max()
        measured = layer.drift(sizes[0]), layer.diffusion()
        for name, known, size, values in zip(names, theory, sizes, measured, strict=True):
            found[name].append(
                _compared(name, f"at {scale:g} v0", known, size, *values, 1e-9 * spread)
            )
    order = {"fail": 0, UNRESOLVED: 1, "pass": 2}
    for checks in found.values():
        yield min(checks, key=lambda check: order[check.outcome])


def _compared(
    name: str,
    where: str,
    theory: Array,
    size: float,
    value: Array,
    error: Array,
    unsure: Array,
    floor: float,
) -> Check:
    """Compare a value with the limit's, relative to the size of its largest entry."""
    allowed = _ERRORS * error + unsure + floor
    excess = np.nan_to_num(np.abs(value - theory) / allowed, nan=np.inf)
    index, seen = (
        np.unravel_index(int(excess.argmax()), excess.shape),
        float(np.nan_to_num((allowed + _POWER * error).max() / size, nan=np.inf)),
    )
    tokens = math.isqrt(2 * len(theory))
    entries = ", ".join("V[{}, {}]".format(*(x[i] for x in np.tril_indices(tokens))) for i in index)
    detail = (
        f"{where} that of {entries} is {theory[index]:.4g}, and {value[index]:.4g} +- "
        f"{error[index]:.2g} from one layer"
    )
    if excess.max() <= 1.0 and not seen <= _LARGEST:
        detail = f"not tested: errors below {100.0 * seen:.2g} % of the largest entry, {size:.3g}"
        return Check(name, UNRESOLVED, f"{detail}, cannot be seen")
    noticed = f"an error of {100.0 * seen:.2g} % of the largest entry, {size:.3g}"
    return judged(name, bool(excess.max() <= 1.0), detail, noticed)
