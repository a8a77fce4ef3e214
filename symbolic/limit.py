"""The limit, derived: drift and diffusion of V from a block's recursion.

Write M = S V S^T + K for the covariance of one column of X' = S X + B given the fields. Then, with
n columns, exactly given the fields (Isserlis),

    E[V'] = M,
    n Cov[V'_ab, V'_cd] = U_ac K_bd + U_ad K_bc + U_bc K_ad + U_bd K_ac + K_ac K_bd + K_ad K_bc,

where U = S V S^T. (S X is given; only B is random.) Over the fields, E[V' - V] = E[M] - V and the
covariance of M is added. `derive` collects powers of 1/n and requires all powers below 1 to vanish;
the coefficients of 1/n are then the drift and diffusion. That they determine the limit is a
theorem (Ethier and Kurtz, Markov Processes, 1986, theorem 7.4.1) with two hypotheses that are not
checked here. First, the stopped martingale problem is well posed. This holds up to the exit from
any compact set on which b and Sigma are smooth and Sigma is positive definite. Second, single jumps
are negligible. This holds if the fields are polynomials in Gaussian variables, which have all
moments. The convergence is local in this sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sympy import Expr, Matrix, Rational
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, Poly, symbolic_covariance, vech_pairs
from symbolic.checks import check_tokens
from symbolic.functions import array_function
from symbolic.recursion import Block, NoLimitError, Recursion
from symbolic.series import HALF

Layer = Block | Sequence[Block]


@dataclass(frozen=True)
class Limit:
    """Drift and diffusion of dV = b(V) dt + Sigma(V)^(1/2) dW, t = layer / n.

    Attributes
    ----------
    algebra
        The ring in which the coefficients are polynomials.
    drift_polynomials
        b, an (m, m) matrix over the ring.
    diffusion_polynomials
        Sigma, a (d, d) matrix over the ring, d = m (m + 1) / 2: the covariance of the lower
        triangle of V, taken row by row.
    """

    algebra: Algebra
    drift_polynomials: DomainMatrix
    diffusion_polynomials: DomainMatrix

    @property
    def tokens(self) -> int:
        """The number of tokens m."""
        return self.algebra.tokens

    @property
    def drift(self) -> Matrix:
        """b(V) as an (m, m) matrix of expressions."""
        return self.drift_polynomials.to_Matrix()

    @property
    def diffusion(self) -> Matrix:
        """Sigma(V) as a (d, d) matrix of expressions."""
        return self.diffusion_polynomials.to_Matrix()

    def diffusion_entry(self, first: tuple[int, int], second: tuple[int, int]) -> Expr:
        """Return Sigma^{ab,cd} = lim n Cov[V'_ab, V'_cd] for two pairs of tokens, from 0."""
        index = {pair: k for k, pair in enumerate(vech_pairs(self.tokens))}
        i, j = (index[max(pair), min(pair)] for pair in (first, second))
        return self.algebra.entry(self.diffusion_polynomials, i, j).as_expr()

    def to_numpy(self, **parameters: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Return b (..., m, m) and Sigma (..., d, d) as functions of arrays V (..., m, m).

        `parameters` has a number for every parameter, by name (gamma, tau_0, ...).

        Raises
        ------
        ValueError
            If a parameter has no number, or a name is not a parameter.
        """
        return self._functions(parameters, "numpy")

    def to_torch(self, **parameters: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Return b and Sigma as functions of torch tensors; see `to_numpy`.

        The functions read the lower triangle of V and are differentiable in it where the
        coefficients are (with an MLP, not where tokens are equal). Parameters are numbers: a tensor
        that requires gradients raises ValueError.
        """
        return self._functions(parameters, "torch")

    def _functions(
        self, parameters: Mapping[str, float], library: str
    ) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        return (
            array_function(self.drift_polynomials, self.algebra, parameters, library),
            array_function(self.diffusion_polynomials, self.algebra, parameters, library),
        )


@dataclass(frozen=True)
class Correction:
    """The coefficient b_1(V) in ``n E[V' - V | V] = b(V) + b_1(V) / n + O(n^-2)``.

    Attributes
    ----------
    algebra, drift_polynomials
        The ring, and b_1 as an (m, m) matrix over it.
    """

    algebra: Algebra
    drift_polynomials: DomainMatrix

    @property
    def drift(self) -> Matrix:
        """b_1(V) as an (m, m) matrix of expressions."""
        return self.drift_polynomials.to_Matrix()

    def to_numpy(self, **parameters: float) -> Callable[[Any], Any]:
        """Return b_1 as a function of arrays V (..., m, m); `parameters` as in `Limit.to_numpy`."""
        return array_function(self.drift_polynomials, self.algebra, parameters, "numpy")


def derive(layer: Layer, tokens: int, at: Matrix | None = None) -> Limit:
    """Derive the limit of a block, or of the blocks of a layer one after the other.

    Parameters
    ----------
    layer
        A block or a sequence of blocks. Within a layer V changes by O(1/sqrt n), so each block's
        coefficients may be evaluated at the same V: drifts add and diffusions add.
    tokens
        The number of tokens m >= 1.
    at
        A symmetric (m, m) matrix of rational numbers, to derive the coefficients at one point.
        With None they are polynomials in the entries of V.

    Raises
    ------
    NoLimitError
        If a term larger than 1/n is left in the mean or the covariance.
    ValueError
        If an argument is invalid.
    """
    blocks = blocks_of(layer)
    algebra = algebra_of(blocks, tokens, at, fields=False)
    drift, diffusion = algebra.zeros(tokens), algebra.zeros(tokens * (tokens + 1) // 2)
    for block in blocks:
        own = algebra_of([block], tokens, at)
        recursion = _checked_recursion(block, own, 1)
        drift += algebra.transfer(_mean_increment(recursion, own, 1)[Rational(1)])
        diffusion += algebra.transfer(_increment_covariance(recursion, own))
    return Limit(algebra, drift, diffusion)


def drift_correction(block: Block, tokens: int) -> Correction:
    """Derive b_1 in ``n E[V' - V | V] = b(V) + b_1(V) / n + O(n^-2)``, the next order of the drift.

    For attention the result is exact at finite n_k if the block has a `key_size`. Otherwise n_k is
    assumed to grow at least like n, and contributes nothing at this order.

    Raises
    ------
    NoLimitError, ValueError
        As in `derive`; also if the mean has a term of an order between n^-1 and n^-2.
    """
    if not isinstance(block, Block):
        raise ValueError(f"block must be one symbolic block; got {block!r}")
    algebra = algebra_of([block], tokens)
    orders = _mean_increment(_checked_recursion(block, algebra, 2), algebra, 2)
    for power, between in orders.items():
        if 1 < power < 2 and not between.is_zero_matrix:
            raise NoLimitError(
                f"no correction of order 1/n: the mean of V' - V has a term of order "
                f"{_order(power)}: {_first_entry(between)}"
            )
    return Correction(algebra, orders[Rational(2)])


def blocks_of(layer: Layer) -> list[Block]:
    """Return the blocks of a layer; raise ValueError if it has other entries or none."""
    blocks = list(layer) if isinstance(layer, Sequence) else [layer]
    if not blocks or not all(isinstance(block, Block) for block in blocks):
        raise ValueError(f"layer must be a symbolic block or a sequence of them; got {layer!r}")
    return blocks


def algebra_of(
    blocks: Sequence[Block], tokens: int, at: Matrix | None = None, fields: bool = True
) -> Algebra:
    """Return the ring of the coefficients of some blocks; with `fields`, the ring of a recursion.

    Fields belong to one block, so a recursion is written in the ring of one block.
    """
    check_tokens(tokens)
    if at is not None:
        at = Matrix(at)
        if at.shape != (tokens, tokens) or at != at.T or not all(e.is_Rational for e in at):
            raise ValueError(
                f"at must be a symmetric {tokens} x {tokens} matrix of rational numbers; got "
                f"{at.tolist()}"
            )
    v = symbolic_covariance(tokens) if at is None else at
    generators = [generator for block in blocks for generator in block.generators(v)]
    own = [field for block in blocks for field in block.fields] if fields else []
    return Algebra(tokens, generators, own, at)


def _checked_recursion(block: Block, algebra: Algebra, order: int) -> Recursion:
    recursion = block.recursion(algebra, order)
    for name in ("skip", "branch"):
        kept = getattr(recursion, name).order
        if kept < order:
            raise ValueError(
                f"the recursion of {type(block).__name__} is needed to the power {order} of 1/n, "
                f"but its {name} is cut after the power {kept}"
            )
    return recursion


def _mean_increment(
    recursion: Recursion, algebra: Algebra, order: int
) -> dict[Rational, DomainMatrix]:
    """Return the orders of E[V' - V]; those below 1 must vanish."""
    total = recursion.skip + recursion.branch - algebra.v
    orders = {Rational(k): algebra.zeros(algebra.tokens) for k in range(1, order + 1)}
    for power, matrix in total.terms.items():
        mean = algebra.matrix([[algebra.expect(e) for e in row] for row in matrix.to_list()])
        if power < 1 and not mean.is_zero_matrix:
            raise NoLimitError(
                f"no limit: the mean of V' - V has a term of order {_order(power)}: "
                f"{_first_entry(mean)}"
            )
        orders[power] = mean
    return orders


def _increment_covariance(recursion: Recursion, algebra: Algebra) -> DomainMatrix:
    """Return the coefficient of 1/n in Cov[V']; all lower powers must vanish."""
    zero, skip, branch = algebra.zeros(algebra.tokens), recursion.skip, recursion.branch
    pairs = vech_pairs(algebra.tokens)
    if recursion.heads > 1 and any(
        algebra.is_random(e) for m in skip.terms.values() for row in m.to_list() for e in row
    ):
        raise ValueError(
            f"heads={recursion.heads}: the skip depends on a field; with several heads it must not"
        )
    total = (skip + branch).terms
    for p, left in total.items():
        for q, right in total.items():
            if p <= q and p + q < 1:
                random = algebra.matrix(
                    [
                        [algebra.covariance(left[x].element, right[y].element) for y in pairs]
                        for x in pairs
                    ]
                )
                if not random.is_zero_matrix:
                    raise NoLimitError(
                        f"no limit: the covariance of V' has a term of order {_order(p + q)}; it "
                        f"must be of order 1/n ({_first_entry(random)} in half-vectorised V)"
                    )
    u, k = (series.terms.get(Rational(0), zero).to_list() for series in (skip, branch))
    matrix = total.get(HALF, zero).to_list()
    share = Rational(1, recursion.heads)
    size = len(pairs)
    rows = [[algebra.ring.zero] * size for _ in pairs]
    for i, (a, b) in enumerate(pairs):
        for j, (c, d) in enumerate(pairs[: i + 1]):
            value = _wishart_part(u, k, (a, b), (c, d))
            fluctuation = algebra.covariance(matrix[a][b], matrix[c][d])
            rows[i][j] = rows[j][i] = algebra.expect(value) + fluctuation * share
    return algebra.matrix(rows)


def _wishart_part(
    u: list[list[Poly]], k: list[list[Poly]], first: tuple[int, int], second: tuple[int, int]
) -> Poly:
    (a, b), (c, d) = first, second
    cross = u[a][c] * k[b][d] + u[a][d] * k[b][c] + u[b][c] * k[a][d] + u[b][d] * k[a][c]
    return cross + k[a][c] * k[b][d] + k[a][d] * k[b][c]


def _order(power: Rational) -> str:
    return "n^0" if power == 0 else f"n^(-{power})"


def _first_entry(matrix: DomainMatrix) -> str:
    for a, row in enumerate(matrix.to_list()):
        for b, entry in enumerate(row):
            if entry:
                return f"entry ({a}, {b}) is {entry.as_expr()}"
    return "none"
