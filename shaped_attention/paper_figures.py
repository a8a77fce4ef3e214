"""The figures of the paper by name: data, drawing and title."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from shaped_attention import paper, paper_plots

FIGURES: dict[str, tuple[Callable[..., xr.Dataset], Callable[[xr.Dataset, str], Figure], str]] = {
    "1-left": (
        paper.figure_1_left,
        paper_plots.layer_curves,
        r"Correlation in transformers: $n=200$, $d=150$, $\gamma=1/\sqrt{8}$, $\tau_0=1$",
    ),
    "1-right": (
        paper.figure_1_right,
        paper_plots.density_panels,
        r"Last layer, chain and SDE: $n=200$, $d=150$, $\gamma=1/\sqrt{8}$, $\tau_0=1$",
    ),
    "2": (
        paper.figure_2,
        paper_plots.density_and_percentile,
        r"Shaped ReLU alone: $n=300$, $d=100$, $\rho_0=0.2$, $c_+=0$, $c_-=-1$",
    ),
    "3": (
        paper.figure_3,
        paper_plots.layer_curves,
        r"Without one modification, stopped at $|V|=10^8$: $n=300$, $d=150$, $\gamma=1/\sqrt{2}$",
    ),
    "4": (
        paper.figure_4,
        paper_plots.stopping_maps,
        r"First time an eigenvalue leaves $[10^{-4},10^4]$, capped at 1: $n=200$, $V_{aa}=100$",
    ),
}
"""Name -> (data, drawing, title)."""


def make(name: str, **options: Any) -> tuple[Figure, xr.Dataset]:
    """Simulate and draw a figure; `options` go to the function of its data.

    Raises
    ------
    ValueError
        If the name is unknown, or an option is outside its range.
    """
    if name not in FIGURES:
        raise ValueError(f"figure={name!r}: one of {', '.join(FIGURES)} is needed")
    simulate, draw, title = FIGURES[name]
    data = simulate(**options)
    tokens = options.get("tokens", data.attrs.get("tokens"))
    return draw(data, f"{title}, m={tokens}" if tokens else title), data
