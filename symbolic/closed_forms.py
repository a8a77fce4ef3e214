"""Drift and diffusion as matrix formulas, written by hand, with which the derivation is compared.

Notation: m tokens, w the m x m matrix whose row a is 1/m_a on the allowed tokens of a and 0
elsewhere, C_a = diag(w_a) - w_a w_a^T. For full attention m C_a = C = I - 11^T/m, P = C V C,
s = diag P - (tr P / m) 1, q = diag V, u = V s, R = V C V C V / m^2, and

    b = (gamma^2 / tau_0^2) [ |P|_F^2 / m^2 V + (q u^T + u q^T) / (2 m) ],
    Sigma = k Sigma_lin + (gamma^4 / (H tau_0^2)) Att,
    Sigma_lin^{ab,cd} = V_ac V_bd + V_ad V_bc,
    Att^{ab,cd} = V_ac R_bd + V_bd R_ac + V_ad R_bc + V_bc R_ad,

with k = gamma^2 (2 - gamma^2), or 2 gamma^2 with an output projection; H heads. These are the
formulas of Noci et al., The Shaped Transformer (arXiv 2306.17759), in matrix form.
With a mask R depends on the rows, R^{ac} = V C_a V C_c V in the term with V_ac; query biases of
variance sigma^2 add sigma^2 to that V_ac and to q; key biases cancel.
"""

from __future__ import annotations

from collections.abc import Callable

from sympy import QQ, Rational
from sympy.polys.matrices import DomainMatrix

from symbolic.algebra import Algebra, Poly, vech_pairs
from symbolic.blocks import ShapedAttention, ShapedMLP, relu_functions
from symbolic.recursion import Block
from symbolic.series import HALF

LINEAR = "Sigma_lin_ab,cd = V_ac V_bd + V_ad V_bc"

Coefficients = tuple[DomainMatrix, DomainMatrix]


def closed_form(block: Block, algebra: Algebra) -> Coefficients | None:
    """Return drift (m, m) and diffusion (d, d) of a block in the ring; None without a formula."""
    if isinstance(block, ShapedMLP) and block.normalised:
        return _mlp(block, algebra)
    if isinstance(block, ShapedAttention) and _is_shaped(block):
        if block.mask is None and block.centre is None and block.query_bias == 0:
            return _full_attention(block, algebra)
        return _masked_attention(block, algebra)
    return None


def closed_form_in_words(block: Block) -> list[str]:
    """Return the formulas that `closed_form` evaluates as lines of text, which may be empty."""
    if isinstance(block, ShapedMLP) and block.normalised:
        return [
            "b_ab = gamma^2 nu(rho_ab) sqrt(V_aa V_bb), Sigma = 2 gamma^2 Sigma_lin,",
            "nu(r) = (c_plus - c_minus)^2 / (2 pi) (sqrt(1 - r^2) - r arccos r)",
            LINEAR,
        ]
    if not isinstance(block, ShapedAttention) or not _is_shaped(block):
        return []
    rate = "2 gamma^2" if block.output_projection else "gamma^2 (2 - gamma^2)"
    scale = f"({block.heads} tau_0^2)" if block.heads > 1 else "tau_0^2"
    sigma = f"Sigma = {rate} Sigma_lin + gamma^4 / {scale} Att"
    pairings = "Att_ab,cd = V_ac R_bd + V_bd R_ac + V_ad R_bc + V_bc R_ad"
    if block.mask is None and block.centre is None and block.query_bias == 0:
        return [
            "b = (gamma^2 / tau_0^2) [ |P|_F^2 / m^2 V + (q u^T + u q^T) / (2 m) ]",
            sigma,
            LINEAR,
            f"{pairings}, R = V P V / m^2",
            "C = I - 11^T/m, P = C V C, s = diag P - (tr P / m) 1, q = diag V, u = V s",
        ]
    weights = "w_ab = 1/m_a on the allowed tokens of a" if block.centre is None else "w = centre"
    return [
        "b = (gamma^2 / tau_0^2) [ V_Q o T + S V + V S^T ], T_ac = tr(C_a V C_c V)",
        "S_ab = (V_Q)_aa w_ab (h_ab - sum_e w_ae h_ae) / 2, h_ab = V_bb - 2 (w V)_ab",
        sigma,
        LINEAR,
        f"{pairings}, with V_Q for V and R^ac = V C_a V C_c V for R in the term with V_ac",
        f"{weights}, C_a = diag(w_a) - w_a w_a^T, V_Q = V + s_Q 11^T",
    ]


def _is_shaped(block: ShapedAttention) -> bool:
    return block.identity and block.centring and block.temperature_power == HALF


def _linear_rate(block: ShapedAttention, algebra: Algebra) -> Poly:
    gain = algebra[block.gamma] ** 2
    return 2 * gain if block.output_projection else gain * (2 - gain)


def _full_attention(block: ShapedAttention, algebra: Algebra) -> Coefficients:
    m, v = algebra.tokens, algebra.v
    gain, cold = algebra[block.gamma] ** 2, algebra[block.inverse_tau] ** 2
    centring = algebra.matrix([[int(a == b) - Rational(1, m) for b in range(m)] for a in range(m)])
    p = centring * v * centring
    norm = sum((e**2 for row in p.to_list() for e in row), algebra.ring.zero)
    trace = sum((p[a, a].element for a in range(m)), algebra.ring.zero)
    s = algebra.matrix([[p[a, a].element - trace * QQ(1, m)] for a in range(m)])
    q = algebra.matrix([[v[a, a].element] for a in range(m)])
    u = v * s
    outer = q * u.transpose()
    one = algebra.ring.one
    drift = v.scalarmul(norm * QQ(1, m**2))
    drift += (outer + outer.transpose()).scalarmul(one * QQ(1, 2 * m))
    r = (v * p * v).scalarmul(one * QQ(1, m**2))
    extra = gain**2 * cold * QQ(1, block.heads)
    diffusion = _diffusion(
        algebra, _linear_rate(block, algebra), extra, lambda a, c: v[a, c].element, lambda *_: r
    )
    return drift.scalarmul(gain * cold), diffusion


def _masked_attention(block: ShapedAttention, algebra: Algebra) -> Coefficients:
    tokens, v, zero = range(algebra.tokens), algebra.v, algebra.ring.zero
    gain, cold = algebra[block.gamma] ** 2, algebra[block.inverse_tau] ** 2
    bias = algebra[block.query_bias]
    centre = block.centre_in(algebra)
    means = centre * v
    w = [[centre[a, b].element for b in tokens] for a in tokens]
    projections = [
        algebra.matrix([[int(b == d) * row[b] - row[b] * row[d] for d in tokens] for b in tokens])
        for row in w
    ]
    products = [[v * first * v * second for second in projections] for first in projections]

    def query(a: int, c: int) -> Poly:
        return v[a, c].element + bias

    def traced(a: int, c: int) -> Poly:
        return query(a, c) * sum((products[a][c][b, b].element for b in tokens), zero)

    def second_order(a: int) -> list[Poly]:
        scores = [v[b, b].element - 2 * means[a, b].element for b in tokens]
        mean = sum((w[a][b] * scores[b] for b in tokens), zero)
        return [query(a, a) * w[a][b] * (scores[b] - mean) * QQ(1, 2) for b in tokens]

    # E[A_1 V A_1^T]_ac = V_Q,ac tr(C_a V C_c V); with V_Q = V it is the product T o V.
    first = algebra.matrix([[traced(a, c) for c in tokens] for a in tokens])
    moved = algebra.matrix([second_order(a) for a in tokens]) * v
    drift = (first + moved + moved.transpose()).scalarmul(gain * cold)
    r = [[product * v for product in row] for row in products]
    extra = gain**2 * cold * QQ(1, block.heads)
    diffusion = _diffusion(
        algebra, _linear_rate(block, algebra), extra, query, lambda a, c: r[a][c]
    )
    return drift, diffusion


def _mlp(block: ShapedMLP, algebra: Algebra) -> Coefficients:
    gain, zero = algebra[block.gamma] ** 2, algebra.ring.zero
    shape = (algebra[block.c_plus] - algebra[block.c_minus]) ** 2
    diffusion = _diffusion(algebra, 2 * gain, zero, lambda *_: zero, lambda *_: algebra.v)
    return relu_functions(algebra).scalarmul(gain * shape), diffusion


def _diffusion(
    algebra: Algebra,
    linear_rate: Poly,
    extra: Poly,
    query: Callable[[int, int], Poly],
    r: Callable[[int, int], DomainMatrix],
) -> DomainMatrix:
    v = algebra.v

    def entry(a: int, b: int, c: int, d: int) -> Poly:
        linear = v[a, c].element * v[b, d].element + v[a, d].element * v[b, c].element
        pairings = ((a, c, b, d), (b, d, a, c), (a, d, b, c), (b, c, a, d))
        attention = sum(
            (query(i, j) * r(i, j)[k, l].element for i, j, k, l in pairings), algebra.ring.zero
        )
        return linear_rate * linear + extra * attention

    pairs = vech_pairs(algebra.tokens)
    return algebra.matrix([[entry(a, b, c, d) for c, d in pairs] for a, b in pairs])
