"""The recursion of a residual block, which is what the engine needs to know of it.

A residual block is ``X' = S X + B``. S is an m x m matrix. Given everything else that is random in
the block, the n columns of B are independent Gaussian vectors with one m x m covariance K, because
B ends in a fresh Gaussian matrix: B = gamma M W / sqrt n with n columns has K = gamma^2 M M^T / n.
So two series in powers of 1/n describe a block,

    skip    S V S^T,    branch    K.

Their coefficients are polynomials in V, in parameters, and in Gaussian fields for everything else
that is random (the scores G, the fluctuation of a Gram matrix).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sympy import Expr, Matrix

from symbolic.algebra import Algebra, Field
from symbolic.checks import check_count
from symbolic.series import Series


class NoLimitError(ValueError):
    """Error for a block that has no limit at this scaling; the message names the term that is left.

    Two blocks of a layer whose terms cancel may have a limit together; this is not checked.
    """


@dataclass(frozen=True)
class Recursion:
    """Effect of a block on V, given its fields.

    Attributes
    ----------
    skip
        S V S^T as a series.
    branch
        K as a series: the covariance of one column of the branch.
    heads
        The number of heads H. If H > 1, K is an average over H independent copies of the fields,
        and `branch` is one term of it. This is so if the columns fall into H groups of n/H, each
        with its own fields (to leading order V' depends only on the average), and if the heads are
        mixed. The skip must then not depend on fields.
    """

    skip: Series
    branch: Series
    heads: int = 1

    def __post_init__(self) -> None:
        check_count("heads", self.heads)
        for name in ("skip", "branch"):
            value = getattr(self, name)
            if not isinstance(value, Series):
                raise ValueError(
                    f"{name} must be a Series, with multiples written as series * element; it is a "
                    f"{type(value).__name__}"
                )


class Block(ABC):
    """Residual block for the engine. Subclass it to derive the limit of your own block.

    Examples
    --------
    Linear attention, X' = lambda X + gamma (I + Y / tau) X W_V / sqrt n: its scores Y / tau are
    G / (tau_0 sqrt n), so they enter with the power 1/2 of 1/n.

    >>> from sympy import Symbol
    >>> from symbolic import HALF, Field, Series, derive, skip_only
    >>> gamma, tau = Symbol("gamma", positive=True), Symbol("tau_0", positive=True)
    >>> def score_covariance(algebra, first, second):
    ...     (a, b), (c, d) = first, second
    ...     return algebra.entry(algebra.v, a, c) * algebra.entry(algebra.v, b, d)
    >>> class LinearAttention(Block):
    ...     scores = Field("G", score_covariance)
    ...     fields = (scores,)
    ...     def generators(self, v):
    ...         return [gamma, 1 / tau]
    ...     def recursion(self, algebra, order=1):
    ...         scores = Series({HALF: algebra.field(self.scores)}, order) * algebra[1 / tau]
    ...         attention = scores + algebra.identity
    ...         gain = algebra[gamma] ** 2
    ...         branch = attention * algebra.v * attention.T * gain
    ...         return Recursion(skip_only(algebra, 1 - gain, order), branch)
    >>> derive(LinearAttention(), tokens=2).drift[0, 0].factor()
    V[0,0]*gamma**2*(V[0,0]**2 + 2*V[0,1]**2 + V[1,1]**2)/tau_0**2
    """

    fields: Sequence[Field] = ()
    """Random matrices of the recursion."""

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters, and functions of the entries of `v` (m, m) if not polynomial."""
        return ()

    @abstractmethod
    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return the two series up to the power `order` of 1/n, in the ring `algebra`.

        Raises
        ------
        NoLimitError
            If the series do not exist because there is no limit.
        """


def skip_only(algebra: Algebra, weight_squared: object, order: int) -> Series:
    """Return the skip series lambda^2 V of ``S = lambda I``, from lambda^2 in the ring."""
    return Series({0: algebra.v}, order) * weight_squared
