"""Rotations of queries and keys by positions (RoPE), and the kernel of their scores.

Tokens have the positions 0, ..., m - 1. A rotation turns pairs of columns of a head by the
position times an angle theta_j (RoPE; Su et al., arXiv 2104.09864), so that

    E[S_ab S_cd] = V_ac V_bd r(b - a - d + c),    r(D) = share mean_j cos(theta_j D) + 1 - share

for the scores S, where `share` of the columns is rotated.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import check_choice, check_count, check_positive, is_number, with_types
from shaped_attention.numerics.primitives import M, rotate

Angles = tuple[float, ...]
Matrix = NDArray[np.float64]

SCALINGS = ("linear", "llama3")

_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_ROUNDING = 1e-15
"""Eigenvalues of r(x - y), relative to the largest, at which they are rounding."""


@with_types
def rope_angles(
    base: float | int,
    size: int,
    scaling: str | None = None,
    *,
    factor: float | int | None = None,
    low_freq_factor: float | int | None = None,
    high_freq_factor: float | int | None = None,
    original_max_position_embeddings: int | None = None,
) -> NDArray[np.float64]:
    """Return the angles by which RoPE turns pairs of columns per position, for `rope`.

    Parameters
    ----------
    base
        Base of the angles base^(-2j / size), j = 0, ..., size / 2 - 1.
    size
        Number of columns that are rotated, an even number.
    scaling
        None; "linear" (all angles are divided by `factor`); or "llama3" (angles with wavelengths
        above original_max_position_embeddings / low_freq_factor are divided by `factor`, those
        below original_max_position_embeddings / high_freq_factor are kept, with a linear
        interpolation in the frequency between them).
    factor, low_freq_factor, high_freq_factor, original_max_position_embeddings
        Parameters of the scaling, with the names of a model's configuration.

    Raises
    ------
    ValueError
        If an argument is outside its range, missing, or not one of the scaling's. Scalings that
        depend on the number of tokens or change the size of the scores (YaRN, LongRoPE, dynamic
        NTK) are read from configurations (`model_from_config`).

    Examples
    --------
    >>> rope_angles(10_000.0, 4)
    array([1.  , 0.01])
    """
    check_positive("base", base)
    check_count("size", size)
    if size % 2:
        raise ValueError(f"size={size}: an even number of columns is needed")
    given = {
        "factor": factor,
        "low_freq_factor": low_freq_factor,
        "high_freq_factor": high_freq_factor,
        "original_max_position_embeddings": original_max_position_embeddings,
    }
    if scaling is not None:
        check_choice("scaling", scaling, SCALINGS)
    known = {None: (), "linear": ("factor",), "llama3": _LLAMA3}[scaling]
    for name, value in given.items():
        if name in known:
            check_positive(name, value)  # type: ignore[arg-type]
        elif value is not None:
            raise ValueError(f"{name}={value!r}: None is needed if scaling={scaling!r}")
    angles = float(base) ** (-np.arange(0, size, 2) / size)
    if factor is None:
        return angles
    if scaling == "linear":
        return angles / factor
    assert low_freq_factor is not None
    assert high_freq_factor is not None
    assert original_max_position_embeddings is not None
    if high_freq_factor <= low_freq_factor:
        raise ValueError(
            f"high_freq_factor={high_freq_factor!r}: a number above low_freq_factor="
            f"{low_freq_factor!r} is needed"
        )
    turns = original_max_position_embeddings * angles / (2.0 * math.pi)
    kept = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0.0, 1.0)
    return angles * (kept + (1.0 - kept) / factor)


def checked_rope(rope: Any, name: str = "rope") -> float | Angles | None:
    """Return None, the base as a float, or the angles as a tuple.

    Raises
    ------
    ValueError
        If it is neither a positive number nor a list of finite angles.
    """
    if rope is None:
        return None
    needed = "None, a positive base, or a list of finite angles is needed"
    if is_number(rope):
        if not (math.isfinite(rope) and rope > 0.0):
            raise ValueError(f"{name}={rope!r}: {needed}")
        return float(rope)
    try:
        angles = np.asarray(rope, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={rope!r}: {needed}") from None
    if isinstance(rope, str | bool) or angles.ndim != 1 or angles.size == 0:
        raise ValueError(f"{name}={rope!r}: {needed}")
    if not np.isfinite(angles).all():
        raise ValueError(f"{name}={rope!r}: {needed}")
    return tuple(angles.tolist())


def rotated_size(size: int, share: float) -> int:
    """Return the number of columns of a head that are rotated.

    Raises
    ------
    ValueError
        If `share` of the columns is not an even number of them.
    """
    rotated = round(share * size)
    if not math.isclose(rotated, share * size, rel_tol=1e-9, abs_tol=1e-9) or rotated % 2:
        raise ValueError(
            f"rope_share={share!r}: a share of {size} columns that is an even number is needed"
        )
    return rotated


def angles_of(rope: float | Angles, size: int, share: float) -> Matrix:
    """Return the angle of each rotated pair of columns of a head with `size` columns.

    Raises
    ------
    ValueError
        If the angles do not turn equal numbers of pairs.
    """
    rotated = rotated_size(size, share)
    if isinstance(rope, float):
        return rope_angles(rope, rotated) if rotated else np.zeros(0)
    pairs = rotated // 2
    if pairs % len(rope):
        raise ValueError(
            f"rope has {len(rope)} angles; a number that divides the {pairs} pairs of rotated "
            "columns of a head is needed"
        )
    return np.repeat(np.array(rope), pairs // len(rope))


def turned(rows: M, angles: Matrix, factor: float = 1.0) -> M:
    """Rotate the rows of a head: columns j and j + J by theta_j times the position of the row.

    These columns, and no others, are multiplied by the factor.
    """
    if not len(angles):
        return rows
    return rotate(rows, _turns(tuple(angles), rows.shape[-2], float(factor)))


@lru_cache(maxsize=64)
def _turns(angles: Angles, tokens: int, factor: float) -> Matrix:
    """Return the cosines, then the sines (tokens, 2 J), of the angles times 0, 1, 2, ..."""
    turns = np.outer(np.arange(tokens), angles)
    table = factor * np.concatenate([np.cos(turns), np.sin(turns)], axis=1)
    table.flags.writeable = False
    return table


def kernel(angles: Angles, share: float, tokens: int) -> Matrix:
    """Return r(a - b) (m, m)."""
    apart = np.subtract.outer(np.arange(tokens), np.arange(tokens))
    turns = np.cos(np.multiply.outer(np.array(angles), apart)).mean(0)
    return share * turns + (1.0 - share)


@lru_cache(maxsize=64)
def modes(angles: Angles, share: float, tokens: int) -> tuple[tuple[Matrix, float], ...]:
    """Return matrices E_k (m, m) with sum_k E_k[a, b] E_k[c, d] = r((a - b) - (c - d)).

    E_k[a, b] is an even or an odd function of a - b; each comes with its parity, 1 or -1. They are
    the eigenvectors of the even and the odd part of r(x - y).
    """
    places = np.arange(tokens)
    turns = np.multiply.outer(np.array(angles), places)
    weight = share / len(angles)
    apart = np.subtract.outer(places, places)
    found = []
    for parity, part, rest in ((1.0, np.cos, 1.0 - share), (-1.0, np.sin, 0.0)):
        values, vectors = np.linalg.eigh(weight * part(turns).T @ part(turns) + rest)
        for value, vector in zip(values[::-1], vectors.T[::-1], strict=True):
            if value <= _ROUNDING * tokens:
                continue
            sign = np.sign(vector[np.argmax(np.abs(vector))])
            profile = (sign * math.sqrt(value)) * vector
            entries = profile[np.abs(apart)]
            entries = entries if parity > 0.0 else entries * np.sign(apart)
            entries.flags.writeable = False
            found.append((entries, parity))
    return tuple(found)
