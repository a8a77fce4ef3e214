"""Claims on the scalar equations inside the limit, which decide whether V explodes.

du = (alpha u^3 - mu u) dt + sqrt(2 k u^2 + delta u^4) dB for a quadratic form u of V. All drifts
and diffusions here are derived from the recursion of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sympy import Expr, Rational, Symbol, det, exp, expand, symbols

from symbolic.algebra import Poly, symbolic_covariance, vech, vech_pairs
from symbolic.blocks import ShapedAttention, ShapedMLP, relu_function
from symbolic.claims.ito import Ito, vanishes
from symbolic.claims.ledger import Claim, Finding, Verdict, proven
from symbolic.claims.live_token import SHARE, LiveToken, at_live_token
from symbolic.limit import Layer, derive
from symbolic.names import GAMMA, TAU

MLP_GAMMA = Symbol("gamma_mlp", positive=True)
MLP = ShapedMLP(gamma="gamma_mlp")
PAIR = symbolic_covariance(2)
GAP = PAIR[0, 0] - 2 * PAIR[0, 1] + PAIR[1, 1]
"""u = V_00 - 2 V_01 + V_11 of two tokens."""

LAYERS = ((1, False), (2, False), (3, False), (2, True))
"""Numbers of heads, with and without an output projection. The engine makes the diffusion affine in
1/H, so equality at two values of H is equality for all."""


@dataclass(frozen=True)
class Law:
    """Coefficients of du = alpha u^3 dt + sqrt(2 k u^2 + delta u^4) dB."""

    alpha: Expr
    delta: Expr
    rate: Expr

    @property
    def ratio(self) -> Expr:
        """a = alpha / delta."""
        return self.alpha / self.delta


def linear_rate(output_projection: bool = False) -> Expr:
    """Return k of attention alone."""
    return 2 * GAMMA**2 if output_projection else GAMMA**2 * (2 - GAMMA**2)


def two_tokens(heads: Any, output_projection: bool = False) -> Law:
    """Return the stated coefficients for u of two tokens under full attention."""
    return Law(
        GAMMA**2 / (16 * TAU**2),
        GAMMA**4 / (4 * TAU**2 * heads),
        linear_rate(output_projection),
    )


def one_live_token(share: Any, heads: Any, output_projection: bool = False) -> Law:
    """Return the stated coefficients for u = V_jj at V = V_jj e_j e_j^T; p = `share`."""
    rest = 1 - share
    return Law(
        GAMMA**2 * share * rest * (share * rest + rest - share) / TAU**2,
        4 * GAMMA**4 * share**2 * rest**2 / (TAU**2 * heads),
        linear_rate(output_projection),
    )


def has_law(layer: Layer, law: Law, form: Expr, tokens: int = 2) -> bool:
    """Return whether a form of V has the drift and quadratic variation of a law, for all V."""
    ito = Ito(derive(layer, tokens))
    drift = ito.drift(form) - law.alpha * form**3
    variation = ito.covariation(form, form) - 2 * law.rate * form**2 - law.delta * form**4
    return bool(expand(drift) == 0 and expand(variation) == 0)


def _two_tokens() -> Finding:
    return proven(
        "derived drift and quadratic variation of u are polynomials in u alone: H = 1, 2, 3, and "
        "H = 2 with W_O, where k = 2 gamma^2; the diffusion is affine in 1/H, so two values of H "
        "decide",
        *[
            has_law(ShapedAttention(heads=h, output_projection=w), two_tokens(h, w), GAP)
            for h, w in LAYERS
        ],
    )


def repeats(copies: int, layer: Layer) -> bool:
    """Return whether two tokens, each repeated, have the limit of the two tokens."""
    many, few = derive(layer, 2 * copies), derive(layer, 2)
    pairs = vech_pairs(2 * copies)
    of = {pair: vech_pairs(2).index((pair[0] // copies, pair[1] // copies)) for pair in pairs}
    first = many.algebra.ring.ngens - len(pairs)

    def merged(polynomial: Poly) -> Poly:
        """Rename the entries of V by groups; the generators before them are parameters."""
        total = few.algebra.ring.zero
        for exponents, coefficient in polynomial.items():
            powers = [*exponents[:first], 0, 0, 0]
            for pair, power in zip(pairs, exponents[first:], strict=True):
                powers[first + of[pair]] += power
            total += few.algebra.ring.from_dict({tuple(powers): coefficient})
        return total

    return all(
        merged(many.drift_polynomials[pair].element)
        == few.drift_polynomials[vech_pairs(2)[of[pair]]].element
        for pair in pairs
    ) and all(
        merged(many.diffusion_polynomials[i, j].element)
        == few.diffusion_polynomials[of[x], of[y]].element
        for i, x in enumerate(pairs)
        for j, y in enumerate(pairs)
    )


def _two_groups() -> Finding:
    first, second = symbols("y_1 y_2", real=True)
    copies = Symbol("g", positive=True)
    weight = copies * exp(first) / (copies * exp(first) + copies * exp(second))
    return proven(
        "the weights of softmax on g copies of a token add up to its weight among the two tokens, "
        "and the centring g/(2g) is 1/2: A X repeats the rows of two tokens at every width; "
        "derived at m = 4, g = 2: b and Sigma at V (x) 11^T are those of V",
        vanishes((weight - exp(first) / (exp(first) + exp(second))).rewrite(exp)),
        vanishes(copies / (2 * copies) - Rational(1, 2)),
        repeats(2, ShapedAttention()),
        repeats(2, ShapedAttention(heads=2, output_projection=True)),
    )


def live_token_holds(tokens: int, live: int, mask: str | None, value: Rational) -> bool:
    """Return whether v e_j e_j^T keeps its form under attention, and v has the stated law."""
    limit = derive(ShapedAttention(mask=mask), tokens, at_live_token(tokens, live, value))
    drift, diffusion = limit.drift, limit.diffusion
    law = one_live_token(Rational(1, tokens if mask is None else live + 1), 1)
    index = vech_pairs(tokens).index((live, live))
    drift[live, live] -= law.alpha * value**3
    diffusion[index, index] -= 2 * law.rate * value**2 + law.delta * value**4
    return bool(drift.expand().is_zero_matrix and diffusion.expand().is_zero_matrix)


def _one_live_token() -> Finding:
    value = symbolic_covariance(1)[0, 0]
    return proven(
        "one score is left at V = v e_j e_j^T, so row j is a logistic function of it and m enters "
        "through p alone; derived with p as a symbol, for H = 1, 2, 3 and with W_O, and with all "
        "rows at v = 3 for each j at m = 2, 3, 4, full and causal",
        *[
            has_law(LiveToken(heads=h, output_projection=w), one_live_token(SHARE, h, w), value, 1)
            for h, w in LAYERS
        ],
        *[
            live_token_holds(m, j, mask, Rational(3))
            for m in (2, 3, 4)
            for mask in (None, "causal")
            for j in range(m)
        ],
    )


def _mlp_adds_to_the_rate() -> Finding:
    facts = []
    for m in (2, 3):
        limit = derive(MLP, m)
        v = limit.algebra.v_expressions
        functions = [relu_function(v, a, b) for a in range(m) for b in range(a)]
        places = [limit.algebra.ring.symbols.index(function) for function in functions]
        monomials = [
            powers for row in limit.drift_polynomials.to_list() for e in row for powers in e
        ]
        live = dict(zip(vech(v), vech(at_live_token(m, 0, v[0, 0])), strict=True))
        diffusion = limit.diffusion.xreplace(live)
        diffusion[0, 0] -= 4 * MLP_GAMMA**2 * v[0, 0] ** 2
        facts += [
            all(any(powers[place] for place in places) for powers in monomials),
            diffusion.expand().is_zero_matrix,
        ]
    return proven(
        "derived, m = 2, 3: b is a multiple of the functions nu(rho_ab) sqrt(V_aa V_bb), a != b, "
        "which are 0 with one live token (nu is bounded), and Sigma_jj,jj = 4 gamma_mlp^2 V_jj^2 "
        "is the only entry that is left; an entry involves at most four tokens, three of which "
        "are alike",
        *facts,
    )


def rest_of_two_tokens(layer: Layer, law: Law) -> bool:
    """Return whether beta and d = det V / (u/2) have the stated law given u."""
    ito = Ito(derive(layer, 2))
    beta, d = (PAIR[0, 0] - PAIR[1, 1]) / GAP, 2 * det(PAIR) / GAP
    # Written in the entries along w and e, all denominators are powers of x = V_ww = u/2.
    x, y, z = symbols("x y z", positive=True)
    turned = {PAIR[0, 0]: (x + z) / 2 + y, PAIR[1, 1]: (x + z) / 2 - y, PAIR[0, 1]: (z - x) / 2}
    u, rest = 2 * x, z - y**2 / x
    facts = (
        (ito.drift(d), rest * ((law.alpha - law.delta / 4) * u**2 - law.rate)),
        (ito.covariation(d, d), 2 * law.rate * rest**2),
        (ito.drift(beta), 0),
        (ito.covariation(beta, beta), 2 * rest / u * (law.rate + law.delta * u**2 / 4)),
        (ito.covariation(GAP, d), 0),
        (ito.covariation(GAP, beta), 0),
        (ito.covariation(d, beta), 0),
    )
    return all(expand(derived.xreplace(turned) - stated) == 0 for derived, stated in facts)


def _rest_of_two_tokens() -> Finding:
    return proven(
        "Ito's formula with the derived coefficients, as rational functions of V: drift and "
        "variation of d (d log d: drift less by k) and beta, and the three covariations of u, d, "
        "beta, which are 0, so B, W_1, W_2 are independent (Levy); H = 1, 2, and H = 2 with W_O",
        *[
            rest_of_two_tokens(ShapedAttention(heads=h, output_projection=w), two_tokens(h, w))
            for h, w in ((1, False), (2, False), (2, True))
        ],
    )


def determinant_drift(layer: Layer, law: Law) -> Expr:
    """Return the derived drift of det V for two tokens, minus the stated one."""
    drift = Ito(derive(layer, 2)).drift(det(PAIR))
    return expand(drift - det(PAIR) * ((2 * law.alpha - law.delta / 4) * GAP**2 - law.rate))


def _determinant() -> Finding:
    return proven(
        "Ito's formula with the derived coefficients, polynomials in V: H = 1, 2, and H = 2 with "
        "W_O",
        *[
            determinant_drift(ShapedAttention(heads=h, output_projection=w), two_tokens(h, w)) == 0
            for h, w in ((1, False), (2, False), (2, True))
        ],
    )


CLAIMS = [
    Claim(
        "explosion-two-tokens",
        "Two tokens, full attention, H heads: u = V_00 - 2 V_01 + V_11 solves du = alpha u^3 dt + "
        "sqrt(2 k u^2 + delta u^4) dB with alpha = gamma^2/(16 tau_0^2), delta = gamma^4/(4 "
        "tau_0^2 H).",
        r"$m=2$: $du=\alpha u^3dt+\sqrt{2ku^2+\delta u^4}\,dB$, "
        r"$\alpha=\frac{\gamma^2}{16\tau_0^2}$, $\delta=\frac{\gamma^4}{4\tau_0^2H}$",
        Verdict.PROVEN,
        _two_tokens,
    ),
    Claim(
        "explosion-two-groups",
        "With each of two tokens repeated m/2 times, u solves the same equation: V_0 (x) 11^T has "
        "the law of V_0.",
        r"$V_0\otimes11^\top$ has the law of $V_0$",
        Verdict.PROVEN,
        _two_groups,
    ),
    Claim(
        "explosion-live-token",
        "V_0 = v e_j e_j^T keeps its form, and u = V_jj solves the equation with alpha = gamma^2 p "
        "q (p q + q - p)/tau_0^2, delta = 4 gamma^4 p^2 q^2/(tau_0^2 H), q = 1 - p, 1/p the number "
        "of tokens that j sees: m with full, j with causal attention.",
        r"$V_0=ve_je_j^\top$: $\alpha=\frac{\gamma^2pq(pq+q-p)}{\tau_0^2}$, "
        r"$\delta=\frac{4\gamma^4p^2q^2}{\tau_0^2H}$",
        Verdict.PROVEN,
        _one_live_token,
    ),
    Claim(
        "explosion-live-token-mlp",
        "With one live token a shaped ReLU MLP adds 2 gamma_mlp^2 to k and nothing else.",
        r"one live token: the MLP adds $2\gamma_{mlp}^2$ to $k$",
        Verdict.PROVEN,
        _mlp_adds_to_the_rate,
    ),
    Claim(
        "explosion-rest-of-v",
        "Two tokens, w = (1,-1)/sqrt 2, e = (1,1)/sqrt 2, beta = V_we/(u/2), d = det V/(u/2): "
        "d log d = [(alpha - delta/4) u^2 - 2 k] dt + sqrt(2 k) dW_1, d beta = sqrt((2 d/u) (k + "
        "delta u^2/4)) dW_2, with B, W_1, W_2 independent.",
        r"$d\log d=[(\alpha-\frac\delta4)u^2-2k]dt+\sqrt{2k}\,dW_1$, "
        r"$d\beta=\sqrt{\frac{2d}u(k+\frac{\delta u^2}4)}\,dW_2$",
        Verdict.PROVEN,
        _rest_of_two_tokens,
    ),
    Claim(
        "explosion-determinant",
        "Two tokens: det V has the drift ((2 alpha - delta/4) u^2 - k) det V.",
        r"$m=2$: drift of $\det V$ is $((2\alpha-\frac\delta4)u^2-k)\det V$",
        Verdict.PROVEN,
        _determinant,
    ),
]
