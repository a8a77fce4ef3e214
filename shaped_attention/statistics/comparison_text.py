"""The verdict of a comparison, and its table laid out for a terminal."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.checks import argument_error
from shaped_attention.numerics.result_axis import place_text
from shaped_attention.statistics.distances import ks_margin

_ROWS_PER_GROUP, _NAMED, _WIDTH = 8, 4, 110
_RULE = "-" * 82

_COUPLED = (
    " CAUTION: both results come from one sampler with one seed and share random numbers; all "
    "p-values need different seeds."
)
_SHARED_WEIGHTS = (
    " CAUTION: samples of one recorded model share its weights; bands and p-values assume "
    "independent samples, with one model each."
)
_DIFFERENCES = {
    "same_start": "start from different covariances",
    "same_layer": "have different layers",
    "same_radius": "stop at different radii",
}


def verdict(table: xr.Dataset) -> str:
    """Report which observables differ, how large a hidden difference may be, and any cautions."""
    about = table.attrs
    n, m, least = (about[k] for k in ("samples_first", "samples_second", "smallest_resolvable_ks"))
    confidence, tests, count = about["confidence"], about["tests"], table.sizes["observable"]
    order = np.argsort(-table["ks"].to_numpy(), kind="stable")
    names, ks = table["observable"].to_numpy()[order], float(table["ks"].max())
    smallest = float(table["p_value"].min())
    resolved = names[table["resolved"].to_numpy()[order]]
    corrected = f", {min(1.0, tests * smallest):.2g} corrected for {tests} tests" * (tests > 1)
    reach = f"distances below {least:.3f} cannot be" if least < 1 else "no distance can be"
    largest = (
        f"The largest KS distance is {ks:.3f} ({names[0]}): p = {smallest:.2g}{corrected}; "
        f"{reach} resolved with this many samples."
    )
    p, where = float(table["joint_p_value"]), f"the two laws at {_place(table)}"
    seen = p <= 1 - confidence
    at = f"with {n} and {m} samples, at simultaneous confidence {confidence:.4g}"
    if len(resolved):
        listing = ", ".join(resolved[:_NAMED])
        more = f" and {len(resolved) - _NAMED} more" if len(resolved) > _NAMED else ""
        among = f"{len(resolved)} of {count} observables ({listing}{more})"
        differing = among if count > 1 else f"the observable {listing}"
        head = f"Resolved: {at}, {where} differ in {differing}.{_by_fraction(table)}"
        tail = "detects the difference too" if seen else "does not detect the difference"
    else:
        outcome = "Different, in the joint law" if seen else "Not resolved"
        none = f"none of the {count} observables alone distinguishes"
        lacking = none if count > 1 else f"the observable {names[0]} does not distinguish"
        head = f"{outcome}: {at}, {lacking} {where}."
        tail = (
            "distinguishes them; an observable may differ by up to "
            f"{min(1.0, ks + ks_margin(n, m, 1 - (1 - confidence) / count)):.3f} in the KS distance"
            if seen
            else "does not distinguish them either; a smaller difference is not excluded"
        )
    chance = (
        f" Even if the laws are equal, {1 - confidence:.2g} of all comparisons end like this by "
        "chance; where no difference is expected, repeat with another seed."
    ) * (seen and not len(resolved))
    return f"{head} {largest} The joint test {tail} (p = {p:.2g}).{chance}{caution_text(about)}"


def _by_fraction(table: xr.Dataset) -> str:
    """Return the sentence on stopping times that only the fraction stopped resolves, if any."""
    if not (table["resolved"] & (table["ks"] < table.attrs["smallest_resolvable_ks"])).any():
        return ""
    first, second, p = (float(table[f"stopped_{x}"]) for x in ("first", "second", "p_value"))
    return f" The fractions stopped, {first:.2%} and {second:.2%}, differ (p = {p:.2g})."


def caution_text(common: dict[str, Any]) -> str:
    """Return the sentences that follow from `common_ground`, possibly none."""
    differences = [text for name, text in _DIFFERENCES.items() if not common[name]]
    text = f" NOTE: the results {' and '.join(differences)}." if differences else ""
    text += "" if common["own_weights"] else _SHARED_WEIGHTS
    return text if common["independent"] else text + _COUPLED


def format_comparison(table: xr.Dataset) -> str:
    """Return a result of `compare` as a table for a terminal, at most 110 columns wide.

    If there are more than 8 diagonal entries or correlations, the 8 with the largest KS distance
    are shown and one line summarises the rest. A star marks resolved observables. For one draw the
    verdict is all there is.

    Raises
    ------
    ValueError
        If `table` is not a result of `compare`.
    """
    if not isinstance(table, xr.Dataset) or "verdict" not in table.attrs:
        raise argument_error("table", "a result of compare", table)
    about = table.attrs
    if "rank" in table:
        return "\n".join(textwrap.wrap(str(about["verdict"]), _WIDTH))
    lines = [
        f"{_place(table)}; tokens: {about['tokens']}; samples: {about['samples_first']}, "
        f"{about['samples_second']}; each band at confidence {about['confidence']:.4g}",
        "",
        _line("", "first", "second", "Kolmogorov-Smirnov"),
        _line("observable", "median [5 %, 95 %]", "median [5 %, 95 %]", "[low, high]"),
    ]
    names = [str(name) for name in table["observable"].to_numpy()]
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(name.split("[")[0] if "[" in name else "others", []).append(i)
    for group, members in groups.items():
        ranked = sorted(members, key=lambda i: -float(table["ks"][i]))
        shown = members if group == "others" else sorted(ranked[:_ROWS_PER_GROUP])
        lines += [_RULE, *(_row(names[i], table.isel(observable=i)) for i in shown)]
        rest = table.isel(observable=[i for i in members if i not in shown])
        if rest.sizes["observable"]:
            lines.append(
                f"and {rest.sizes['observable']} more {group}: KS at most "
                f"{float(rest['ks'].max()):.3f}, {int(rest['resolved'].sum())} of them resolved"
            )
    distance, p, first, second = (
        float(table[key])
        for key in ("joint_energy", "joint_p_value", "stopped_first", "stopped_second")
    )
    lines += [_RULE, f"joint energy test: distance {distance:.3g}, p = {p:.3g}"]
    if "time" in about:
        lines.append(f"stopped by then: {first:.2%} of the first, {second:.2%} of the second")
    return "\n".join([*lines, *textwrap.wrap(str(about["verdict"]), _WIDTH)])


def _place(table: xr.Dataset) -> str:
    """Return the time or position of a comparison in words."""
    axis = "time" if "time" in table.attrs else "position"
    return place_text(axis, table.attrs[axis])


def _line(name: str, first: str, second: str, ks: str, mark: str = "") -> str:
    return f"{name:16} {first:^20}  {second:^20}  {ks:^19} {mark}".rstrip()


def _row(name: str, row: xr.Dataset) -> str:
    value = {str(key): float(row[key]) for key in row.data_vars}
    first, second = (
        f"{_fit(value[f'median_{law}'], 6)} "
        f"[{_fit(value[f'q05_{law}'], 5)},{_fit(value[f'q95_{law}'], 5)}]"
        for law in ("first", "second")
    )
    ks = f"{_fit(value['ks'], 5)} [{_fit(value['ks_low'], 5)},{_fit(value['ks_high'], 5)}]"
    mark = "*" if value["resolved"] else ""
    return _line(name.replace("eigenvalue", "eig."), first, second, ks, mark)


def _fit(value: float, width: int) -> str:
    """Format a number in at most `width` characters, with up to three decimals."""
    short, fixed = f"{value:.0e}", [f"{value:.{decimals}f}" for decimals in (3, 2, 1, 0)]
    small = [short] if 0 < abs(value) < 5e-4 else []
    return next((x for x in (*small, *fixed) if len(x) <= width), short).rjust(width)
