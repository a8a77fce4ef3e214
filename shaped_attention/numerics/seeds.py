"""Named streams, and derived seeds: one for each cell, width or replica, from a single seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from shaped_attention.checks import check_count

STREAMS = {
    "network": 0,
    "chain": 1,
    "sde": 2,
    "statistics": 3,
    "derived": 5,
    "sphere": 6,
    "model": 7,
    "lazy": 8,
}
"""Named streams, whose numbers are independent for the same seed. Append only."""


def derived_seed(seed: int, values: Mapping[str, Any], *integers: int) -> int:
    """Return the seed of the part of a study that has these values.

    The seed, a hash of the values, and further integers >= 0 (such as the number of a block of
    samples) enter a `SeedSequence`. The seed of a part is therefore independent of the remaining
    parts, and parts with different values or different seeds share no random numbers. Each sampler
    has its own stream, so the chain and the SDE of a part may use the same seed.

    Parameters
    ----------
    seed
        Seed of the whole study, an integer >= 0.
    values
        Values that identify the part, as plain data by name; 1 and 1.0 are equal.

    Returns
    -------
    An integer below 2^63.

    Raises
    ------
    ValueError
        If the seed is outside its range.
    """
    return seed_from(seed, hashed(values), *integers)


def hashed(values: Mapping[str, Any]) -> tuple[int, ...]:
    """Return a hash of plain data, four integers below 2^32."""
    words = np.frombuffer(hashlib.sha256(canonical(values).encode()).digest(), dtype="<u4")
    return tuple(int(word) for word in words[:4])


def seed_from(seed: int, words: tuple[int, ...], *integers: int) -> int:
    """Return the seed that `derived_seed` returns for values with this hash."""
    check_count("seed", seed, lowest=0)
    sequence = np.random.SeedSequence(int(seed), spawn_key=(STREAMS["derived"], *words, *integers))
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def canonical(values: Any) -> str:
    """Return the text of plain data, the same for 1 and 1.0."""

    def one(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: one(entry) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return [one(entry) for entry in value]
        if isinstance(value, np.generic):
            return one(value.item())
        whole = isinstance(value, float) and abs(value) < 2**53 and value == int(value)
        return int(value) if whole else value

    return json.dumps(one(values), sort_keys=True, default=str)
