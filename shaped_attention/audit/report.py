"""What a check of a module found."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple


class Suspect(NamedTuple):
    """A cause: its kind, the parameters that have it, how large it is, and a sentence.

    `size` orders causes by consequence: the logarithm of a ratio, or a mean in standard deviations.
    """

    kind: str
    where: str
    size: float
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Parameter(NamedTuple):
    """A parameter: its name, matrices, mean, standard deviation, the right one, and the laws."""

    name: str
    matrices: str
    mean: float
    std: float
    expected_std: float
    law: str
    expected_law: str


class Effect(NamedTuple):
    """A number of this draw in its law.

    In its name * stands for the layer, from 0 as in names of parameters; `layer` is None for the
    whole model. `rank` is the share of samples below, in (0, 1); `median`
    is that of the law; `p_value` is corrected for the number of effects.
    """

    name: str
    layer: int | None
    value: float
    median: float
    rank: float
    p_value: float

    @property
    def place(self) -> str:
        """The name with the number of the layer."""
        return self.name.replace("*", str(self.layer))


@dataclass(frozen=True)
class ModelCheck:
    """The result of `check_model`.

    Attributes
    ----------
    suspects
        Causes, in the order of their consequence.
    parameters
        What each parameter is and has.
    effects
        Numbers of this draw as ranks in the law.
    notes
        What was not checked, or allowed for.
    level
        Probability, at most, that a correct module is flagged.
    """

    model: str
    suspects: Sequence[Suspect]
    parameters: Sequence[Parameter] = field(repr=False)
    effects: Sequence[Effect] = field(repr=False)
    notes: Sequence[str] = ()
    level: float = 0.001

    @property
    def ok(self) -> bool:
        """Whether nothing is suspect."""
        return not self.suspects

    def to_json(self) -> str:
        """Return the result as one JSON object; numbers that are not finite are null."""
        rows = {
            x: [y._asdict() for y in getattr(self, x)]
            for x in ("suspects", "parameters", "effects")
        }
        data = asdict(self) | {"ok": self.ok} | rows
        return json.dumps(_finite(data), indent=1, allow_nan=False)

    def __str__(self) -> str:
        """Return the result in words."""
        counted = f"{len(self.parameters)} parameters and {len(self.effects)} effects"
        found = "initialised as" if self.ok else "not as"
        lines = [f"{self.model}: {found} its configuration says ({counted}; level {self.level:g})"]
        lines += [f"  {suspect}" for suspect in self.suspects]
        far = sorted((x for x in self.effects if x.p_value < 0.01), key=lambda x: x.p_value)
        lines += ["effects, the farthest first:"] * bool(far)
        for x in far[:5]:
            lines.append(f"  {x.place}: {x.value:.4g}; median of the law {x.median:.4g}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _finite(data: object) -> object:
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
