"""A summary of a model's samples in words: a table by layer, and what depth does to the tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.checks import argument_error, check_count, check_values

FEW = 20
"""Number of layers up to which a table has them all."""

ROWS = 16
"""Number of rows of a table with more layers."""

COLLAPSED = 2.0
"""Effective rank below which it has collapsed: the tokens have almost one direction."""

KEPT = 0.5
"""Share of the embedding's effective rank above which it is kept."""

RISE = 0.1
"""Change of the mean cosine that is reported as a rise or a fall."""

GROWTH = 2.0
"""Factor of the root mean square from which tokens grow, or, inverted, shrink."""

UNIFORM = 0.99
"""Share of the largest entropy above which attention is nearly uniform."""

CONCENTRATED = 0.5
"""Share of the largest entropy below which the entropy has collapsed."""

_COLUMNS = {
    "cosine": ("mean cosine", "{:.2f}"),
    "effective_rank": ("effective rank", "{:.1f}"),
    "size": ("root mean square", "{:#.3g}"),
    "entropy": ("entropy, % of largest", "{:.1f}"),
}


def verdict(summary: xr.Dataset, *, table: bool = False, every: int | None = None) -> str:
    """Describe in words what depth does to the tokens: rank, cosines, norms and attention.

    All numbers are medians over samples.

    Parameters
    ----------
    summary
        Result of `model_summary`.
    table
        Whether a table by layer comes first, with a median and the 5 and 95 % quantiles in each
        cell.
    every
        Number of layers between two rows of the table; by default all layers are shown if there are
        at most 20, otherwise 16 evenly spaced ones.

    Raises
    ------
    ValueError
        If `summary` is not such a result, or `every` is not an integer >= 1.
    """
    _check_summary(summary)
    sentences = [_size(summary)]
    if summary.attrs["tokens"] > 1:
        sentences = [_rank(summary), _cosine(summary), *sentences]
        if "entropy" in summary:
            sentences.append(_entropy(summary))
    words = " ".join(sentences)
    return f"{summary_table(summary, every)}\n\n{words}" if table else words


def summary_table(summary: xr.Dataset, every: int | None = None) -> str:
    """Return the table by layer of `verdict`."""
    _check_summary(summary)
    names = [name for name in _COLUMNS if name in summary]
    layers = shown_layers(summary.sizes["position"] - 1, every)
    rows = [
        ["layer", *(_COLUMNS[name][0] for name in names)],
        *([str(k), *(_cell(summary[x].isel(position=k), x) for x in names)] for k in layers),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].rjust(widths[0])]
            + [cell.ljust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    )


def shown_layers(depth: int, every: int | None = None) -> list[int]:
    """Return the layers of a table: 0 for the embedding, up to the last."""
    if every is not None:
        check_count("every", every)
        return sorted({*range(0, depth + 1, every), depth})
    if depth <= FEW:
        return list(range(depth + 1))
    return sorted({round(x) for x in np.linspace(0, depth, ROWS)})


def _check_summary(summary: object) -> None:
    if not isinstance(summary, xr.Dataset) or "level" not in summary.dims:
        error = argument_error("summary", "a Dataset from model_summary", summary)
        if "position" in getattr(summary, "dims", ()):
            raise ValueError(f"{error}; call model_summary on it")
        raise error


def _cell(values: xr.DataArray, name: str) -> str:
    shown = (100.0 if name == "entropy" else 1.0) * values.sel(level=["median", "5 %", "95 %"])
    if np.isnan(shown[0]):
        return "-"
    texts = [_COLUMNS[name][1].format(x).replace("-0.00", "0.00") for x in shown.to_numpy()]
    return "{} [{}, {}]".format(*texts)


def compared(summaries: Mapping[str, xr.Dataset]) -> str:
    """Return in words how two models differ after their last layers.

    Bands are from the 5 to the 95 % quantile over samples.

    Parameters
    ----------
    summaries
        Results of `model_summary`, by the names of the two models.

    Raises
    ------
    ValueError
        If there are not two summaries.
    """
    check_values("summaries", list(summaries))
    if len(summaries) != 2:
        raise argument_error("summaries", "of two models", list(summaries))
    sentences = []
    for name, words, digits in (
        ("effective_rank", "effective rank", ".3g"),
        ("cosine", "mean cosine", ".2f"),
    ):
        ends = {model: s[name].isel(position=-1) for model, s in summaries.items()}
        if any(np.isnan(end).any() for end in ends.values()):
            continue
        ends = dict(sorted(ends.items(), key=lambda item: -float(item[1].sel(level="median"))))
        (first, a), (second, b) = ends.items()
        high, low = (format(float(end.sel(level="median")), digits) for end in (a, b))
        if bool(a.sel(level="5 %") > b.sel(level="95 %")):
            how = (
                f"higher in {first}, {high}, than in {second}, {low} (5-95 % bands do not overlap)"
            )
        else:
            how = (
                f"{high} in {first} and {low} in {second}, not clearly different (5-95 % bands "
                "overlap)"
            )
        sentences.append(f"The {words} after the last layer is {how}.")
    sizes = {model: _medians(s, "size") for model, s in summaries.items()}
    grown = " and ".join(f"{_short(x[-1] / x[0])} in {model}" for model, x in sizes.items())
    return " ".join([*sentences, f"The root mean square changes by a factor of {grown}."])


def _medians(summary: xr.Dataset, name: str) -> NDArray[np.float64]:
    values: NDArray[np.float64] = summary[name].sel(level="median").to_numpy()
    return values


def _rank(summary: xr.Dataset) -> str:
    ranks, tokens = _medians(summary, "effective_rank"), summary.attrs["tokens"]
    first, lowest, last = (f"{x:.3g}" for x in (ranks[0], ranks.min(), ranks[-1]))
    falls = f"the effective rank falls from {first} of {tokens} to {last}"
    below = _from_here_on(ranks < COLLAPSED)
    # Few different tokens: half of their rank is near 1, its lowest value.
    lost = ranks[-1] - 1.0 < KEPT * (ranks[0] - 1.0)
    if below is not None and ranks[0] >= COLLAPSED and lost:
        return f"Rank collapses: {falls}, and is below {COLLAPSED:g} from layer {below} on."
    if ranks[-1] < KEPT * ranks[0]:
        half = _from_here_on(ranks < KEPT * ranks[0])
        return f"Rank is lost: {falls}, and is below half of its start from layer {half} on."
    if lost:
        return f"Rank is lost: {falls}, where 1 is the lowest."
    if ranks[0] < COLLAPSED < tokens:
        return (
            f"The effective rank is below {COLLAPSED:g} already at the embedding: it is {first} of "
            f"{tokens} there, {lowest} at its lowest and {last} at the end."
        )
    return (
        f"Rank does not collapse: the effective rank is {first} of {tokens} at the start, {lowest} "
        f"at its lowest and {last} at the end."
    )


def _from_here_on(true: NDArray[np.bool_]) -> int | None:
    """Return the first position from which something is true up to the end, or None."""
    if not true[-1]:
        return None
    wrong = np.flatnonzero(~true)
    return int(wrong[-1]) + 1 if wrong.size else 0


def _cosine(summary: xr.Dataset) -> str:
    values = _medians(summary, "cosine")
    first, last = values[0] + 0.0, values[-1]
    change = last - first
    if abs(change) < RISE:
        low, high = _two(values.min()), _two(values.max())
        return f"Mean cosines are {low if low == high else f'{low} to {high}'} throughout."
    word = "rise" if change > 0 else "fall"
    return f"Mean cosines {word} from {_two(first)} to {_two(last)}."


def _two(value: float) -> str:
    """Return a number with two decimals, without a sign before zero."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def _short(value: float) -> str:
    """Return a number with two digits, and without an exponent below a million."""
    return f"{float(f'{value:.2g}'):g}"


def _percent(share: float) -> str:
    """Return a share below 1 in per cent, with three digits, and never as 100 %."""
    text = f"{100.0 * share:.3g}"
    return "more than 99.9 %" if text == "100" else f"{text} %"


def _size(summary: xr.Dataset) -> str:
    sizes = _medians(summary, "size")
    factor = sizes[-1] / sizes[0]
    entries = f"root mean square {_short(sizes[0])} to {_short(sizes[-1])}"
    if factor >= GROWTH:
        added = 1.0 - sizes[:-1] ** 2 / sizes[1:] ** 2
        first, last = (_percent(share) for share in (added[0], added[-1]))
        return (
            f"Tokens grow by a factor of {_short(factor)} ({entries}): the first layer contributes "
            f"{first} of the squared norm at its output, the last {last}."
        )
    if factor <= 1.0 / GROWTH:
        return f"Tokens shrink by a factor of {_short(1.0 / factor)} ({entries})."
    return f"Norms stay of the same order ({entries})."


def _entropy(summary: xr.Dataset) -> str:
    shares = _medians(summary, "entropy")[1:]
    low, high = 100.0 * shares.min(), 100.0 * shares.max()
    where = int(np.argmin(shares)) + 1
    if shares.min() >= UNIFORM:
        return (
            "Attention is nearly uniform: its entropy is at least "
            f"{100.0 * UNIFORM:g} % of the largest possible in every layer."
        )
    if shares.max() < CONCENTRATED:
        return (
            f"Entropy of attention collapses already in the first layer: it is {low:.2g} to "
            f"{high:.2g} % of the largest possible."
        )
    if shares.min() < CONCENTRATED:
        return (
            f"Entropy of attention collapses to {low:.2g} % of the largest possible (layer "
            f"{where})."
        )
    return f"Entropy of attention is {low:.3g} to {high:.3g} % of the largest possible."
