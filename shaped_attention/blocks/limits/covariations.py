"""Quadratic covariations of two noises, as products of matrices.

With LL = L L'^T and RR = R R'^T two terms of one Gaussian matrix have

    E[S X S'^T] = LL o (a (RR o X) a'^T),    E[S S'] = (a o LL) (RR o a')

and the like; for S in place of S^T with (L R'^T) and (R L'^T).
"""

from __future__ import annotations

from dataclasses import replace

from shaped_attention.blocks.limits.algebra import Algebra
from shaped_attention.blocks.limits.noise import MIXED, Noise, Term, weight_of
from shaped_attention.blocks.limits.numbers import LimitError, times
from shaped_attention.blocks.limits.small import Matrix


def covariation(a: Algebra, first: Noise, second: Noise) -> Matrix:
    """Return E[N K] for two noises N and K."""
    total: Matrix = None
    for x in first.terms:
        for y in second.terms:
            if x.z is not y.z:
                continue
            middle = x.right
            if y.left is not None:
                middle = y.left if middle is None else a.product(middle, y.left)
            if (x.right is not None or y.left is not None) and middle is None:
                continue
            part: Matrix = None
            if x.z.symmetric or x.flipped == y.flipped:
                part = _straight(a, x, middle, y)
            if x.z.symmetric or x.flipped != y.flipped:
                part = a.plus(part, _crossed(a, x, middle, y))
            part = part if x.left is None else a.product(x.left, part)
            part = part if y.right is None else a.product(part, y.right)
            total = a.plus(total, a.scaled(times(x.coefficient, y.coefficient), part))
    return total


def _straight(a: Algebra, x: Term, middle: Matrix, y: Term) -> Matrix:
    """Return E[core X core'] from the pairing E[Z_ab Z_cd] = (a = c)(b = d)."""
    T, mm, had = a.transposed, a.product, a.times
    mine, yours = weight_of(a, x), weight_of(a, y)
    if middle is None and (x.summed or y.summed):
        lengths = a.row_sums(had(x.L, y.L))
        if x.summed and y.summed:
            sums = a.row_sums(had(mm(mine, mm(x.R, T(y.R))), yours))
            return had(had(lengths, sums), a.identity(x.L.shape[0]))
        if x.summed:
            return had(had(lengths, yours), mm(mine, mm(x.R, T(y.R))))
        sums = a.row_sums(had(mm(x.R, T(y.R)), yours))
        return had(mm(x.L, T(y.L)), had(mine, T(sums)))
    if x.summed and y.summed:
        return had(had(mm(x.L, T(y.L)), mm(mm(mine, mm(x.R, T(y.R))), T(yours))), middle)
    if x.summed:
        inner = had(mm(x.L, T(y.L)), middle)
        return had(mm(inner, yours), mm(mine, mm(x.R, T(y.R))))
    if y.summed:
        inner = had(mm(mm(x.R, T(y.R)), T(yours)), middle)
        return had(mm(x.L, T(y.L)), mm(mine, inner))
    if x.weight is None and y.weight is None:
        right = x.R if middle is None else mm(T(middle), x.R)
        return mm(mm(x.L, mm(T(y.L), right)), T(y.R))
    if middle is None:
        return mm(had(mine, mm(x.L, T(y.L))), had(mm(x.R, T(y.R)), yours))
    if y.weight is None:
        return mm(had(mine, mm(mm(x.L, T(y.L)), T(middle))), mm(x.R, T(y.R)))
    if x.weight is None:
        return mm(mm(x.L, T(y.L)), had(yours, mm(T(middle), mm(x.R, T(y.R)))))
    raise LimitError(
        "the same scores act twice with a matrix between them, which has no formula in products "
        "of matrices"
    )


def _crossed(a: Algebra, x: Term, middle: Matrix, y: Term) -> Matrix:
    """Return the same from the pairing E[Z_ab Z_cd] = (a = d)(b = c)."""
    T, mm, had = a.transposed, a.product, a.times
    mine, yours = weight_of(a, x), weight_of(a, y)
    between = (
        middle if middle is not None else a.identity(x.L.shape[0] if x.summed else x.R.shape[0])
    )
    if not x.summed and not y.summed:
        if x.weight is None and y.weight is None:
            crossed = had(x.R, y.L if middle is None else mm(middle, y.L))
            trace = a.row_sums(a.column_sums(crossed))
            return had(mm(x.L, T(y.R)), trace)
        inner = had(mm(x.R, T(y.L)), between)
        return had(mm(x.L, T(y.R)), mm(mm(mine, inner), yours))
    if x.summed and y.summed:
        both = had(mm(mm(x.L, T(y.R)), T(yours)), mm(mine, mm(x.R, T(y.L))))
        return had(both, between)
    if x.summed:
        inner = had(mm(mine, mm(x.R, T(y.L))), between)
        return had(mm(x.L, T(y.R)), mm(inner, yours))
    inner = had(mm(x.R, T(y.L)), between)
    return had(mm(mm(x.L, T(y.R)), T(yours)), mm(mine, inner))


def entrywise_covariation(a: Algebra, first: Noise, second: Noise) -> Matrix:
    """Return E[N o K] of two noises of equal shape, entry by entry."""
    total: Matrix = None
    for x in (_bare(a, x) for x in first.terms):
        for y in (_bare(a, y) for y in second.terms):
            if x.z is not y.z:
                continue
            part: Matrix = None
            if x.z.symmetric or x.flipped == y.flipped:
                rows = a.times(a.row_sums(a.times(x.L, y.L)), a.ones(*x.shape))
                part = a.times(rows, a.transposed(a.row_sums(a.times(x.R, y.R))))
            if x.z.symmetric or x.flipped != y.flipped:
                crossed = a.product(x.L, a.transposed(y.R))
                again = a.transposed(a.product(y.L, a.transposed(x.R)))
                part = a.plus(part, a.times(crossed, again))
            for weight in (x.weight, y.weight):
                part = part if weight is None else a.times(part, weight)
            total = a.plus(total, a.scaled(times(x.coefficient, y.coefficient), part))
    return total


def _bare(a: Algebra, x: Term) -> Term:
    """Return a term as a o (L Z R^T)."""
    if x.summed and x.left is None and x.R.shape[0] == 1 and x.right is not None:
        # diag(L Z r^T) Q = Q o (L Z (1 r)^T)
        L = x.L if x.weight is None else a.times(x.L, x.weight)
        R = a.product(a.ones(x.right.shape[1], 1), x.R)
        assert L is not None
        assert R is not None
        x = replace(x, L=L, R=R, weight=x.right, right=None, summed=False)
    if x.left or x.right or x.summed:
        raise LimitError(MIXED)
    return x
