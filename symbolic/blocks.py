"""The blocks of the shaped transformer as recursions: attention and the ReLU MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy import Expr, Integer, Matrix, Rational, Symbol, acos, expand, pi, sqrt, sympify
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, Field, Pair, Poly
from symbolic.checks import Mask, allowed_sets, check_count
from symbolic.expansion import attention_series
from symbolic.gaussian import isserlis, relu_kernel_orders, score_moment
from symbolic.recursion import Block, NoLimitError, Recursion, skip_only
from symbolic.series import HALF, Series


def gram_covariance(algebra: Algebra, first: Pair, second: Pair) -> Poly:
    """Return n Cov[W_ab, W_cd] = V_ac V_bd + V_ad V_bc of W = (1/n) sum of n g g^T, g ~ N(0, V)."""

    def moment(tokens: Sequence[int]) -> Poly:
        return isserlis(tokens, lambda a, b: algebra.entry(algebra.v, a, b))

    return moment((*first, *second)) - moment(first) * moment(second)


SMALLEST_POWER = Rational(1, 16)
"""The smallest temperature power p > 0 allowed: the expansion to order 1/n has 1/p terms."""

GRAM = Field("N", gram_covariance)
"""The fluctuation of the Gram matrix of n fresh Gaussian columns: W = V + N / sqrt n."""


class ShapedAttention(Block):
    """Block ``X' = lambda X + gamma A X W_V / sqrt n`` with A = I + softmax(Y / tau) - centring.

    Parameters
    ----------
    gamma, tau0
        Symbols or rational numbers; lambda^2 = 1 - gamma^2.
    heads
        The number of heads H; the columns of the branch fall into H groups with independent scores.
    mask
        None, "causal" or m rows of m booleans.
    centre
        None, or softmax(B) for a bias B of the scores, which the centring then subtracts: m rows of
        m rational numbers or expressions with the sum 1. Its zeros are the mask; leave out `mask`.
    output_projection
        Whether the heads are mixed by one more Gaussian matrix W_O / sqrt n.
    query_bias, key_bias
        Variances of the biases of queries and keys: symbols or numbers.
    key_size
        n_k as a symbol or number; None if it grows with n. The limit does not depend on it, but the
        finite-width correction does.
    identity, centring, temperature_power
        The three modifications of softmax attention: whether I is added, whether 1/m_a is
        subtracted, and p in tau = tau_0 sqrt(n_k) n^p.
    """

    def __init__(
        self,
        gamma: Any = "gamma",
        tau0: Any = "tau_0",
        heads: int = 1,
        mask: Mask = None,
        output_projection: bool = False,
        query_bias: Any = 0,
        key_bias: Any = 0,
        key_size: Any = None,
        identity: bool = True,
        centring: bool = True,
        temperature_power: Any = HALF,
        centre: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        self.gamma = weight(gamma)
        self.inverse_tau = 1 / parameter("tau0", tau0, positive=True)
        self.heads = check_count("heads", heads)
        self.mask = mask
        self.centre = None if centre is None else _row_stochastic(centre)
        if centre is not None and mask is not None:
            raise ValueError(
                f"mask must be None with a centre, whose zeros are the mask; got {mask!r}"
            )
        self.output_projection = output_projection
        self.query_bias = parameter("query_bias", query_bias, at_least=0)
        self.key_bias = parameter("key_bias", key_bias, at_least=0)
        self.inverse_key_size = (
            Integer(0) if key_size is None else 1 / parameter("key_size", key_size, at_least=1)
        )
        self.identity = identity
        self.centring = centring
        try:
            self.temperature_power = Rational(temperature_power)
        except (TypeError, ValueError, ZeroDivisionError):
            self.temperature_power = Rational(-1)
        if self.temperature_power != 0 and self.temperature_power < SMALLEST_POWER:
            raise ValueError(
                f"temperature_power must be 0 or a rational number >= {SMALLEST_POWER}; "
                f"got {temperature_power!r}"
            )
        self.scores = Field("G", self._score_covariance, self._score_moment)
        self.values = Field("N", self._value_covariance)
        self.fields = (self.scores, self.values) if output_projection else (self.scores,)

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters that are symbols."""
        return _symbolic(
            self.gamma,
            self.inverse_tau,
            self.query_bias,
            self.key_bias,
            self.inverse_key_size,
            *(() if self.centre is None else sorted(self.centre.free_symbols, key=str)),
        )

    def centre_in(self, algebra: Algebra) -> DomainMatrix:
        """Return the matrix w that the centring subtracts: `centre`, or 1/m_a on the allowed sets.

        Raises
        ------
        ValueError
            If `centre` has another number of tokens.
        """
        m = algebra.tokens
        if self.centre is None:
            allowed = allowed_sets(self.mask, m)
            return algebra.matrix(
                [[Rational(int(b in row), len(row)) for b in range(m)] for row in allowed]
            )
        if self.centre.shape != (m, m):
            raise ValueError(f"centre must have shape ({m}, {m}); got {self.centre.shape}")
        return algebra.matrix(self.centre.tolist())

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and branch gamma^2 A V A^T; with W_O, V is the values' Gram."""
        if self.temperature_power == 0:
            raise NoLimitError(
                "no limit: with tau = tau_0 sqrt(n_k) the scores Y / tau = G / tau_0 are of order "
                "n^0, so that softmax(Y / tau), a random matrix of order n^0, contributes terms "
                "of order n^0 to the mean and the covariance of V'"
            )
        gain = algebra[self.gamma] ** 2
        attention = self.attention(algebra, order)
        values = Series({0: algebra.v}, order)
        if self.output_projection:
            values = values + Series({HALF: algebra.field(self.values)}, order)
        branch = attention * values * attention.T * gain
        return Recursion(skip_only(algebra, 1 - gain, order), branch, self.heads)

    def attention(self, algebra: Algebra, order: int) -> Series:
        """Return the attention matrix A of one head as a series up to the power `order` of 1/n."""
        return attention_series(
            algebra,
            self.score_matrix(algebra),
            algebra[self.inverse_tau],
            self.mask,
            order,
            self.identity,
            self.centring,
            self.temperature_power,
            None if self.centre is None else self.centre_in(algebra),
        )

    def score_matrix(self, algebra: Algebra) -> DomainMatrix:
        """Return the scores G (m, m) of one head."""
        return algebra.field(self.scores)

    def _value_covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        # One head's values have n / H columns.
        return self.heads * gram_covariance(algebra, first, second)

    def _score_covariance(self, algebra: Algebra, first: Pair, second: Pair) -> Poly:
        return self._score_moment(algebra, (first, second))

    def _score_moment(self, algebra: Algebra, pairs: Sequence[Pair]) -> Poly:
        query, key = algebra[self.query_bias], algebra[self.key_bias]
        return score_moment(
            pairs,
            lambda a, c: algebra.entry(algebra.v, a, c) + query,
            lambda b, d: algebra.entry(algebra.v, b, d) + key,
            inverse_key_size=algebra[self.inverse_key_size],
        )


class ShapedMLP(Block):
    """Block ``X' = lambda X + gamma sqrt(c/n) s(X W_pre / sqrt n) W_post`` with a shaped ReLU s.

    s(x) = s_+ max(x, 0) + s_- min(x, 0), s_pm = 1 + c_pm / sqrt n, 1/c = E s(g)^2. The branch is
    gamma^2 (c/n) sum of n columns s(h) s(h)^T, h ~ N(0, V): the exact kernel plus a fluctuation.
    To leading order the fluctuation is that of a Gram matrix, because s tends to the identity.

    Parameters
    ----------
    gamma, c_plus, c_minus
        Symbols or rational numbers; lambda^2 = 1 - gamma^2.
    normalised
        Whether the branch has the factor c.
    """

    fields = (GRAM,)

    def __init__(
        self,
        gamma: Any = "gamma",
        c_plus: Any = "c_plus",
        c_minus: Any = "c_minus",
        normalised: bool = True,
    ) -> None:
        self.gamma = weight(gamma)
        self.c_plus = parameter("c_plus", c_plus)
        self.c_minus = parameter("c_minus", c_minus)
        self.normalised = normalised

    def generators(self, v: Matrix) -> Sequence[Expr]:
        """Return the parameters, and one function of rho for each pair of tokens."""
        functions = [relu_function(v, a, b) for a in range(v.rows) for b in range(a)]
        return [*_symbolic(self.gamma, self.c_plus, self.c_minus), *functions]

    def recursion(self, algebra: Algebra, order: int = 1) -> Recursion:
        """Return skip lambda^2 V and branch gamma^2 (kernel + N / sqrt n)."""
        if order > 1:
            raise ValueError(f"the MLP is expanded to order 1/n only; got order={order}")
        gain, functions = algebra[self.gamma] ** 2, relu_functions(algebra)
        branch = Series({HALF: algebra.field(GRAM)}, order)
        for power, (linear, nonlinear) in enumerate(self._kernel_orders()):
            half = Rational(power, 2)
            branch += Series({half: algebra.v}, order) * algebra[linear]
            branch += Series({half: functions}, order) * algebra[nonlinear]
        return Recursion(skip_only(algebra, 1 - gain, order), branch * gain)

    def _kernel_orders(self) -> list[tuple[Expr, Expr]]:
        """Return p and q of the kernel, p rho + q (sqrt(1 - rho^2) - rho acos rho) / (2 pi).

        There is one pair for each of the orders n^0, n^(-1/2) and n^(-1).
        """
        rho, root, angle = Symbol("rho"), Symbol("root"), Symbol("angle")
        orders = relu_kernel_orders(rho, self.c_plus, self.c_minus, 2, self.normalised)
        parts = []
        for coefficient in orders:
            polynomial = expand(coefficient.subs({acos(rho): angle, sqrt(1 - rho**2): root}))
            nonlinear = polynomial.coeff(root)
            linear = expand(polynomial - nonlinear * (root - rho * angle)).coeff(rho)
            if expand(polynomial - linear * rho - nonlinear * (root - rho * angle)) != 0:
                raise ArithmeticError(f"{coefficient} is not a combination of the two functions")
            parts.append((linear, expand(2 * pi * nonlinear)))
        return parts


def relu_function(v: Matrix, a: int, b: int) -> Expr:
    """Return ``sqrt(V_aa V_bb) (sqrt(1 - rho^2) - rho arccos rho) / (2 pi)``, rho the correlation.

    The drift of the MLP is gamma^2 (c_+ - c_-)^2 times this function, which is 0 for a = b.
    """
    scale = sqrt(v[a, a] * v[b, b])
    return (sqrt(v[a, a] * v[b, b] - v[a, b] ** 2) - v[a, b] * acos(v[a, b] / scale)) / (2 * pi)


def relu_functions(algebra: Algebra) -> DomainMatrix:
    """Return `relu_function` of all pairs of tokens (m, m)."""
    tokens = range(algebra.tokens)

    def entry(a: int, b: int) -> Expr:
        return Integer(0) if a == b else relu_function(algebra.v_expressions, max(a, b), min(a, b))

    return algebra.matrix([[entry(a, b) for b in tokens] for a in tokens])


def parameter(name: str, value: Any, at_least: int | None = None, positive: bool = False) -> Expr:
    """Return a parameter as an expression.

    A string becomes a positive symbol, or a real one for c_plus and c_minus.

    Raises
    ------
    ValueError
        If the value is neither a symbol nor an exact rational number in its range.
    """
    if isinstance(value, str):
        return Symbol(value, real=True) if value.startswith("c_") else Symbol(value, positive=True)
    expression = sympify(value)
    if expression.is_Symbol or (
        expression.is_Rational
        and (at_least is None or expression >= at_least)
        and (not positive or expression > 0)
    ):
        return expression
    limits = "" if at_least is None else f" >= {at_least}"
    limits += " > 0" if positive else ""
    raise ValueError(f"{name} must be a symbol or an exact rational number{limits}; got {value!r}")


def weight(gamma: Any) -> Expr:
    """Return the weight of a branch, a symbol or a rational number in [0, 1]."""
    expression = parameter("gamma", gamma, at_least=0)
    if expression.is_Rational and expression > 1:
        raise ValueError(f"gamma must be a symbol or a rational number in [0, 1]; got {gamma!r}")
    return expression


def _row_stochastic(centre: Sequence[Sequence[Any]]) -> Matrix:
    """Return the rows as a matrix; raise ValueError unless each sums to 1."""
    matrix = Matrix(centre)
    for row in range(matrix.rows):
        total = expand(sum(matrix.row(row)))
        if matrix.rows != matrix.cols or total != 1:
            raise ValueError(
                f"centre must be square with rows that sum to 1; row {row} of {matrix.cols} "
                f"entries sums to {total}"
            )
    return matrix


def _symbolic(*expressions: Expr) -> list[Expr]:
    return [expression for expression in expressions if not expression.is_number]
