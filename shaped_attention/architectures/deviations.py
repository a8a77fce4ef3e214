"""Standard deviations of the weight matrices of a layer."""

from __future__ import annotations

from dataclasses import dataclass

from shaped_attention.results.plain_arguments import storable

_NAMES = {
    "q": "queries", "k": "keys", "v": "values", "o": "output", "g": "gate", "u": "up", "d": "down",
}  # fmt: skip


@storable
@dataclass(frozen=True)
class Deviations:
    """Standard deviations of a layer's matrices, by what they make.

    `up` is the first matrix of the MLP, beside which `gate` is the one whose products go through
    the activation, if the MLP is gated; `output` and `down` end the branches.
    """

    queries: float
    keys: float
    values: float
    output: float
    gate: float
    up: float
    down: float

    def of(self, letter: str) -> float:
        """Return that of q, k, v, o, g, u or d, the letters of `library_names`."""
        number: float = getattr(self, _NAMES[letter])
        return number

    @classmethod
    def alike(cls, std: float, last: float | None = None) -> Deviations:
        """Return equal deviations, but for the matrices that end the branches."""
        last = std if last is None else last
        return cls(std, std, std, last, std, std, last)
