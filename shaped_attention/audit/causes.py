"""Causes in words: which parameters differ from their law together, and in which way.

Roles with one ratio are one cause, and so is a layer with most of its parameters wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from shaped_attention.audit.entry_laws import in_words
from shaped_attention.audit.parameters import Section, starred
from shaped_attention.audit.report import Suspect

_MAKES = {
    "q": "queries", "k": "keys", "v": "attention's branch", "o": "attention's branch",
    "g": "gates", "u": "the MLP's branch", "d": "the MLP's branch", "w": "the embedding",
    "p": "positions", "y": "types of tokens", "h": "the logits", "f": "the transform of the head",
}  # fmt: skip
"""What a matrix scales."""


class Cause(NamedTuple):
    """All layers of a role, what is wrong with them, and the trend.

    `ratio` is the mean logarithm of the standard deviation over the right one, up to `room`.
    """

    role: list[Section]
    words: list[str]
    trend: str
    ratio: float
    room: float


def merged(causes: Iterable[Cause]) -> list[Suspect]:
    """Return one suspect for all roles with one ratio."""
    groups: list[list[Cause]] = []
    for cause in causes:
        for group in groups:
            alike = cause.words == group[0].words and cause.trend == group[0].trend
            if alike and all(abs(cause.ratio - x.ratio) <= cause.room + x.room for x in group):
                group.append(cause)
                break
        else:
            groups.append([cause])
    return [_whole(group) for group in groups]


def _whole(group: list[Cause]) -> Suspect:
    """Return the suspect of some roles; parts of a parameter have its name if all are there."""
    sections = [x for cause in group for x in cause.role]
    parts = sorted({x.group for x in sections})
    names = [(name, list(own)) for name, own in groupby(parts, _whole_name)]
    where = " and ".join(own[0] if len(own) == 1 else name for name, own in names)
    ratio = float(np.mean([cause.ratio for cause in group]))
    what = _said(sections, group[0].words, group[0].trend)
    return Suspect(group[0].words[0], where, _size(sections, ratio), what)


def _whole_name(name: str) -> str:
    return name.partition("[")[0]


def single(wrong: dict[str, list[str]], sections: Sequence[Section]) -> list[Suspect]:
    """Return the suspects of single layers."""
    rows = [x for x in sections if x.name in wrong]
    found = []
    for layer in sorted({-1 if x.layer is None else x.layer for x in rows}):
        here = [x for x in rows if (-1 if x.layer is None else x.layer) == layer]
        every = [x for x in sections if x.layer == layer]
        if layer >= 0 and len(here) > len(every) / 2 and len({_module(x) for x in here}) > 1:
            parts = [here]
        else:
            parts = [list(g) for _, g in groupby(sorted(here, key=_module), _module)]
        for part in parts:
            words = list(dict.fromkeys(word for x in part for word in wrong[x.name]))
            main = max(part, key=lambda x: x.law.std)
            where = part[0].name if len(part) == 1 else f"{_common([x.name for x in part])}*"
            scale = _log_ratio(main)
            found.append(Suspect(words[0], where, _size(part, scale), _said([main], words, "")))
    alike: dict[tuple[str, str], list[Suspect]] = {}
    for x in found:
        alike.setdefault((starred(x.where)[0], x.what), []).append(x)
    return [
        group[0] if len(group) == 1
        else group[0]._replace(where=where, what=f"{what}, in {len(group)} layers")
        for (where, what), group in alike.items()
    ]  # fmt: skip


def _module(section: Section) -> str:
    return _whole_name(section.name).rpartition(".")[0]


def _common(names: Sequence[str]) -> str:
    low, high = min(names), max(names)
    count = next((k for k, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[: low[:count].rfind(".") + 1]


def _log_ratio(x: Section) -> float:
    return 0.0 if x.law.std == 0.0 or x.entries.broken else math.log(x.entries.std / x.law.std)


def _size(sections: Sequence[Section], ratio: float) -> float:
    mean = max(abs(x.entries.mean - x.law.mean) / (x.law.std or 1.0) for x in sections)
    broken = any(x.entries.broken and x.law.std for x in sections)
    return math.inf if broken or not math.isfinite(mean) else max(abs(ratio), mean)


def _said(sections: Sequence[Section], words: Sequence[str], trend: str) -> str:
    """Return a sentence about matrices: what they have, what the recipe says, what follows."""
    main = sections[0]
    have, right = (
        _range([x.entries.std for x in sections]), _range([x.law.std for x in sections])
    )  # fmt: skip
    said = []
    if main.law.std == 0.0 or main.entries.broken:
        return " and ".join(dict.fromkeys(words))
    if "scale" in words:
        ratio = math.exp(float(np.mean([_log_ratio(x) for x in sections])))
        times = f"{max(ratio, 1 / ratio):.3g} times too {'large' if ratio > 1 else 'small'}"
        makes = ", ".join(dict.fromkeys(_MAKES[y] for x in sections for y in x.letters))
        grows = f", as {trend}" if trend else ""
        said.append(f"std {have}, recipe says {right}: {times}{grows} ({makes})")
    if "shape" in words:
        law = _default_of(main) or in_words(main.entries)
        said.append(f"law {law}, recipe says {main.law}")
    if "mean" in words:
        means = [x.entries.mean / x.entries.std for x in sections]
        said.append(f"mean {float(np.mean(means)):.3g} standard deviations, recipe says 0")
    return "; ".join(said)


def _default_of(x: Section) -> str:
    """Return the name of PyTorch's default for a linear map if it is this law."""
    own = x.inputs and abs(math.log(x.entries.std * math.sqrt(3.0 * x.inputs))) < 0.05
    return "uniform (PyTorch's default of Linear)" if own and x.entries.most < 2.0 else ""


def _range(numbers: Sequence[float]) -> str:
    low, high = f"{min(numbers):.2g}", f"{max(numbers):.2g}"
    return low if low == high else f"{low} to {high}"


def other_than(x: Section) -> str:
    """Return what a gain or bias has, and what it should have."""
    std = math.sqrt(max(x.entries.variance, 0.0))
    have = x.entries.broken or f"mean {x.entries.mean:.3g}, std {std:.3g}"
    return f"{have}; recipe says all are {x.law.mean:g}"
