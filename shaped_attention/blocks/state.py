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
    means
        Whether the first column of F_g is h_g, the means of the tokens over the n / g columns of
        the group. F_g consists of the coordinates of X_g / sqrt(n / g) in an orthonormal basis, and
        the first vector of the basis is then 1 / sqrt(n / g) in every entry.
    """

    factors: tuple[Any, ...]
    means: bool = False


def factor_columns(tokens: int, width: int, groups: int, means: bool) -> int:
    """Return the number of columns of the factors in a state."""
    return min(tokens + means, width // groups)


def covariance(state: State) -> Any:
    """Return V (m, m), of the same type as the state's factors."""
    grams = [factor @ factor.mT for factor in state.factors]
    return sum(grams[1:], grams[0]) * (1.0 / len(grams))


def total_factor(state: State) -> Any:
    """Return a factor of V, compressed if it has more columns than rows."""
    factors = state.factors
    if len(factors) == 1:
        return compress(factors[0])
    weight = 1.0 / len(factors) ** 0.5
    return compress(concatenate([weight * factor for factor in factors]))
