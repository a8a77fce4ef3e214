"""A wrong formula turns the verdict: negative controls of entries that no other file has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sympy import Integer, KroneckerDelta, Matrix

from symbolic.claims import (
    gram_flow,
    lazy_weights,
    limits,
    random_values,
    scaled_attention,
    scaling,
    softmax,
    wasserstein_gradient,
)
from symbolic.claims import optimal_transport as transport
from tests.ledger import turned


def twice_the_variance(*angles: Any, right: Any = lazy_weights.conditional_law) -> Any:
    mean, covariance = right(*angles)
    return mean, 2 * covariance


CONTROLS: dict[str, tuple[Any, str, Any]] = {
    "temperature-gives-1/n": (
        # All terms of order 1/n.
        scaling, "term_orders",
        lambda order, right=scaling.term_orders: [
            replace(term, power=Integer(1)) for term in right(order)
        ],
    ),
    "softmax-second-derivative": (
        # No matrix of first derivatives.
        softmax, "_jacobian", lambda s: Matrix.diag(*s) + s * s.T,
    ),
    "attention-temperature": (
        # Weights that do not depend on beta.
        scaled_attention, "exp", lambda _z: Integer(1),
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
        wasserstein_gradient, "represents",
        lambda candidate, metric, derivative, right=wasserstein_gradient.represents: right(
            candidate, Matrix.eye(metric.rows) * 2, derivative
        ),
    ),
    "l2-gradient": (
        wasserstein_gradient, "is_l2_gradient",
        lambda density, candidate, dimension, right=wasserstein_gradient.is_l2_gradient: right(
            density, 2 * candidate, dimension
        ),
    ),
    "potential-energy-l2-gradient": (
        # Half the change, so that neither candidate fits.
        wasserstein_gradient, "change_along",
        lambda candidate, right=wasserstein_gradient.change_along: right(candidate) / 2,
    ),
    "random-values-angle": (
        random_values, "drift",
        lambda *arguments, right=random_values.drift: 2 * right(*arguments),
    ),
    "revealed-from-both-sides": (
        # The variance of what is not known, twice.
        lazy_weights, "conditional_law", twice_the_variance,
    ),
    "revealed-by-answers": (
        # Images that are longer than they should be.
        lazy_weights, "weights", lambda angle, right=lazy_weights.weights: 2 * right(angle),
    ),
    "revealed-image": (
        # No right angle between what is known and what is not.
        lazy_weights, "turned",
        lambda angle, right=lazy_weights.turned: Matrix([right(angle)[0, :], right(angle)[0, :]]),
    ),
    "relu-kernel": (
        limits, "shaped_relu_kernel",
        lambda rho, p, q, right=limits.shaped_relu_kernel: right(rho, p, -q),
    ),
    "gram-flow": (
        gram_flow, "velocity", lambda gram, p: p * gram + (p * gram).T,
    ),
    "equiangular-sa": (
        gram_flow, "rate_of_the_cosine",
        lambda unnormalised, right=gram_flow.rate_of_the_cosine: right(not unnormalised),
    ),
    "equiangular-usa": (
        gram_flow, "rate_of_the_cosine",
        lambda unnormalised, right=gram_flow.rate_of_the_cosine: right(not unnormalised),
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", CONTROLS)
def test_a_wrong_formula_turns_the_verdict(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the right formula is on record (`test_symbolic_claims`)."""
    module, name, wrong = CONTROLS[key]
    monkeypatch.setattr(module, name, wrong)
    assert turned(key)
