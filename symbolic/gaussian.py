"""Exact Gaussian moments: Isserlis' theorem, the score field, the shaped ReLU.

All moments of products are sums over pairings (Isserlis 1918; Wick 1950). The scores at key size k
are sums over k independent columns, and a second pairing determines which of them share a column.
The two pairings together form loops; each loop is one free sum and contributes a factor k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

from sympy import (
    Expr,
    Integer,
    Symbol,
    acos,
    cos,
    diff,
    expand,
    factor,
    factorial,
    integrate,
    oo,
    pi,
    sin,
    sqrt,
    sympify,
)
from sympy import exp as exponential

Pair = tuple[int, int]
Pairing = tuple[Pair, ...]


@cache
def pairings(count: int) -> tuple[Pairing, ...]:
    """Return all ways to split 0, ..., count - 1 into pairs; there are none if `count` is odd.

    Examples
    --------
    >>> pairings(4)
    (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
    """

    def split(rest: tuple[int, ...]) -> Iterator[Pairing]:
        if not rest:
            yield ()
            return
        first, others = rest[0], rest[1:]
        for position, partner in enumerate(others):
            for tail in split(others[:position] + others[position + 1 :]):
                yield ((first, partner), *tail)

    return tuple(split(tuple(range(count))))


def isserlis(labels: Sequence[Any], covariance: Callable[[Any, Any], Any]) -> Any:
    """Return E[g_1 ... g_p] of centred jointly Gaussian variables, a sum over pairings.

    Parameters
    ----------
    labels
        Label of the variable in each factor; repeated labels are powers.
    covariance
        Function of two labels that returns the covariance.

    Examples
    --------
    >>> from sympy import Symbol
    >>> isserlis("aabb", lambda x, y: Symbol("C_" + min(x, y) + max(x, y)))
    C_aa*C_bb + 2*C_ab**2
    """
    known: dict[tuple[Any, Any], Any] = {}

    def pair(i: int, j: int) -> Any:
        key = (labels[i], labels[j])
        if key not in known:
            known[key] = covariance(*key)
        return known[key]

    every = pairings(len(labels))
    return sum((prod((pair(i, j) for i, j in p), start=Integer(1)) for p in every), Integer(0))


def score_moment(
    pairs: Sequence[Pair],
    query_covariance: Callable[[int, int], Any],
    key_covariance: Callable[[int, int], Any] | None = None,
    key_size: Any = oo,
    inverse_key_size: Any = None,
) -> Any:
    """Return E[prod G_ab] of the score field G = Y / sqrt(n_k), exactly, at any key size n_k.

    Y_ab = sum_{k <= n_k} q_ak k_bk, where the columns of q are independent N(0, V_Q) and those of
    k are independent N(0, V_K). So, over pairings sigma of the rows and pi of the columns,
    E[prod G] = n_k^(-p/2) sum prod_sigma V_Q prod_pi V_K n_k^loops(sigma, pi). For n_k -> oo only
    the terms with sigma = pi remain: G is Gaussian with E[G_ab G_cd] = V_Q,ac V_K,bd. Two factors
    have this covariance at every n_k.

    Parameters
    ----------
    pairs
        The entries (a, b), from 0; p entries give a sum over ((p - 1)!!)^2 pairs of pairings.
    query_covariance, key_covariance
        Functions of two tokens; the second defaults to the first.
    key_size
        n_k: a number, a symbol, or oo; in a polynomial ring give `inverse_key_size` instead.
    inverse_key_size
        1 / n_k as an element of the ring of the covariances; overrules `key_size`.

    Examples
    --------
    >>> from sympy import Symbol
    >>> v = lambda a, b: Symbol(f"V_{a}{b}")
    >>> score_moment([(0, 0), (0, 0), (0, 0), (0, 0)], v, key_size=Symbol("n_k"))
    3*V_00**4 + 6*V_00**4/n_k
    """
    key_covariance = query_covariance if key_covariance is None else key_covariance
    factors = len(pairs)
    inverse = inverse_key_size
    if inverse is None:
        inverse = Integer(0) if key_size == oo else 1 / sympify(key_size)
    total = Integer(0)
    for rows in pairings(factors):
        for columns in pairings(factors):
            missing = factors // 2 - _loops(rows, columns, factors)
            if missing and not inverse:
                continue
            term = inverse**missing if missing else Integer(1)
            for i, j in rows:
                term = term * query_covariance(pairs[i][0], pairs[j][0])
            for i, j in columns:
                term = term * key_covariance(pairs[i][1], pairs[j][1])
            total = total + term
    return total


def _loops(first: Pairing, second: Pairing, count: int) -> int:
    """Count the cycles of the graph on `count` points with the edges of both pairings."""
    partners: list[list[int]] = [[] for _ in range(count)]
    for i, j in (*first, *second):
        partners[i].append(j)
        partners[j].append(i)
    seen: set[int] = set()
    loops = 0
    for start in range(count):
        if start not in seen:
            loops += 1
            stack = [start]
            while stack:
                point = stack.pop()
                if point not in seen:
                    seen.add(point)
                    stack += partners[point]
    return loops


@cache
def half_gaussian_moment(angle: Expr) -> Expr:
    """Return E[max(g_a, 0) max(g_b, 0)] of unit Gaussians of correlation cos(angle).

    With (g_a, g_b) = r (cos theta, cos(theta - angle)) both are positive on
    angle - pi/2 < theta < pi/2, and the integral over r separates. Both integrals are computed
    exactly. The result is the arc-cosine kernel of degree one (Cho and Saul, NeurIPS 2009).
    """
    theta, r = Symbol("theta", real=True), Symbol("r", positive=True)
    turn = Symbol("phi", real=True)
    radial = integrate(r**3 * exponential(-(r**2) / 2), (r, 0, oo))
    # The product as a sum of cosines, which sympy integrates at once.
    integrand = (cos(2 * theta - turn) + cos(turn)) / 2
    angular = integrate(integrand, (theta, turn - pi / 2, pi / 2))
    return expand(radial * angular / (2 * pi)).subs(turn, angle)


def shaped_relu_moment(rho: Expr, s_plus: Expr, s_minus: Expr) -> Expr:
    """Return E[s(g_a) s(g_b)] of unit Gaussians of correlation rho.

    The activation is s(x) = s_+ max(x, 0) + s_- min(x, 0).

    The four quadrants: max(g, 0) against -min(h, 0) is max(g, 0) against max(-h, 0), whose
    correlation is -rho, at the angle pi - arccos(rho).
    """
    rho, s_plus, s_minus = sympify(rho), sympify(s_plus), sympify(s_minus)
    angle = acos(rho)
    same = half_gaussian_moment(angle)
    opposite = half_gaussian_moment(pi - angle)
    moment = (s_plus**2 + s_minus**2) * same - 2 * s_plus * s_minus * opposite
    return expand(expand(moment, trig=True).subs(sin(angle), sqrt(1 - rho**2)))


def shaped_relu_kernel(rho: Expr, s_plus: Expr, s_minus: Expr) -> Expr:
    """Return the exact kernel at finite n, c E[s(g_a) s(g_b)] with 1/c = E[s(g)^2].

    With s_pm = 1 + c_pm / sqrt(n) the kernel is rho + nu(rho) / n + O(n^(-3/2)).
    """
    variance = (sympify(s_plus) ** 2 + sympify(s_minus) ** 2) / 2
    return shaped_relu_moment(rho, s_plus, s_minus) / variance


def relu_kernel_orders(
    rho: Expr, c_plus: Expr, c_minus: Expr, order: int, normalised: bool = True
) -> list[Expr]:
    """Return the coefficients of n^0, n^(-1/2), ..., n^(-order/2) of the exact kernel.

    The kernel has the factor c if `normalised` is true.
    """
    epsilon = Symbol("epsilon", positive=True)
    function = shaped_relu_kernel if normalised else shaped_relu_moment
    kernel = function(rho, 1 + c_plus * epsilon, 1 + c_minus * epsilon)
    coefficients = []
    for power in range(order + 1):
        coefficients.append(factor(expand(kernel.subs(epsilon, 0) / factorial(power))))
        kernel = diff(kernel, epsilon)
    return coefficients


def nu(rho: Expr, c_plus: Expr, c_minus: Expr) -> Expr:
    """Derive the drift function of the shaped ReLU, the limit of n (kernel - rho).

    Examples
    --------
    >>> from sympy import Symbol, symbols
    >>> nu(Symbol("rho"), *symbols("c_p c_m")).subs("rho", 0)
    (c_m - c_p)**2/(2*pi)
    """
    return relu_kernel_orders(rho, c_plus, c_minus, order=2)[2]
