"""A block together with derivatives of its output: values and tangents as (1 + p) m rows.

The rows are those of the tokens X, then of tangents X._1, ..., X._p: derivatives of X along p
directions, which a layer maps to J X._k with the Jacobian J at X. U = Z Z^T / n is the covariance
of all rows Z = (X, X._1, ..., X._p), with the blocks V = X X^T / n, C_k = X X._k^T / n and
D_kl = X._k X._l^T / n.

Chain and limit of U need nothing new of a block:

- Its step and its root, run on a `Dual`, give roots of values and tangents whose rows have the
  joint law, since the last Gaussian weights act on both.
- So do drift and noise of a factor. What raises the rank of V has no factor. In its place stand two
  copies of the tokens, X + eps X._k and X + eps' X._l, each of which sees itself only
  (`Limit.on_copies`): the derivative in eps and eps' of the growth between the copies is that of
  D_kl, and the derivative in eps' at eps = 0 that of C_l.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.base import Block, Layer, Pattern, Project, Tokens, pattern_of
from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.checks import argument_error, check_count
from shaped_attention.derived.state import State
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.dual import Dual, zeros
from shaped_attention.numerics.operations.factorisations import split, stacked
from shaped_attention.numerics.primitives import M, Numbers, columns, concatenate


@dataclass(frozen=True)
class TangentLimit(Limit):
    """The limit of values and p = `count` tangents, from that of the values.

    `one` and `two` are the limits for one copy and for two copies of the tokens.
    """

    values: Limit
    one: Limit
    two: Limit
    count: int

    def linear_rate(self, p: Parameters) -> Any:
        """Return k of the values."""
        return self.values.linear_rate(p.inner)

    def factor_drift(self, p: Parameters, factor: M) -> M | None:
        """Return the drift of values and tangents."""
        return _rows(self.one.factor_drift(p.inner, self._dual(factor)))

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M | None:
        """Return the noise of values and tangents, from the same increments."""
        return _rows(self.values.factor_noise(p.inner, self._dual(factor), numbers))

    def growth(self, p: Parameters, v: M) -> M | None:
        """Return the derivatives of the growth between two copies."""
        size = 1 + self.count
        rows: list[list[Any]] = [split(row.mT, size) for row in split(v, size)]
        u = [[block.mT for block in row] for row in rows]
        rest = range(1, size)
        none = 0.0 * u[0][0]

        def moved(k: int, l: int) -> Any:
            """Return the derivative of the covariance of X + eps X_k and X + eps' X_l; 0 is X."""
            if k and l:
                return _square(none, u[k][l], none)
            if k:
                return _square(u[0][k] + u[k][0], u[k][0], none)
            return _square(none, u[0][l], u[0][l] + u[l][0])

        inner = [Dual(moved(k, 0), tuple(moved(k, l) for l in rest)) for k in rest]
        both = _square(u[0][0], u[0][0], u[0][0])
        start: Any = Dual(Dual(both, tuple(moved(0, l) for l in rest)), tuple(inner))
        growth: Any = self.two.growth(p.inner, start)
        if growth is None:
            return None
        blocks = [[_between(x) for x in _all(row, none)] for row in _all(growth, None)]
        result: M = stacked([concatenate(row) for row in blocks])
        return result

    def decay(self, p: Parameters) -> Any:
        """Return the rate of the values; decay is linear."""
        return self.values.decay(p.inner)

    def check(self, tokens: int) -> None:
        """Check the limit of the values."""
        self.values.check(tokens // (1 + self.count))

    def speed(self, p: Parameters, factor: M) -> M | None:
        """Return the speed of the values: tangents, a linear equation, do not explode before."""
        return self.values.speed(p.inner, split(factor, 1 + self.count)[0])

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return that of values and tangents."""
        return _rows(self.values.noise_drift(p.inner, self._dual(factor)))

    def _dual(self, factor: M) -> Any:
        return _dual(factor, self.count)


@dataclass(frozen=True)
class WithTangents(Block):
    """A block that acts on tokens and on p tangents, stacked as (1 + p) m rows.

    Parameters
    ----------
    inner
        The block. In the limit, its layer must not be normalised; in the chain, a hidden layer
        draws all its units.
    count
        Number p >= 1 of tangents.

    Raises
    ------
    ValueError
        If `inner` is not a block without tangents, or `count` is not a positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> import shaped_attention as sa
    >>> u0 = np.kron(np.eye(2), sa.equicorrelated(2, 0.5))
    >>> layer = sa.WithTangents(sa.ShapedAttention(gamma=0.5), count=1)
    >>> sa.simulate_chain(layer, u0, width=50, depth=5, samples=10).V.shape
    (2, 10, 4, 4)
    """

    inner: Block
    count: int = 1

    coupling = "values and tangents are not coupled"

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Block) or isinstance(self.inner, WithTangents):
            raise argument_error("inner", "a block without tangents", self.inner)
        check_count("count", self.count)

    @property
    def gamma(self) -> Any:
        """The weight of the branch."""
        return self.inner.gamma

    @property
    def limit(self) -> Limit | str:
        """The limit of values and tangents, or the reason why it does not exist."""
        values = self.inner.limit
        if isinstance(values, str):
            return values
        if values.normalised:
            return "none is derived for tangents of normalised blocks"
        one, two = values.on_copies(1), values.on_copies(2)
        if isinstance(one, str):
            return one
        assert not isinstance(two, str)
        return TangentLimit(values, one, two, self.count)

    def check(self, tokens: int, width: int | None) -> None:
        """Check the number of rows, and the block."""
        if tokens % (1 + self.count):
            raise ValueError(
                f"u must have a multiple of {1 + self.count} rows, those of the tokens and of "
                f"{self.count} tangents; got {tokens}"
            )
        self.inner.check(tokens // (1 + self.count), width)

    def skip_weight(self, p: Parameters) -> Any:
        """Return the weight of the block's skip connection."""
        return self.inner.skip_weight(p.inner)

    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the branch of the tokens, and its derivatives along the tangents."""
        return self._derivatives(self.inner.branch, p, tokens, project)

    def forward(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Apply the block to the tokens, and its derivative to the tangents."""
        return self._derivatives(self.inner.forward, p, tokens, project)

    def _derivatives(self, function: Any, p: Parameters, tokens: Tokens, project: Project) -> Any:
        """Differentiate in forward mode; a weight matrix multiplies all rows at once."""
        from torch.autograd import forward_ad

        count = self.count

        def shared(x: Tensor, size: int, name: str | None = None, head: int = 0) -> Tensor:
            value, tangent = forward_ad.unpack_dual(x)
            if tangent is None:
                return project(value[0], size).expand(count, *value.shape[1:-1], size)
            rows = torch.cat([value[0], *tangent.unbind(0)], dim=-2).contiguous()
            first, *rest = project(rows, size).split(value.shape[-2], dim=-2)
            return forward_ad.make_dual(first.expand(count, *first.shape), torch.stack(rest))

        first, *rest = tokens.split(tokens.shape[-2] // (1 + count), dim=-2)
        with forward_ad.dual_level():
            start = forward_ad.make_dual(
                first.expand(count, *first.shape).clone(), torch.stack(rest)
            )
            value, tangent = forward_ad.unpack_dual(function(p.inner, start, shared))
            return torch.cat([value[0], *tangent.unbind(0)], dim=-2)

    def step(self, p: Parameters, state: State, numbers: Numbers, width: int) -> State:
        """Take values and tangents to the next layer."""
        duals = state._replace(factors=tuple(_dual(x, self.count) for x in state.factors))
        after = self.inner.step(p.inner, duals, numbers, width)
        return after._replace(factors=tuple(_rows(x) for x in after.factors))


def moved_along(layer: Layer, tangents: int, parameters: Any = None) -> tuple[Layer, Any]:
    """Return a layer and its `Overrides`, with tangents if their number is not 0.

    Raises
    ------
    ValueError
        If the number is not an integer >= 0.
    """
    check_count("tangents", tangents, lowest=0)
    if tangents == 0:
        return layer, parameters
    pattern = pattern_of(layer)
    several = isinstance(parameters, list | tuple)
    if parameters is not None:
        parameters = [{"inner": x} for x in (parameters if several else [parameters])]
    return Pattern([[WithTangents(x, tangents) for x in blocks] for blocks in pattern]), parameters


def _dual(rows: M, count: int) -> Any:
    """Return the first of 1 + p parts of the rows, with the others as its tangents."""
    first, *rest = split(rows, 1 + count)
    return Dual(first, tuple(rest))


def _rows(dual: Any) -> Any:
    """Return the rows of a value and of its tangents; None of None."""
    return None if dual is None else stacked(_all(dual, zeros(dual.value)))


def _all(dual: Dual, none: Any) -> list[Any]:
    """Return value and tangents, `none` in place of those that are 0."""
    tangents = [none if d is None else d for d in dual.tangents]
    return [dual.value, *tangents]


def _square(a: Any, b: Any, c: Any) -> Any:
    """Return the symmetric matrix with the blocks a, b and c."""
    return stacked([concatenate([a, b]), concatenate([b.mT, c])])


def _between(square: Any) -> Any:
    """Return the upper right of the four blocks."""
    m = square.shape[-2] // 2
    return columns(split(square, 2)[0], m, 2 * m)
