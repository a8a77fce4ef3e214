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
from shaped_attention.numerics.covariance import vech
from shaped_attention.numerics.named_numbers import Keys, TorchNumbers
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.rows.step import State, covariance, root_of_branch
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
"""Processor time after which no more samples are drawn for the drift at one covariance."""

_ERRORS, _POWER = 5.0, 2.0
"""Standard errors by which a value may differ, and by which an error that is seen exceeds that."""

_LARGEST, _ENOUGH = 0.1, 0.02
"""Relative errors: the largest that may stay unseen, and one at which no more samples are drawn."""

_WIDTHS, _NARROWER = (2**15, 2**19), (2**6, 2**10)
"""Columns of a group in two layers; the narrower if the numbers that are drawn grow with them."""

_REST, _UNSURE = 0.2, 0.15
"""What is left of the difference between these: a third if it falls as n^-1/2, else less."""

_BATCH, _ENTRIES = 2**11, 256
"""Samples at once, and how many entries of a Gaussian matrix are kept."""


@dataclass
class Signed(TorchNumbers):
    """Numbers with signs by one row of a Hadamard matrix, which keep controls: what has mean 0.

    A name of normals has one of three columns: over the four rows, signs and products of signs of
    different columns have mean 0. The controls are uncorrelated and have variance 1.
    """

    row: int = 0
    names: list[Any] = field(default_factory=list)
    controls: list[torch.Tensor] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)

    def again(self) -> Signed:
        """Return the numbers of the same step, of which none is drawn yet."""
        self.controls.clear()
        return replace(super().again(), names=[], controls=self.controls)

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
            roots = root_of_branch(block, p, factor, numbers, width)
            assert roots is not None
            k = covariance(State(tuple(roots)))
            new = float(block.skip_weight(p)) ** 2 * v + float(p.gamma) ** 2 * k
        else:
            new = covariance(block.step(p, State((factor,) * block.groups), numbers, width))
        change = vech((width * (new - v)).expand(count, -1, -1).numpy())
        controls = torch.cat([factor.new_zeros(count, 1), *numbers.controls], dim=-1)
        return change, controls.numpy()[:, : _BATCH // 4], numbers

    def averaged(self, width: int, first: int) -> tuple[Array, Array]:
        """Return n (V' - V) and controls, averaged over signs."""
        change, controls, numbers = self.increments(width, first, _BATCH, 0, self.ends_in_weights)
        rows = 4 if len(numbers.names) > 1 else 2 if numbers.names else 1
        for row in range(1, rows):
            more = self.increments(width, first, _BATCH, row, self.ends_in_weights)
            change, controls = change + more[0], controls + more[1]
        return change / rows, controls / rows

    @cached_property
    def ends_in_weights(self) -> bool:
        """Whether the mean over the last weights has a closed form."""
        block = self.trial.block
        if type(block).step is not Block.step or type(block).forward is not Block.forward:
            return False
        numbers = Signed(Keys(self.trial.seed, "derived"), torch.arange(1), 0, place=(0,), row=0)
        factor, width = cholesky(torch.tensor(self.v))[None], block.groups * _WIDTHS[0]
        return root_of_branch(block, self.trial.parameters, factor, numbers, width) is not None

    @cached_property
    def widths(self) -> list[int]:
        """Two widths, whose layers draw few numbers."""
        least, m = self.trial.block.groups, len(self.v)
        narrower = [least * max(n, 4 * m * n // _NARROWER[0]) for n in _NARROWER]
        drawn = [sum(self.increments(n, 0, 1, 0, False)[2].drawn) for n in narrower]
        return narrower if drawn[1] > 2 * drawn[0] else [least * n for n in _WIDTHS]

    def drift(self, size: float) -> tuple[Array, Array, Array]:
        """Return the drift, its standard error, and what is unsure about its value at infinity."""
        rests, slopes, start = [], np.zeros(0), time.process_time()
        for width in self.widths:
            change, controls = self.averaged(width, 0)
            slopes = _slopes(controls, change)
            rests.append(change - controls @ slopes)
        last = rests[1] - rests[0]
        unsure, total, squares, count = _UNSURE * np.abs(last.mean(axis=0)), 0.0, 0.0, 0
        while True:
            change, controls = self.averaged(self.widths[1], _BATCH + count)
            here = change - controls @ slopes
            total, squares = total + here.sum(axis=0), squares + (here**2).sum(axis=0)
            count += _BATCH
            variance = np.maximum(squares / count - (total / count) ** 2, 0.0) / count
            error = np.sqrt(variance + _REST**2 * last.var(axis=0) / (0.75 * _BATCH))
            enough = ((_ERRORS + _POWER) * error + unsure).max() < _ENOUGH * size
            late = time.process_time() - start > SECONDS
            if enough or late or count >= 1000 * self.trial.samples:
                return total / count + _REST * last.mean(axis=0), error, unsure

    def diffusion(self) -> tuple[Array, Array, Array]:
        """Return the diffusion, its standard error, and what is unsure about its value."""
        values, error, count = [], np.zeros(0), 2 * _BATCH
        for width in self.widths:
            change, controls, _ = self.increments(width, 0, count, 0, False)
            change /= math.sqrt(width)
            slopes = _slopes(controls, change)
            f = controls @ slopes
            rest = change - f - (change - f).mean(axis=0)
            used = slopes.any(axis=1).sum()
            y, freedom = f + rest, count - used
            apart = (y.T @ y - f.T @ f) / freedom
            # Errors of the slopes add used / freedom of the rest to their squares.
            values.append(slopes.T @ slopes + (1.0 - used / freedom) * (rest.T @ rest) / freedom)
            squares = (y**2).T @ y**2 - 2.0 * (y * f).T @ (y * f) + (f**2).T @ f**2
            error = np.sqrt(np.maximum(squares / count - apart**2, 0.0) / freedom)
        last = values[1] - values[0]
        return values[1] + _REST * last, error, _UNSURE * np.abs(last)


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
    found: dict[str, list[tuple[Array, ...]]] = {name: [] for name in names}
    for scale in (1.0, 2.0):
        layer = WideLayer(trial, scale * trial.v0)
        theory = vech(drift(block, layer.v)), diffusion(block, layer.v)
        # If nothing moves, errors are relative to V.
        spread = np.abs(theory[1]).max() or np.abs(layer.v).max() ** 2
        sizes = [np.abs(theory[0]).max(), spread]
        if sizes[0] <= 1e-6 * spread / np.abs(layer.v).max():
            sizes[0] = spread / np.abs(layer.v).max()
        measured = layer.drift(sizes[0]), layer.diffusion()
        for name, known, size, (value, error, unsure) in zip(
            names, theory, sizes, measured, strict=True
        ):
            entries = (known, value, error, unsure + 1e-9 * spread, np.full(known.shape, size))
            found[name].append(entries)
    for name, parts in found.items():
        yield _compared(name, *map(np.array, zip(*parts, strict=True)))


def _compared(
    name: str, theory: Array, value: Array, error: Array, unsure: Array, size: Array
) -> Check:
    """Compare values at v0 and 2 v0 with those of the limit, relative to the largest entries."""
    allowed = _ERRORS * error + unsure
    excess = np.nan_to_num(np.abs(value - theory) / allowed, nan=np.inf)
    seen = 100.0 * float(np.nan_to_num((allowed + _POWER * error) / size, nan=np.inf).max())
    at = tuple(map(int, np.unravel_index(int(excess.argmax()), excess.shape)))
    pairs = np.argwhere(np.tri(math.isqrt(2 * theory.shape[-1])))
    entries = ", ".join("V[{}, {}]".format(*pairs[i]) for i in at[1:])
    good = bool(excess.max() <= 1.0)
    if good and not seen <= 100.0 * _LARGEST:
        detail = f"not tested: errors below {seen:.2g} % of the largest entry cannot be seen"
        return Check(name, UNRESOLVED, detail)
    return judged(
        name, good,
        f"at {at[0] + 1} v0 that of {entries} is {theory[at]:.4g}, and {value[at]:.4g} +- "
        f"{error[at]:.2g} from one layer", f"an error of {seen:.2g} % of the largest entry",
    )  # fmt: skip
