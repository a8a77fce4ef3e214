"""The equation for a factor F of V = F F^T, checked by Ito's formula in polynomials of F."""

from __future__ import annotations

from typing import Any

from sympy import QQ, Symbol, symbols
from sympy.polys.matrices import DomainMatrix
from sympy.polys.rings import PolyRing

from symbolic.algebra import vech_pairs
from symbolic.blocks import ShapedAttention
from symbolic.limit import derive
from symbolic.names import GAMMA, TAU


def factor_equation_holds(m: int) -> bool:
    """Return whether V = F F^T has the derived drift and diffusion, as polynomials in F.

    dF = F [ sqrt(k)/2 dZ_1 + gamma^2/(tau_0 m) dZ_2 (F^T C F) ] + [ -k(m+1)/8
    + gamma^2 (1 - gamma^2) |P|^2 / (2 tau_0^2 m^2) ] F dt + gamma^2/(2 m tau_0^2) q (s^T F) dt.
    """
    cold = 1 / TAU
    root = Symbol("sqrt_k")
    ring = PolyRing([GAMMA, cold, root, *symbols(f"F_1:{m * m + 1}")], QQ)
    gamma, inverse_tau, rate, *entries = ring.gens
    domain = ring.to_domain()

    def matrix(rows: list[list[Any]]) -> DomainMatrix:
        return DomainMatrix(
            [[ring(0) + e for e in row] for row in rows], (len(rows), len(rows[0])), domain
        )

    f = matrix([entries[a * m : (a + 1) * m] for a in range(m)])
    v = f * f.transpose()
    centring = matrix([[QQ(int(a == b)) - QQ(1, m) for b in range(m)] for a in range(m)])
    p = centring * v * centring
    norm = sum((e**2 for row in p.to_list() for e in row), ring.zero)
    trace = sum((p[a, a].element for a in range(m)), ring.zero)
    s = matrix([[p[a, a].element - trace * QQ(1, m)] for a in range(m)])
    q = matrix([[v[a, a].element] for a in range(m)])
    strength = gamma**2 * inverse_tau * QQ(1, m)
    inner = f.transpose() * centring * f
    noises = []
    for a in range(m):
        for b in range(a + 1):
            unit = [[ring.zero] * m for _ in range(m)]
            unit[a][b] = unit[b][a] = ring.one
            # Z_1 is symmetric with variance 1 off and 2 on the diagonal.
            noises.append((f * matrix(unit)).scalarmul(rate * QQ(1, 2)))
            if a == b:
                noises.append(noises[-1])
    for a in range(m):
        for b in range(m):
            unit = [[ring.zero] * m for _ in range(m)]
            unit[a][b] = ring.one
            noises.append((f * matrix(unit) * inner).scalarmul(strength))
    first = f.scalarmul(
        rate**2 * QQ(-(m + 1), 8)
        + gamma**2 * (1 - gamma**2) * norm * inverse_tau**2 * QQ(1, 2 * m**2)
    )
    second = (q * s.transpose() * f).scalarmul(gamma**2 * inverse_tau**2 * QQ(1, 2 * m))
    moved = (first + second) * f.transpose()
    drift = moved + moved.transpose()
    for noise in noises:
        drift += noise * noise.transpose()
    changes = []
    for noise in noises:
        half = noise * f.transpose()
        changes.append((half + half.transpose()).to_list())
    limit = derive(ShapedAttention(), m)
    names = {limit.algebra.v_expressions[a, b]: v[a, b].element for a, b in vech_pairs(m)} | {
        GAMMA: gamma,
        cold: inverse_tau,
    }
    images = [names[g] for g in limit.algebra.coefficient_generators]

    def differs(ours: Any, derived: Any) -> bool:
        image = sum(
            (
                _product([g**e for g, e in zip(images, powers, strict=False)], ring.one) * c
                for powers, c in derived.items()
            ),
            ring.zero,
        )
        return bool(_without_root(ours - image, ring, gamma))

    pairs = vech_pairs(m)
    for a, b in pairs:
        if differs(drift[a, b].element, limit.drift_polynomials[a, b].element):
            return False
    for i, (a, b) in enumerate(pairs):
        for j, (c, d) in enumerate(pairs[: i + 1]):
            total = sum((change[a][b] * change[c][d] for change in changes), ring.zero)
            if differs(total, limit.diffusion_polynomials[i, j].element):
                return False
    return True


def _product(factors: list[Any], one: Any) -> Any:
    total = one
    for factor in factors:
        total = total * factor
    return total


def _without_root(polynomial: Any, ring: PolyRing, gamma: Any) -> Any:
    """Replace sqrt(k)^2 by k = gamma^2 (2 - gamma^2); odd powers must cancel."""
    total = ring.zero
    for powers, coefficient in polynomial.items():
        if powers[2] % 2:
            return polynomial
        rest = ring.from_dict({(*powers[:2], 0, *powers[3:]): coefficient})
        total += rest * (gamma**2 * (2 - gamma**2)) ** (powers[2] // 2)
    return total
