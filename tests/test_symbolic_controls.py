"""A wrong formula turns the verdict: negative controls of entries that no other file has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sympy import Integer, KroneckerDelta, Matrix

from symbolic.claims import explosion, particles, proportional_limit, random_layers, transport
from tests.ledger import turned


def twice_the_variance(*angles: Any, right: Any = explosion.conditional_law) -> Any:
    mean, covariance = right(*angles)
    return mean, 2 * covariance


CONTROLS: dict[str, tuple[Any, str, Any]] = {
    "temperature-gives-1/n": (
        # All terms of order 1/n.
        proportional_limit, "term_orders",
        lambda order, right=proportional_limit.term_orders: [
            replace(term, power=Integer(1)) for term in right(order)
        ],
    ),
    "softmax-second-derivative": (
        # No matrix of first derivatives.
        proportional_limit, "_jacobian", lambda s: Matrix.diag(*s) + s * s.T,
    ),
    "attention-temperature": (
        # Weights that do not depend on beta.
        particles, "exp", lambda _z: Integer(1),
    ),
    "kantorovich-relaxation": (
        # All mass on the pairs (i, i), whatever the map.
        transport, "mass_of_the_graph",
        lambda: transport.MASSES[transport.FIRST]
        * KroneckerDelta(transport.FIRST, transport.LAST),
    ),
    "wasserstein-distance": (
        # Were the least cost a distance as it stands.
        transport, "triangle_holds", lambda _power, root: True,
    ),
    "gradient-by-inner-product": (
        # The Euclidean inner product in the place of another.
        transport, "represents",
        lambda candidate, metric, derivative, right=transport.represents: right(
            candidate, Matrix.eye(metric.rows) * 2, derivative
        ),
    ),
    "l2-gradient": (
        transport, "is_l2_gradient",
        lambda density, candidate, dimension, right=transport.is_l2_gradient: right(
            density, 2 * candidate, dimension
        ),
    ),
    "potential-energy-l2-gradient": (
        # Half the change, so that neither candidate fits.
        transport, "change_along",
        lambda candidate, right=transport.change_along: right(candidate) / 2,
    ),
    "random-values-angle": (
        random_layers, "drift",
        lambda *arguments, right=random_layers.drift: 2 * right(*arguments),
    ),
    "revealed-from-both-sides": (
        # The variance of what is not known, twice.
        explosion, "conditional_law", twice_the_variance,
    ),
    "revealed-by-answers": (
        # Images that are longer than they should be.
        explosion, "weights", lambda angle, right=explosion.weights: 2 * right(angle),
    ),
    "revealed-image": (
        # No right angle between what is known and what is not.
        explosion, "turned",
        lambda angle, right=explosion.turned: Matrix([right(angle)[0, :], right(angle)[0, :]]),
    ),
    "relu-kernel": (
        proportional_limit, "shaped_relu_kernel",
        lambda rho, p, q, right=proportional_limit.shaped_relu_kernel: right(rho, p, -q),
    ),
    "gram-flow": (
        particles, "velocity", lambda gram, p: p * gram + (p * gram).T,
    ),
    "equiangular-sa": (
        particles, "rate_of_the_cosine",
        lambda unnormalised, right=particles.rate_of_the_cosine: right(not unnormalised),
    ),
    "equiangular-usa": (
        particles, "rate_of_the_cosine",
        lambda unnormalised, right=particles.rate_of_the_cosine: right(not unnormalised),
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", CONTROLS)
def test_a_wrong_formula_turns_the_verdict(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the right formula is on record (`test_symbolic_claims`)."""
    module, name, wrong = CONTROLS[key]
    monkeypatch.setattr(module, name, wrong)
    assert turned(key)
