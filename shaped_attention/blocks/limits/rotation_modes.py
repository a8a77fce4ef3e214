"""Products of rotated rows as sums of products of rows: the modes of a rotation."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shaped_attention.blocks.limits.numbers import LimitError

Matrix = NDArray[np.float64]

_ROUNDING = 1e-15
"""Eigenvalues of r(x - y), relative to the largest, at which they are rounding."""


def modes_of_table(table: Matrix, share: float) -> tuple[Matrix, ...]:
    """Return the modes of the table that `rotate` takes, and of a share of the columns.

    With r(D) = share mean_j cos(theta_j D) + 1 - share they are matrices E_k (m, m) with

        sum_k E_k[a, b] E_k[c, d] = r((a - b) - (c - d)),

    even or odd functions of a - b: the eigenvectors of the even and the odd part of r(x - y).
    """
    pairs, count = table.shape[1] // 2, len(table)
    turns = table[:, :pairs] + 1j * table[:, pairs:]
    step = turns[min(1, count - 1)] / turns[0]
    if not np.allclose(turns, turns[0] * step ** np.arange(count)[:, None], atol=1e-9):
        raise LimitError("a rotation must turn each token by the same angle more than the last")
    strength = float(np.abs(turns[0, 0])) ** 4
    return _modes(tuple(np.angle(step).tolist()), share, count, strength)


@lru_cache(maxsize=64)
def _modes(
    angles: tuple[float, ...], share: float, tokens: int, strength: float
) -> tuple[Matrix, ...]:
    places = np.arange(tokens)
    turns = np.multiply.outer(np.array(angles), places)
    weight = strength * share / len(angles)
    apart = np.subtract.outer(places, places)
    matrices = []
    for part, rest in ((np.cos, 1.0 - share), (np.sin, 0.0)):
        values, vectors = np.linalg.eigh(weight * part(turns).T @ part(turns) + rest)
        for value, vector in zip(values[::-1], vectors.T[::-1], strict=True):
            if value <= _ROUNDING * tokens:
                continue
            sign = np.sign(vector[np.argmax(np.abs(vector))])
            profile = (sign * math.sqrt(value)) * vector
            entries = profile[np.abs(apart)]
            matrices.append(entries if part is np.cos else entries * np.sign(apart))
    return tuple(matrices)
