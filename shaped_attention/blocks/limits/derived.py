"""`Limit` of a block of which only the branch is written."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.limits.covariations import covariation
from shaped_attention.blocks.limits.derivation import Derivation
from shaped_attention.blocks.limits.jets import Jet
from shaped_attention.blocks.limits.noise import Gaussian, Noise, Term, gaussians, sampled
from shaped_attention.blocks.limits.series import LimitError, operand_of
from shaped_attention.blocks.limits.shadows import Small
from shaped_attention.blocks.parameters import Parameters, at_depth
from shaped_attention.libraries import torch
from shaped_attention.numerics.graph import Matrix
from shaped_attention.numerics.primitives import M, Numbers, column_sums, row_squares, sqrt
from shaped_attention.numerics.scalars import name_of

_NOISE = 6.0
"""Weight of the variance of the noise in the speed: it needs shorter steps than a drift."""

_MOST_TOKENS = 1024

_TINY = 1e-300


class DerivedLimit(Limit):
    """Drift, noise and growth that `Derivation` finds in the branch of a block."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self._last: tuple[Any, Any, Any, Derivation] | None = None

    def derivation(self, p: Any, factor: Any, v: Any = None) -> Derivation:
        """Return the derivation at a factor, or at V; the last one is kept."""
        last = self._last
        known = last is not None and last[0] is p and (last[1] is None) == (v is None)
        if last is None or not known or not _same(last[2], factor if v is None else v):
            found = derived(self.block, p, factor, v)
            last = self._last = p, v, factor if v is None else v, found
        return last[3]

    @cached_property
    def _tokens(self) -> int:
        """The smallest number of tokens that the block accepts, 2 if it does."""
        for tokens in (2, 1, *range(3, _MOST_TOKENS)):
            try:
                self.check(tokens)
            except LimitError:
                raise
            except ValueError:
                continue
            return tokens
        raise LimitError(f"it accepts no number of tokens below {_MOST_TOKENS}")

    def linear_rate(self, p: Parameters) -> Any:
        """Return k, which is the same for all numbers of tokens."""
        return operand_of(self.derivation(p, _point(self._tokens)).rate)

    def weight_rate(self, p: Parameters) -> Any:
        """Return kappa: gamma^2 for each product with weights on the paths of the tokens."""
        return operand_of(self.derivation(p, _point(self._tokens)).depth)

    def check(self, tokens: int) -> None:
        """Raise ValueError if there is no limit for this number of tokens."""
        self.block.check(tokens, None)
        try:
            derived(self.block, at_depth(self.block, 0.0), _point(tokens))
        except LimitError as error:
            reason = f"which has no limit for {tokens} tokens: {error}"
            raise LimitError(f"layer contains {self.block!r}, {reason}") from None

    def factor_drift(self, p: Parameters, factor: M) -> M | None:
        """Return the drift of F."""
        found = self.derivation(p, factor).drift
        return None if found is None else found.operand

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M | None:
        """Return the noise of F."""
        noise = self.derivation(p, factor).noise
        if not noise:
            return None
        drawn = {
            z: numbers.normal("derived", z.rows, z.columns, k)
            for k, z in enumerate(gaussians(noise))
        }
        value: M = sampled(noise, drawn)
        return value

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return the part of the drift that raises the rank of V."""
        found = self.derivation(p, None, v).growth
        return None if found is None else found.operand

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return ``2 |b_F| / |F| + |growth| / |V| + 6 E|G|^2 / |F|^2``, G the noise of F, or None.

        None if the coefficients grow at most linearly.
        """
        from shaped_attention.blocks.limit import is_superlinear

        if not is_superlinear(self, p, *tuple(factor.shape)[-2:]):
            return None
        found = self.derivation(p, factor)
        a = found.algebra
        square: Any = column_sums(row_squares(factor)) + _TINY
        speed: Any = 0.0 * square
        if found.drift is not None:
            speed = speed + 2.0 * sqrt(column_sums(row_squares(found.drift.operand)) / square)
        v = factor @ factor.mT
        growth = self.growth(p, v)
        if growth is not None:
            size = column_sums(row_squares(v)) + _TINY
            speed = speed + sqrt(column_sums(row_squares(growth)) / size)
        variance = a.column_sums(a.diagonal(covariation(a, found.noise, found.noise.transposed())))
        if variance is not None:
            speed = speed + _NOISE * (variance.operand / square)
        result: M = speed
        return result

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return sum_i DG[G_i]: the noise at F + eps G, a jet, for increments that are jets.

        None, which the clock allows, if the noise is a function of F that has no rule.
        """
        found = self.derivation(p, factor)
        if not found.noise:
            return None
        try:
            return self._noise_drift(found)
        except LimitError:
            return None

    def _noise_drift(self, found: Derivation) -> Any:
        a = found.algebra
        moved = Jet(a, found.F.shape, found.F, None, found.noise)
        again = derived(self.block, found.parameters, moved)
        increments: dict[Gaussian, Any] = {}
        for z, same in zip(gaussians(found.noise), gaussians(again.noise), strict=True):
            size = (z.rows, z.columns)
            unit = Term(z, a.identity(z.rows), a.identity(z.columns), size)
            increments[same] = Jet(a, size, None, None, Noise(a, [unit]))
        drift = sampled(again.noise, increments).E
        return None if drift is None else drift.operand

    def noise_along(self, p: Parameters, factor: M, direction: M) -> M | None:
        """Return the variance rate of 2 <D F, G>, the covariation of a trace with itself."""
        found = self.derivation(p, factor)
        if not found.noise:
            return None
        a, size = found.algebra, found.F.shape[0]
        test = np.random.default_rng(7).normal(size=(size, size))
        turned = a.product(Small(a, test + test.T, lambda: direction), found.F)
        trace = found.noise.right(a.transposed(turned)).trace()
        rate = a.scaled(4.0, covariation(a, trace, trace.transposed()))
        return None if rate is None else rate.operand

    def variance_noise(self, p: Parameters, v: M) -> M | None:
        """Return the covariance rates of dV_aa and dV_bb, those of 2 diag(N F^T)."""
        found = self.derivation(p, None, v)
        if not found.noise:
            return None
        a = found.algebra
        along = found.noise.right(a.transposed(found.F)).row_diagonal()
        rate = a.scaled(4.0, covariation(a, along, along.transposed()))
        return None if rate is None else rate.operand


def _same(x: Any, y: Any) -> bool:
    """Return whether two operands are the same matrix."""
    if not isinstance(x, Matrix) or not isinstance(y, Matrix):
        return x is y
    alike = x.node is y.node and x.transposed == y.transposed
    return alike and name_of(x.coefficient) == name_of(y.coefficient)


def _point(tokens: int) -> Any:
    return torch.eye(tokens, dtype=torch.float64)[None]


def derived(block: Any, p: Any, factor: Any, v: Any = None) -> Derivation:
    """Return a derivation, at test values near the parameters.

    If there is no limit there, it is at the parameters themselves: some blocks have a limit only if
    their parameters fulfil an equation, such as lambda^2 + gamma^2 = 1.
    """
    try:
        return Derivation(block, p, factor, v)
    except LimitError:
        return Derivation(block, p, factor, v, exact=True)


def limit_from_branch(block: Any) -> Limit | str:
    """Return the limit of a block, or the reason why there is none."""
    try:
        derived(block, at_depth(block, 0.0), _point(2))
    except LimitError as error:
        return str(error)
    except ValueError:
        pass  # `check` finds out whether the block accepts a number of tokens
    except (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError) as error:
        return f"it cannot be derived from the branch ({type(error).__name__}: {error})"
    return DerivedLimit(block)


__all__ = ["DerivedLimit", "limit_from_branch"]
