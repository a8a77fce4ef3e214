"""The decision rule: which matrices do not have their law, and the causes by name.

Four tests share the level, each with Bonferroni's correction: equal random numbers in two matrices;
the largest entry, which shows the shape of the law; mean; scale. The last three are tested with all
layers of a role together and by matrix. A role whose layers agree, or follow a power of the depth,
is one cause; otherwise single layers are.

If the model is right, the logarithm of the sample variance of N entries with kurtosis k is that of
chi^2 with 2 N / (k - 1) degrees of freedom, and the largest of N entries is below m with
probability P(|w| < m)^N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from shaped_attention.audit.causes import Cause, merged, other_than, single
from shaped_attention.audit.parameters import Section
from shaped_attention.audit.report import Suspect

Array = NDArray[np.float64]

_TESTS = 4
_FEW = 500
"""Fewer entries say nothing about the shape of their law."""

_LARGEST = 4.5
"""Generators of normal numbers reach little more, so larger entries are never too small."""


class Estimates(NamedTuple):
    """Differences between matrices of one role and their law, with their standard errors; z."""

    values: Array
    errors: Array
    z: Array


def suspects_of(sections: Sequence[Section], level: float) -> list[Suspect]:
    """Return the causes that the parameters show, at a level for all of them together."""
    fixed = [x for x in sections if x.law.std == 0.0]
    drawn = [x for x in sections if x.law.std > 0.0]
    wrong = {x.name: [x.entries.broken] for x in drawn if x.entries.broken}
    wrong |= {x.name: [other_than(x)] for x in fixed if x.entries[1:3] != (x.law.mean, 0.0)}
    drawn = [x for x in drawn if not x.entries.broken]
    share = level / _TESTS
    by_role = [list(rows) for _, rows in groupby(sorted(drawn, key=_role), _role)]
    shapes = _cut_or_heavy(drawn, by_role, share)
    counts = len(by_role), max(1, len(drawn))
    whole: list[Cause] = []
    critical = float(stats.norm.isf(share / (4 * len(by_role)))) if by_role else 0.0
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
            whole.append(Cause(role, said, trend, *_ratio(scale, critical)))
        else:
            wrong |= {name: [*wrong.get(name, []), *words] for name, words in flags.items()}
    return _dependent(drawn, share) + merged(whole) + single(wrong, sections)


def _role(section: Section) -> tuple[str, str]:
    return section.group, str(section.law.cut)


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


def _ratio(scale: Estimates, critical: float) -> tuple[float, float]:
    """Return the mean of estimates, and the half of its interval."""
    weight = scale.errors**-2
    return float((weight * scale.values).sum() / weight.sum()), critical * float(
        weight.sum()
    ) ** -0.5


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
    """Return the names of the matrices whose largest entry is too large or too small."""
    found = {x.name for x in drawn if _extreme([x], level / (2 * len(drawn)))}
    for role in roles:
        rest = [x for x in role if x.name not in found]
        most = len(rest) < len(role) / 2
        if rest and (most or _extreme(rest, level / (2 * len(roles)))):
            found |= {x.name for x in rest}
    return found


def _extreme(role: Sequence[Section], level: float) -> bool:
    """Return whether the largest entry is too large or too small.

    It is taken in sample standard deviations, and their error is allowed for.
    """
    law, rows = role[0].law, [x for x in role if x.entries.number >= _FEW]
    if not rows:
        return False
    room = max(
        4.0 * math.sqrt(law.kurtosis / (4 * x.entries.number)) + 2 * x.rounding for x in rows
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
