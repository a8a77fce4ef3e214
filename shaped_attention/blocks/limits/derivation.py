"""The limit of a block from its branch: drift and noise of a factor F of V, and growth.

A layer gives X' = lambda X + gamma branch = sum over parts of the columns, with the share r of the
width each, of sum_j C_j S_j. It has a limit if sum r C_j.M C_j.M^T = V and V' has no term of order
eps. For the C_j whose leading order is c_j F:

    noise of F     sum r c_j C_j.G
    linear rate    sum over Z of (coefficient of F Z F^T)^2, twice for Z + Z^T
    drift of F     sum r c_j C_j.E
    growth         sum r E[C_j.G C_j.G^T] - E[N N^T] + sum r C_j.D C_j.D^T + sum r E y y^T

The noise of the C_j and that of the S_j S_k^T must be independent. The growth is positive
semidefinite since sum c_j^2 = 1.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from shaped_attention.blocks.limits.algebra import Algebra
from shaped_attention.blocks.limits.copies import CopiedRows, project_copies
from shaped_attention.blocks.limits.covariations import covariation
from shaped_attention.blocks.limits.jets import Jet
from shaped_attention.blocks.limits.layer import Layer
from shaped_attention.blocks.limits.noise import Noise, Term, gathered, gaussians, sampled
from shaped_attention.blocks.limits.numbers import (
    LimitError,
    Point,
    TestedParameters,
    added,
    is_zero,
    test_value,
    times,
)
from shaped_attention.blocks.limits.rows import Rows
from shaped_attention.blocks.limits.small import Matrix, Small
from shaped_attention.numerics.primitives import cholesky, sqrt

_EQUAL = 1e-8
"""Largest difference at the test point that is rounding."""

_FIRST_ORDER = "a layer changes V by order 1, not 1/n"


class Derivation:
    """Drift, noise and growth as functions of a factor F (tokens, columns), or of V = F F^T.

    With `copies` the tokens are those of several networks with the same weights.

    Attributes
    ----------
    drift, growth
        Matrices; None for 0.
    decay
        The rate at which V decays alongside its growth.
    noise
        The noise of F.
    rate
        The linear rate k.
    depth
        Sum of r c_j^2 times the number of projections that S_j went through: the weight matrices on
        the paths of the tokens.
    """

    def __init__(
        self, block: Any, tokens: int, columns: int, *, of_v: bool = False, exact: bool = False,
        decay: Any = None, copies: int = 1,
    ) -> None:  # fmt: skip
        self.algebra = a = Algebra()
        shadow = np.random.default_rng(12345).normal(size=(tokens, columns)) / columns**0.5 + 0.3
        F = a.known(shadow, lambda at: cholesky(at.v) if of_v else at.factor)
        assert F is not None
        self.F = F
        if of_v:
            whole = a.known(shadow @ shadow.T, lambda at: at.v)
            a.result("matmul", (F, a.transposed(F)), whole)
        self.layer = Layer(a, tokens, columns)
        self.parameters = known = TestedParameters(block, exact)
        start: Any = self.layer.of_tokens(Jet(a, F.shape, F))
        if copies == 1:
            branch: Any = block.branch(known, start, self.layer.project)
        else:
            branch = block.branch(known, CopiedRows(start, copies), project_copies(self.layer))
            branch = branch.stacked
        branch = branch.rows() if hasattr(branch, "rows") else branch
        if not isinstance(branch, Rows):
            raise LimitError("the branch must return rows, as many as there are tokens")
        branch.check_plain()
        branch.check_means()
        if branch.shape[1] != self.layer.width:
            raise LimitError("the branch must have as many columns as the tokens")
        # A given skip weight is sqrt(1 - gamma^2): `reasons` checks it, norms see to it.
        given_skip = getattr(block, "skip", None) is not None
        skip = sqrt(1.0 - known.gamma**2) if given_skip else block.skip_weight(known)
        self._assemble(skip, known.gamma, branch, decay)

    def _assemble(self, skip: Any, gamma: Any, branch: Rows, decay: Any) -> None:
        a, F, layer = self.algebra, self.F, self.layer
        noise, lengths = Noise(a), Noise(a)
        drift: Matrix = None
        growth: Matrix = None
        leading: Any = 0.0
        first: Any = 0.0
        apart: list[Any] = []
        self.depth = 0.0
        for space in branch.spaces:
            ratio = space.ratio if space.grows else 0.0
            tokens = layer.tokens_in(space)
            space = space.real()
            parts = {s: (c * gamma).at(0) for s, c in branch.parts if s.space is space}
            if any(s.whole is tokens and s is not tokens for s in parts):
                raise LimitError("tokens are added without their means")
            old = Jet(a, F.shape, F).scaled(skip)
            parts[tokens] = parts[tokens] + old if tokens in parts else old
            if any(s.gram is not None and c.M is not None for s, c in parts.items()):
                raise LimitError(f"hidden units are nonlinear at infinite width: {_FIRST_ORDER}")
            weights, whole = {}, np.zeros_like(F.shadow @ F.shadow.T)
            for s, c in parts.items():
                gram = np.eye(s.rows) if s.gram is None else s.gram.shadow
                if c.M is not None:
                    mean = c.M.shadow @ gram @ c.M.shadow.T
                    leading, whole = leading + test_value(ratio) * mean, whole + mean
                if c.M is not None and c.D is not None:
                    cross = c.M.shadow @ gram @ c.D.shadow.T
                    first = first + test_value(ratio) * (cross + cross.T)
                weights[s] = self._multiple(c.M, (skip if s is tokens else gamma, skip + gamma))
            apart.append(whole)
            for s, c in parts.items():
                w = weights[s]
                if c.D is not None:
                    along = c.D if s.gram is None else a.product(c.D, s.gram)
                    outer = a.product(along, a.transposed(c.D))
                    growth = a.plus(growth, a.scaled(ratio, outer))
                own = covariation(a, c.G, c.G.transposed())
                growth = a.plus(growth, a.scaled(ratio, own))
                for t, other in weights.items() if w is None and c.G else ():
                    # Its noise, which is that of its products with others as well.
                    if other is not None:
                        both = covariation(a, c.G, layer.product(s, t).G)
                        drift = a.plus(drift, a.scaled(times(ratio, other), both))
                if w is None:
                    if c.M is not None:
                        raise LimitError(
                            "part of the output is not a multiple of the tokens at infinite "
                            f"width: {_FIRST_ORDER}"
                        )
                    continue
                noise = noise.plus(c.G.scaled(times(w, ratio)))
                self.depth = self.depth + times(ratio, w * w) * s.depth
                drift = a.plus(drift, a.scaled(times(ratio, w), c.E))
                for t, other in weights.items():
                    if other is None:
                        continue
                    product = layer.product(s, t)
                    lengths = lengths.plus(product.G.scaled(times(w * other, ratio)))
        self._check_first_orders(leading, first)
        if not all(np.allclose(x, leading, atol=_EQUAL) for x in apart):
            raise LimitError(
                "V does not determine the law of the next layer: the columns of the branch fall "
                "into groups with different covariances; a projection of the joined rows mixes them"
            )
        if {x.z for x in noise.terms} & {x.z for x in lengths.terms}:
            raise LimitError("noise of the lengths of projections enters the weights as well")
        self.noise = gathered(noise)
        self.rate = self._linear_rate(lengths)
        squares = covariation(a, noise, noise.transposed())
        growth = a.plus(growth, a.scaled(-1.0, squares))
        self._without_multiples_of_v(drift, growth, decay)

    @cached_property
    def variance(self) -> Matrix:
        """E|G|^2, G the noise of F."""
        a = self.algebra
        square = covariation(a, self.noise, self.noise.transposed())
        return a.column_sums(a.diagonal(square))

    @cached_property
    def noise_drift(self) -> Matrix:
        """sum_i DG[G_i]: the noise at F + eps G, a jet, for increments that are jets."""
        a, increments = self.algebra, {}
        for z in gaussians(self.noise):
            size = (z.rows, z.columns)
            unit = Term(z, a.identity(z.rows), a.identity(z.columns), size)
            increments[z] = Jet(a, size, None, None, Noise(a, [unit]))
        moved = Point(self.parameters, Jet(a, self.F.shape, self.F, None, self.noise))
        return sampled(self.noise, increments, moved).E if self.noise else None

    @cached_property
    def noise_along(self) -> Matrix:
        """The variance rate of 2 <D F, G>, the covariation of a trace with itself."""
        a, size = self.algebra, self.F.shape[0]
        test = np.random.default_rng(7).normal(size=(size, size))
        turned = a.product(Small(test + test.T, lambda at: at.direction), self.F)
        trace = self.noise.right(a.transposed(turned)).trace()
        return a.scaled(4.0, covariation(a, trace, trace.transposed()))

    @cached_property
    def variance_noise(self) -> Matrix:
        """The covariance rates of dV_aa and dV_bb, those of 2 diag(N F^T)."""
        a = self.algebra
        along = self.noise.right(a.transposed(self.F)).diagonal()
        return a.scaled(4.0, covariation(a, along, along.transposed()))

    def _multiple(self, matrix: Matrix, candidates: tuple[Any, ...]) -> Any:
        """Return c if a matrix is c F, else None."""
        F = self.F
        if matrix is None or matrix is F:
            return None if matrix is None else 1.0
        if matrix.multiple is not None and matrix.multiple[1] is F:
            return matrix.multiple[0]
        mine, yours = matrix.shadow, F.shadow
        if mine.shape != yours.shape:
            return None
        ratio = (mine * yours).sum() / (yours * yours).sum()
        if not np.allclose(mine, ratio * yours, atol=_EQUAL):
            return None
        for c in candidates:
            if abs(test_value(c) - ratio) < 1e-10:
                return c
        raise LimitError("the multiple of the tokens that a part of the output is has no formula")

    def _check_first_orders(self, leading: Any, first: Any) -> None:
        v = self.F.shadow @ self.F.shadow.T
        if not np.allclose(leading, v, atol=_EQUAL):
            error = np.abs(leading - v).max()
            raise LimitError(f"{_FIRST_ORDER} (by {error:.2g} at a random V)")
        error = np.abs(first).max()
        if error > _EQUAL:
            raise LimitError(
                f"a layer changes V by order 1 / sqrt n, not 1/n (by {error:.2g} at a random V)"
            )

    def _linear_rate(self, lengths: Noise) -> Any:
        """Return k of the noise F M F^T: c Z with its transpose has the variance c^2 / 2."""
        seen: dict[Any, Any] = {}
        for x in lengths.terms:
            if x.weight is not None or x.summed or not (x.L.is_identity and x.R.is_identity):
                raise LimitError("noise of lengths that are weighted")
            c = x.coefficient * (1.0 if x.z.symmetric else 0.5)
            seen[x.z] = seen[x.z] + c if x.z in seen else c
        rate: Any = 0.0
        for z, c in seen.items():
            rate = rate + c * c * (1.0 if z.symmetric else 2.0)
        return rate

    def _without_multiples_of_v(self, drift: Matrix, growth: Matrix, decay: Any) -> None:
        """Say how drift, growth and decay share multiples of V.

        Growth t V is the drift t F / 2, which has no rank. What is left of both, if it is negative
        and something grows, is the decay, which is the same for all numbers of tokens.
        """
        a, F = self.algebra, self.F
        self.drift, self.growth, self.decay = drift, growth, 0.0 if decay is None else decay
        v = a.product(F, a.transposed(F))
        if v is None or (growth is None and is_zero(self.decay)):
            return
        scales = dict(drift.combination if drift else {})
        grows = dict(growth.combination if growth else {})
        linear = times(2.0, scales.pop(F, 0.0))
        if decay is None and len(grows) > (v in grows):
            rate = added(linear, grows.get(v, 0.0))
            self.decay = times(-1.0, rate) if test_value(rate) < 0.0 else 0.0
        if not is_zero(self.decay):
            grows[v] = added(linear, grows.get(v, 0.0), self.decay)
            self.drift, self.growth = a.combined(scales), a.combined(grows)
            return
        if growth is None:
            return
        ratio = (growth.shadow * v.shadow).sum() / (v.shadow * v.shadow).sum()
        if np.allclose(growth.shadow, ratio * v.shadow, atol=1e-9 * np.abs(growth.shadow).max()):
            part = a.times(self._number(growth), F)
            self.drift, self.growth = a.plus(drift, a.scaled(0.5, part)), None

    def _number(self, growth: Small) -> Matrix:
        """Return t (1, 1) of a growth t V."""
        a, F = self.algebra, self.F
        c, base = growth.multiple or (1.0, growth)
        name, args = base.origin or ("", ())
        v = a.product(F, a.transposed(F))
        others = [x for x in args if x is not v]
        if base is v:
            return a.scaled(c, a.ones(1, 1))
        if name == "times" and len(others) == 1 and others[0].shape == (1, 1):
            return a.scaled(c, others[0])
        lengths = a.column_sums(a.row_sums(a.times(F, F)))
        assert lengths is not None
        return a.over(a.column_sums(a.diagonal(growth)), lengths)
