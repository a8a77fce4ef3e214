"""Claims on blocks whose output is normalised (Post-RMS), and on the factor of R."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Matrix, Rational, Symbol, expand, eye, simplify, sqrt, symbols, trace

from symbolic.algebra import vech
from symbolic.blocks import ShapedAttention
from symbolic.claims.ito import Ito, vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven, refuted, tested
from symbolic.claims.normalised import (
    CENTRED,
    PAIRS,
    R,
    Values,
    drift_of_correlation,
    linear_diffusion,
    post_norm_drift,
    post_norm_layer,
    symbolic_diffusion,
    symbolic_drift,
)
from symbolic.layer_step import STEP, average, layer_orders
from symbolic.limit import derive

ORDER_OF_VECH = ("aa", "ab", "bb")
"""The entries of a covariance of two tokens in the order of half-vectorisation."""


def _attention_at_unit_diagonal() -> tuple[Expr, Values, Values]:
    """Return the drift of R by Ito's formula in the derived limit, and b and Sigma, at V = R."""
    limit = derive(ShapedAttention(), 2)
    entries = vech(limit.algebra.v_expressions)
    at_r = dict(zip(entries, (1, R, 1), strict=True))
    drift = Ito(limit).drift(entries[1] / sqrt(entries[0] * entries[2])).subs(at_r)
    b = dict(zip(ORDER_OF_VECH, vech(limit.drift.subs(at_r)), strict=True))
    sigma = {
        x + y: limit.diffusion[i, j].subs(at_r)
        for i, x in enumerate(ORDER_OF_VECH)
        for j, y in enumerate(ORDER_OF_VECH)
    }
    return drift, b, sigma


def _drift() -> Finding:
    b, sigma = symbolic_drift(), symbolic_diffusion()
    layer = post_norm_layer(b)
    drift, b_attention, sigma_attention = _attention_at_unit_diagonal()
    return proven(
        "Taylor expansion of V'_ab / sqrt(V'_aa V'_bb) in 1/sqrt n, averaged; an entry involves "
        "two tokens, so this covers any m; the same by Ito's formula in the derived limit of "
        "attention, m = 2",
        vanishes(drift_of_correlation(layer, sigma) - post_norm_drift(b, sigma)),
        vanishes(layer_orders(layer, 1)[1] - _projected(dict(zip(PAIRS, CENTRED, strict=True)))),
        simplify(drift - post_norm_drift(b_attention, sigma_attention)) == 0,
    )


def _projected(values: Values) -> Expr:
    """Return the derivative of R along a change of V at V = R."""
    return values["ab"] - R * (values["aa"] + values["bb"]) / 2


def _without_second_order() -> Finding:
    nothing: Values = dict.fromkeys(PAIRS, Rational(0))
    k = Symbol("k", positive=True)
    derived = drift_of_correlation(post_norm_layer(nothing), linear_diffusion(k))
    return refuted(
        "a linear branch, b = 0 and Sigma = k Sigma_lin: the stated drift is 0, the derived one "
        f"{derived.factor()}",
        claim_fails=_projected(nothing) == 0 and derived != 0,
        correction_holds=vanishes(derived - post_norm_drift(nothing, linear_diffusion(k)))
        and vanishes(derived + k * R * (1 - R**2) / 2),
    )


def normalised_row_drift(size: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return Ito's term in u + dg over its length, for |u| = 1, with u and S = E[dg dg^T] / dt.

    |u + s z|^2 = 1 + 2 s u.z + s^2 |z|^2 uses |u| = 1; the rest is an identity in u and S.
    """
    u = Matrix(symbols(f"u_1:{size + 1}", real=True))
    z = Matrix(symbols(f"z_1:{size + 1}", real=True))
    covariance = Matrix(
        size, size, lambda i, j: Symbol(f"S_{min(i, j) + 1}{max(i, j) + 1}", real=True)
    )
    length = sqrt(1 + 2 * STEP * (u.T * z)[0] + STEP**2 * (z.T * z)[0])
    place = {symbol: i for i, symbol in enumerate(z)}
    terms = [
        average(layer_orders((u[i] + STEP * z[i]) / length)[2], list(z), _entry(covariance, place))
        for i in range(size)
    ]
    return Matrix(terms), u, covariance


def _entry(covariance: Matrix, place: dict[Symbol, int]) -> Any:
    return lambda x, y: covariance[place[x], place[y]]


def row_noise(size: int) -> tuple[Matrix, Matrix, Matrix, Expr, Expr]:
    """Return S of a row u^T (sqrt(k)/2 Z_1 + c Z_2 Q) of dF with u, Q, k and c.

    Z_1 is symmetric with variance 1 off the diagonal and 2 on it, Z_2 has independent entries.
    """
    k, c = symbols("k c", positive=True)
    u = Matrix(symbols(f"u_1:{size + 1}", real=True))
    q = Matrix(size, size, lambda i, j: Symbol(f"Q_{min(i, j) + 1}{max(i, j) + 1}", real=True))
    total = Matrix.zeros(size, size)
    for i in range(size):
        for j in range(size):
            unit = Matrix.zeros(size, size)
            unit[i, j] = 1
            row = u.T * unit * q * c
            total += row.T * row
            if i <= j:
                symmetric = unit + unit.T if i < j else unit * sqrt(2)
                row = u.T * symmetric * sqrt(k) / 2
                total += row.T * row
    return total, u, q, k, c


def _row_form(size: int) -> list[bool]:
    term, u, covariance = normalised_row_drift(size)
    projection = eye(size) - u * u.T
    radial = trace(covariance) - (u.T * covariance * u)[0]
    general = -projection * covariance * u - radial * u / 2
    noise, u, q, k, c = row_noise(size)
    # On the sphere: the last coordinate enters through its square and itself.
    squares = sum(entry**2 for entry in u[:-1])
    last = u[size - 1]

    def on_sphere(matrix: Matrix) -> Matrix:
        reduced = matrix.applyfunc(lambda e: expand(e).collect(last))
        return reduced.applyfunc(lambda e: _reduced(e, last, 1 - squares))

    moved = q * u
    stated = -(c**2) * projection * q * moved - (
        k * Rational(size - 1, 4) + c**2 * (trace(q * q) - (moved.T * moved)[0])
    ) * (u / 2)
    entries = {covariance[i, j]: noise[i, j] for i in range(size) for j in range(i + 1)}
    attention = term.subs(entries, simultaneous=True)
    return [
        (term - general).applyfunc(expand).is_zero_matrix,
        on_sphere(attention - stated).is_zero_matrix,
    ]


def _reduced(expression: Expr, variable: Symbol, square: Expr) -> Expr:
    """Return `expression` with variable^2 replaced by `square`, expanded."""
    total = Rational(0)
    for (power,), coefficient in expand(expression).as_poly(variable).terms():
        total += coefficient * square ** (power // 2) * variable ** (power % 2)
    return expand(total)


def _rows() -> Finding:
    return tested(
        "Taylor expansion of (u + s z)/|u + s z| in s for |u| = 1, averaged over z; the noise of a "
        "row of `factor-equation`, m = 2, 3",
        *_row_form(2),
        *_row_form(3),
    )


CLAIMS = [
    Claim(
        "post-rms-drift",
        "With Post-RMS the drift of R_ab is N[b, Sigma] = b_ab - R_ab (b_aa + b_bb)/2 - "
        "(Sigma_ab,aa + Sigma_ab,bb)/2 + R_ab [3 (Sigma_aa,aa + Sigma_bb,bb)/8 + Sigma_aa,bb/4], "
        "and its noise is dM_ab - R_ab (dM_aa + dM_bb)/2; b, Sigma and dM are those without the "
        "norm at V = R.",
        r"$N[b,\Sigma]_{ab} = b_{ab}-\frac{R_{ab}}2(b_{aa}+b_{bb})-\frac12(\Sigma_{ab,aa}+"
        r"\Sigma_{ab,bb})+R_{ab}[\frac38(\Sigma_{aa,aa}+\Sigma_{bb,bb})+\frac14\Sigma_{aa,bb}]$",
        Verdict.PROVEN,
        _drift,
    ),
    Claim(
        "post-rms-projected-drift",
        "With Post-RMS the drift of R_ab is the projected one, b_ab - R_ab (b_aa + b_bb)/2.",
        r"$b_{ab}-\frac{R_{ab}}2(b_{aa}+b_{bb})$",
        Verdict.FALSE,
        _without_second_order,
        "Ito's terms are missing: with a linear branch, where b = 0, the drift is -(k/2) "
        "R_ab (1 - R_ab^2).",
        r"linear branch: $-\frac k2R_{ab}(1-R_{ab}^2)$",
    ),
    Claim(
        "post-rms-factor",
        "A row u of the factor of R, |u| = 1, solves du = Pi dg - [Pi S u + (tr S - u^T S u) u/2] "
        "dt with Pi = I - u u^T and S dt the covariance of dg. For attention, c = gamma^2/(tau_0 m "
        "sqrt H) and Q = F^T C F, the bracket is c^2 Pi Q^2 u + [k (m - 1)/4 + c^2 (tr Q^2 - "
        "|Q u|^2)] u/2.",
        r"$du=\Pi\,dg-[c^2\Pi Q^2u+\frac12(\frac{k(m-1)}4+c^2(\mathrm{tr}\,Q^2-|Qu|^2))u]dt$",
        Verdict.TESTED,
        _rows,
    ),
]
