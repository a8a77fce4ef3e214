"""Standard deviations of the weight matrices of a layer."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from shaped_attention.results.plain_arguments import storable


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
        numbers: tuple[float, ...] = astuple(self)
        return numbers["qkvogud".index(letter)]
