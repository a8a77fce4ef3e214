"""The limit of tokens together with derivatives of them: values and tangents as (1 + p) m rows.

The rows are those of the tokens X, then of tangents X._1, ..., X._p: derivatives of X along p
directions, which a layer maps to J X._k with the Jacobian J at X. Their covariance has the blocks
V = X X^T / n, C_k = X X._k^T / n and D_kl = X._k X._l^T / n. The drift and the noise of a factor of
it are those of the block and their derivatives. What raises the rank of V has no factor: in its
place stand two copies of the tokens, X + e X._k and X + f X._l, with the same weights
(`limits.copies`). The derivative in e and f of the growth between the copies is that of D_kl, and
the derivative in f at e = 0 that of C_l.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from shaped_attention.blocks.base import Block, Layer, Pattern, Project, Tokens, pattern_of
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.limits.derived import DerivedLimit, limit_from_branch
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.numerics.forward import pushed
from shaped_attention.numerics.named_numbers import DrawnOnce
from shaped_attention.numerics.operations.factorisations import stacked
from shaped_attention.numerics.primitives import M, Numbers, cholesky, concatenate, constant


class TangentLimit(Limit):
    """The limit of values and `count` tangents, from that of the values."""

    def __init__(self, values: DerivedLimit, copies: DerivedLimit, count: int) -> None:
        self.values, self.copies, self.count = values, copies, count

    def linear_rate(self, p: Parameters) -> Any:
        """Return k of the values."""
        return self.values.linear_rate(p.inner)

    def factor_drift(self, p: Parameters, factor: M) -> M | None:
        """Return the drift of values and tangents.

        That of one of two copies: a growth that is a multiple of V is not a drift of F here.
        """

        def of_one(x: M) -> M | None:
            drift = self.copies.factor_drift(p.inner, stacked([x, x]))
            return None if drift is None else split(drift, 2)[0]

        return self._moved(of_one, factor)

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M | None:
        """Return the noise of values and tangents, from the same increments."""
        drawn = DrawnOnce(numbers)
        return self._moved(lambda x: self.values.factor_noise(p.inner, x, drawn), factor)

    def _moved(self, function: Any, factor: M) -> M | None:
        """Return a function of the factor of the values, and its derivatives along the tangents."""
        rows: list[M] = split(factor, 1 + self.count)
        value = function(rows[0])
        if value is None:
            return None
        moved: M = stacked([value, *(pushed(function, rows[0], x)[1] for x in rows[1:])])
        return moved

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return the derivatives of the growth between two copies."""
        rows = split(cholesky(v), 1 + self.count)
        start, zero = stacked([rows[0], rows[0]]), 0.0 * rows[0]

        def between(x: M) -> M | None:
            growth = self.copies.growth_of_factor(p.inner, x)
            return None if growth is None else _upper_right(growth)

        if between(start) is None:
            return None

        def along_second(l: int) -> Any:
            if l == 0:
                return between
            return lambda x: pushed(between, x, stacked([zero, rows[l]]))[1]

        def block(k: int, l: int) -> Any:
            function = along_second(l)
            if k == 0:
                return function(start)
            return pushed(function, start, stacked([rows[k], zero]))[1]

        size = range(1 + self.count)
        half = {(k, l): block(k, l) for k in size for l in size if k <= l}
        blocks = [[half[k, l] if k <= l else half[l, k].mT for l in size] for k in size]
        whole: M = stacked([concatenate(row) for row in blocks])
        return whole

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return that of values and tangents."""
        return self._moved(lambda x: self.values.noise_drift(p.inner, x), factor)

    def decay(self, p: Parameters) -> Any:
        """Return the rate of the copies; decay is linear."""
        return self.copies.decay(p.inner)

    def check(self, tokens: int) -> None:
        """Check the limit of the values."""
        self.values.check(tokens // (1 + self.count))

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return the speed of the values: tangents, a linear equation, do not explode before."""
        return self.values.speed(p.inner, split(factor, 1 + self.count)[0])


def split(rows: M, parts: int) -> list[M]:
    """Return equal parts of the rows."""
    places = np.split(np.eye(rows.shape[-2]), parts)
    return [constant(x, like=rows) @ rows for x in places]


def _upper_right(square: M) -> M:
    found: M = split(split(square, 2)[0].mT, 2)[1].mT
    return found


@dataclass(frozen=True)
class WithTangents(Block):
    """A block on tokens and on p tangents, stacked as (1 + p) m rows; it has a limit only."""

    inner: Block
    count: int

    @property
    def gamma(self) -> Any:
        """The weight of the branch."""
        return self.inner.gamma

    @cached_property
    def limit(self) -> Limit | str:
        """The limit of values and tangents, or the reason why it does not exist."""
        values = self.inner.limit
        if isinstance(values, str):
            return values
        if not isinstance(values, DerivedLimit):
            return "derivatives of tokens need a limit that is derived from the branch"
        copies = limit_from_branch(self.inner, copies=2)
        if isinstance(copies, str):
            return f"derivatives of tokens: {copies}"
        return TangentLimit(values, copies, self.count)

    def check(self, tokens: int, width: int | None) -> None:
        """Check the block."""
        self.inner.check(tokens // (1 + self.count), width)

    def skip_weight(self, p: Parameters) -> Any:
        """Return that of the block."""
        return self.inner.skip_weight(p.inner)

    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Raise ValueError: networks have derivatives by automatic differentiation."""
        raise ValueError("WithTangents has a limit only")


def with_tangents(layer: Layer, count: int) -> Layer:
    """Return a layer with p tangents."""
    return Pattern([[WithTangents(x, count) for x in blocks] for blocks in pattern_of(layer)])
