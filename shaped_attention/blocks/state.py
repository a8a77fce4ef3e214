"""The state that a process carries from layer to layer, and its covariance."""

from __future__ import annotations

from typing import Any, NamedTuple

from shaped_attention.numerics.primitives import compress, concatenate


class State(NamedTuple):
    """The state of a chain, which determines the law of the next layer.

    Attributes
    ----------
    factors
        Factors F_g (m, c) of the Grams V_g of g groups of columns, V = (1/g) sum of V_g. One group
        suffices unless the blocks treat the groups separately, as unmixed heads do.
    """

    factors: tuple[Any, ...]


def covariance(state: State) -> Any:
    """Return V (m, m), of the same type as the state's factors."""
    grams = [factor @ factor.mT for factor in state.factors]
    return sum(grams[1:], grams[0]) * (1.0 / len(grams))


def total_factor(state: State) -> Any:
    """Return a factor of V, compressed if it has more columns than rows."""
    factors = state.factors
    if len(factors) == 1:
        return factors[0]
    weight = 1.0 / len(factors) ** 0.5
    return compress(concatenate([weight * factor for factor in factors]))
