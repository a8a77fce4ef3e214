"""The decision rule: which matrices do not have their law, and the causes by name.

Four tests share the level, each with Bonferroni's correction: equal random numbers in two matrices;
the largest entry, which shows the shape of the law; mean; scale. Shape, mean and scale are tested with all
layers of a role together and by matrix. A role whose layers agree is one cause, and so are roles
with one ratio; otherwise a trend with depth, or single layers, of which one with most of its
parameters wrong is one cause again.

If the model is right, the logarithm of the sample variance of N entries with kurtosis k is that of
chi^2 with 2 N / (k - 1) degrees of freedom, and the largest of N entries is below m with
probability P(|w| < m)^N.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shaped_attention.audit.entry_laws import in_words
from shaped_attention.audit.parameters import Section
from shaped_attention.audit.report import Suspect

Array = NDArray[np.float64]

_TESTS = 4
_FEW = 500
"""Fewer entries say nothing about the shape of their law."""

_LARGEST = 4.5
"""A normal law is cut if no entry is larger; generators of random numbers do not reach much more."""

_MAKES = {
    "q": "queries", "k": "keys", "v": "attention's branch", "o": "attention's branch",
    "g": "gates", "u": "the MLP's branch", "d": "the MLP's branch", "w": "the embedding",
    "p": "positions", "y": "types of tokens", "h": "the logits", "f": "the transform of the head",
}  # fmt: skip
"""What a matrix scales."""


class Estimates(NamedTuple):
    """Differences between matrices of one role and their law, with their standard errors; z."""

    values: Array
    errors: Array
    z: Array


def suspects_of(sections: Sequence[Section], level: float) -> list[Suspect]:
    """Return the causes that the parameters show, at a level for all of them together."""
    fixed = [x for x in sections if x.law.std == 0.0]
    drawn = [x for x in sections if x.law.std > 0.0]
    broken = [x for x in drawn if x.entries.broken]
    wrong = {x.name: [x.entries.broken] for x in broken}
    wrong |= {x.name: [_other_than(x.law.mean, x)] for x in fixed if not _constant(x)}
    drawn = [x for x in drawn if not x.entries.broken]
    share = level / _TESTS
    by_role = [list(rows) for _, rows in groupby(sorted(drawn, key=_role), _role)]
    shapes = _cut_or_heavy(drawn, by_role, share)
    counts = len(by_role), max(1, len(drawn))
    whole: list[_Cause] = []
    for role in by_role:
        scale, mean = _scale(role), _mean(role)
        flags = {x.name: ["shape"] for x in role if x.name in shapes}
        trend = ""
        for words, found in (("scale", scale), ("mean", mean)):
            which, fits = _which(found, [x.layer for x in role], share, counts)
            trend = trend or (fits if words == "scale" else "")
            flags |= {role[k].name: [*flags.get(role[k].name, []), words] for k in which}
        if len(flags) == len(role) or trend:
            said = sorted({word for words in flags.values() for word in words})
            whole.append(_Cause(role, said, trend, scale, _critical(share, counts[0])))
        else:
            wrong |= {name: [*wrong.get(name, []), *words] for name, words in flags.items()}
    return _dependent(drawn, share) + _merged(whole) + _single(wrong, sections)


def _role(section: Section) -> tuple[str, str]:
    return section.group, str(section.law.cut)


def _constant(x: Section) -> bool:
    return (
        x.entries.broken != ""
        and math.isfinite(x.entries.variance)
        and x.entries.mean == x.law.mean
    )


def _critical(level: float, count: int) -> float:
    return float(stats.norm.isf(level / (4 * count)))


def _two_sided(z: Array | float) -> Array:
    return np.asarray(2.0 * stats.norm.sf(np.abs(z)))


def _shrunk(values: Array, role: Sequence[Section]) -> Array:
    """Return differences without what rounding of the entries can do."""
    room = np.array([x.rounding for x in role])
    return np.sign(values) * np.maximum(np.abs(values) - room, 0.0)


def _scale(role: Sequence[Section]) -> Estimates:
    """Return the logarithms of the standard deviations over the right ones."""
    four = np.array([x.law.kurtosis for x in role])
    seen = np.array([x.entries.kurtosis for x in role])
    count = np.array([x.entries.number for x in role])
    values = np.array([math.log(x.entries.std / x.law.std) for x in role])
    small = 2.0 / (9.0 * (2.0 * count / (four - 1.0)))
    z = (np.exp(2.0 * _shrunk(values, role)) ** (1 / 3) - 1.0 + small) / np.sqrt(small)
    return Estimates(values, np.sqrt((np.maximum(four, seen) - 1.0) / (4.0 * count)), z)


def _mean(role: Sequence[Section]) -> Estimates:
    values = np.array([x.entries.mean / x.entries.std for x in role])
    count = np.array([x.entries.number for x in role])
    t = _shrunk(values, role) * np.sqrt(count)
    z = -stats.norm.ppf(stats.t.sf(np.abs(t), count - 1)) * np.sign(t)
    return Estimates(values, count**-0.5, np.where(np.isfinite(z), z, t))


def _which(
    found: Estimates, layers: Sequence[int | None], level: float, counts: tuple[int, int]
) -> tuple[list[int], str]:
    """Return which matrices of a role differ, and how the difference goes with depth, if it does.

    They are all if they differ together and agree, or if the difference is a power of the depth.
    """
    values, errors, z = found
    roles, matrices = counts
    many = len(z)
    single = [int(k) for k in np.flatnonzero(_two_sided(z) < level / (2 * matrices))]
    pooled = float(_two_sided(z.sum() / math.sqrt(many))) < level / (2 * roles)
    if not single and not pooled:
        return [], ""
    if _agree(values, errors, np.ones((many, 1)), level / matrices):
        return list(range(many)) if pooled else single, ""
    if len(single) > max(2, many / 3):
        depth = np.log(np.array(layers, dtype=float) + 1.0)
        design = np.stack([np.ones(many), depth], axis=1)
        if many > 2 and _agree(values, errors, design, level / matrices):
            power = np.linalg.lstsq(design / errors[:, None], values / errors, rcond=None)[0][1]
            return list(range(many)), f"(layer + 1)^{power:.2g}"
    return single or list(range(many)), ""


def _agree(values: Array, errors: Array, design: Array, level: float) -> bool:
    """Return whether estimates are a linear function, by the sum of squared residuals."""
    x, y = design / errors[:, None], values / errors
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    free = len(y) - design.shape[1]
    return free < 1 or float(stats.chi2.sf(float(rest @ rest), free)) > level


def _cut_or_heavy(
    drawn: Sequence[Section], roles: Sequence[list[Section]], level: float
) -> set[str]:
    """Return the names of the matrices whose largest entry is too large, or too small, for the law."""
    found = {x.name for x in drawn if _extreme([x], level / (2 * len(drawn)))}
    for role in roles:
        if not any(x.name in found for x in role) and _extreme(role, level / (2 * len(roles))):
            found |= {x.name for x in role}
    return found


def _extreme(role: Sequence[Section], level: float) -> bool:
    """Return whether the largest entry is too large or too small.

    It is taken in sample standard deviations, and their error is allowed for. Generators of normal
    numbers reach few entries above 4.5 standard deviations, so that larger ones are never too small.
    """
    law, rows = role[0].law, [x for x in role if x.entries.number >= _FEW]
    if not rows:
        return False
    room = max(
        6.0 * math.sqrt(law.kurtosis / (4 * x.entries.number)) + 2 * x.rounding for x in rows
    )
    most, count = max(x.entries.most for x in rows), sum(x.entries.number for x in rows)
    beyond = count * law.above(most * (1.0 - room))
    below = count * math.log1p(-min(law.above(most * (1.0 + room)), 1.0 - 1e-9))
    return beyond < level / 2 or (most < _LARGEST and below < math.log(level / 2))


def _dependent(drawn: Sequence[Section], level: float) -> list[Suspect]:
    """Return which matrices have equal random numbers, up to a factor."""
    size = max((x.entries.first.size for x in drawn), default=0)
    rows = [x for x in drawn if x.entries.first.size == size]
    if len(rows) < 2:
        return []
    x = np.stack([row.entries.first for row in rows])
    x -= x.mean(1, keepdims=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    pairs = np.triu(x @ x.T * math.sqrt(size), 1)
    critical = float(stats.norm.isf(level / (len(rows) * (len(rows) - 1))))
    groups: list[set[int]] = []
    for a, b in np.argwhere(np.abs(pairs) > max(critical, math.sqrt(size) / 2)):
        joined = {int(a), int(b)}.union(*(g for g in groups if g & {int(a), int(b)}))
        groups = [g for g in groups if not g & joined] + [joined]
    said = "the random numbers are those of"
    return [
        Suspect("dependent", rows[min(g)].name, 1.0,
                f"{said} {', '.join(rows[k].name for k in sorted(g - {min(g)}))}")
        for g in groups
    ]  # fmt: skip


class _Cause(NamedTuple):
    """All layers of a role, what is wrong with them, the trend, the scale and its critical z."""

    role: list[Section]
    words: list[str]
    trend: str
    scale: Estimates
    critical: float

    @property
    def interval(self) -> tuple[float, float, float]:
        """Mean logarithm of the ratio, and its interval."""
        weight = self.scale.errors**-2
        mean = float((weight * self.scale.values).sum() / weight.sum())
        room = self.critical / math.sqrt(float(weight.sum()))
        return mean, mean - room, mean + room


def _merged(causes: Iterable[_Cause]) -> list[Suspect]:
    """Return one suspect for all roles with one ratio."""
    groups: list[list[_Cause]] = []
    for cause in causes:
        for group in groups:
            alike = all(cause.words == x.words and cause.trend == x.trend for x in group)
            ends = [x.interval for x in (*group, cause)]
            if alike and max(x[1] for x in ends) <= min(x[2] for x in ends):
                group.append(cause)
                break
        else:
            groups.append([cause])
    return [_whole(group) for group in groups]


def _whole(group: list[_Cause]) -> Suspect:
    sections = [x for cause in group for x in cause.role]
    names = sorted({x.group.partition("[")[0] for x in sections})
    parts = {x.group for x in sections}
    if len(group) < sum(name.partition("[")[0] in names for name in parts) or "[" in "".join(parts):
        names = _joined(parts, names, sections)
    size = float(np.mean([cause.interval[0] for cause in group]))
    what = _said(sections, group[0].words, group[0].trend)
    return Suspect(group[0].words[0], " and ".join(names), _size(sections, size), what)


def _joined(parts: set[str], names: list[str], sections: Sequence[Section]) -> list[str]:
    """Return names of parameters, with the letters of their parts unless all are there."""
    short = []
    for name in names:
        own = sorted(x for x in parts if x.partition("[")[0] == name)
        short += own if len(own) < 2 else [name]
    return short


def _single(wrong: dict[str, list[str]], sections: Sequence[Section]) -> list[Suspect]:
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
    return found


def _module(section: Section) -> str:
    return section.name.partition("[")[0].rpartition(".")[0]


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


def _other_than(right: float, x: Section) -> str:
    std = math.sqrt(max(x.entries.variance, 0.0))
    have = x.entries.broken or f"mean {x.entries.mean:.3g}, std {std:.3g}"
    return f"{have}; recipe says all are {right:g}"
