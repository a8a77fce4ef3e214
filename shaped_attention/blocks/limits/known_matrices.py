"""The small matrices of a derivation, each made once, and the results of operations on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any

import numpy as np

from shaped_attention.blocks.limits.numbers import OUTSIDE, LimitError, Point, identity_of
from shaped_attention.blocks.limits.small import Array, Matrix, Small

_ZERO = 1e-13
"""Largest entry of a shadow that is rounding."""

_SAME = 1e-11
"""Relative difference of shadows of the same matrix."""


class KnownMatrices:
    """Matrices by their shadows.

    Attributes
    ----------
    results
        What operations have given, by `key_of`, with their arguments.
    count
        The number of matrices.
    """

    def __init__(self) -> None:
        self.results: dict[Any, tuple[Matrix, tuple[Any, ...]]] = {}
        self._places: dict[Any, dict[Small, float]] = {}
        self.count = 0

    def constant(self, entries: Any) -> Matrix:
        """Return a matrix that does not depend on V."""
        return self.known(np.array(entries, dtype=np.float64), None)

    def zeros(self, shape: tuple[int, int]) -> Small:
        """Return zeros as a matrix, where a function needs a point."""
        return Small(np.zeros(shape))

    def identity(self, size: int) -> Small:
        """Return the identity matrix."""
        found = self.constant(np.eye(size))
        assert found is not None
        return found

    def ones(self, rows: int, columns: int) -> Small:
        """Return a matrix of ones."""
        found = self.constant(np.ones((rows, columns)))
        assert found is not None
        return found

    def known(self, shadow: Array, make: Callable[[Point], Any] | None) -> Matrix:
        """Return the matrix with this shadow that exists already, or a new one; None for zero."""
        if not np.isfinite(shadow).all():
            raise LimitError(OUTSIDE)
        if not np.abs(shadow).max(initial=0.0) > _ZERO:
            return None
        found = self.alike(shadow, make is None)
        if found is not None:
            return found
        new = Small(shadow, make, self.count)
        self._places.setdefault(shadow.shape, {})[new] = _place(shadow)
        self.count += 1
        return new

    def alike(self, shadow: Array, constant: bool = False) -> Matrix:
        """Return the matrix with this shadow, if there is one; a constant one for a constant."""
        place = _place(shadow)
        for x, other in self._places.get(shadow.shape, {}).items():
            if abs(place - other) > _SAME * (1.0 + abs(place)) or (constant and not x.constant):
                continue
            if (np.abs(x.shadow - shadow) <= _ZERO + _SAME * np.abs(shadow)).all():
                return x
        return None

    def result(self, name: Hashable, args: tuple[Any, ...], value: Matrix) -> None:
        """Say what an operation gives."""
        self.results[key_of(name, args)] = value, args


@lru_cache(maxsize=256)
def _weights(size: int) -> Array:
    """Return numbers with which a sum of entries tells matrices apart."""
    return np.random.default_rng(size).uniform(0.5, 1.5, size) / size


def _place(shadow: Array) -> float:
    return float(shadow.ravel() @ _weights(shadow.size))


def key_of(name: Any, args: tuple[Any, ...]) -> Any:
    """Return what tells an operation on arguments from others."""
    return name, *(id(x) if isinstance(x, Small) else identity_of(x) for x in args)
