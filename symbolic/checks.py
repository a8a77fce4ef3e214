"""Checks of arguments: one sentence with the argument, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence

Mask = None | str | Sequence[Sequence[bool | int]]
"""None (every token sees every token), "causal", or m rows of m booleans."""


def check_count(name: str, value: object, at_least: int = 1) -> int:
    """Return `value`; raise ValueError unless it is an integer >= `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ValueError(f"{name} must be an integer >= {at_least}; got {value!r}")
    return value


def check_tokens(tokens: object) -> int:
    """Return the number of tokens m; raise ValueError unless it is an integer >= 1."""
    return check_count("tokens", tokens)


def allowed_sets(mask: Mask, tokens: int) -> tuple[tuple[int, ...], ...]:
    """Return, for each row of attention, the tokens (from 0) that it may attend to.

    Raises
    ------
    ValueError
        If `mask` is not None, "causal" or m rows of m booleans, each row with a true entry.
    """
    if mask is None:
        return tuple(tuple(range(tokens)) for _ in range(tokens))
    if isinstance(mask, str):
        if mask != "causal":
            raise ValueError(f"mask must be None, 'causal' or rows of booleans; got {mask!r}")
        return tuple(tuple(range(row + 1)) for row in range(tokens))
    try:
        rows = [list(row) for row in mask]
    except TypeError:
        raise ValueError(f"mask must be None, 'causal' or rows of booleans; got {mask!r}") from None
    if len(rows) != tokens or any(len(row) != tokens for row in rows):
        shape = (len(rows), *{len(row) for row in rows})
        raise ValueError(f"mask must have shape ({tokens}, {tokens}); got {shape}")
    if any(entry not in (0, 1) for row in rows for entry in row):
        raise ValueError("mask must have boolean entries")
    allowed = tuple(tuple(b for b, entry in enumerate(row) if entry) for row in rows)
    for a, columns in enumerate(allowed):
        if not columns:
            raise ValueError(f"mask must let each token see at least one token; row {a} is empty")
    return allowed
