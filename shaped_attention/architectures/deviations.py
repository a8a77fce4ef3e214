"""Standard deviations of the weight matrices of a layer."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from shaped_attention.results.plain_arguments import storable


@storable
@dataclass(frozen=True)
class Deviations:
    """Standard deviations of a layer's matrices, by what they make.

    `up` and `down` are the first and last matrices of the MLP. In a gated MLP the activation acts
    on the output of `gate`; otherwise `gate` is unused. `output` is attention's output projection.
    """

    queries: float
    keys: float
    values: float
    output: float
    gate: float
    up: float
    down: float

    def of(self, letter: str) -> float:
        """Return that of q, k, v, o, g, u or d, the letters of `parameter_names`."""
        numbers: tuple[float, ...] = astuple(self)
        return numbers["qkvogud".index(letter)]
