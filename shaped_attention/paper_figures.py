"""The figures of the paper, and those beyond it, by name: data, drawing and title."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from shaped_attention import beyond, paper, paper_plots


@dataclass(frozen=True)
class PaperFigure:
    """What makes a figure: `simulate` gives its data, `draw` draws them under `title`."""

    simulate: Callable[..., xr.Dataset]
    draw: Callable[[xr.Dataset, str], Figure]
    title: str

    @property
    def about(self) -> str:
        """What it shows, in one sentence."""
        return (getdoc(self.simulate) or "").splitlines()[0]


FIGURES: dict[str, PaperFigure] = {
    "1-left": PaperFigure(
        paper.figure_1_left,
        paper_plots.layer_curves,
        r"Correlation in transformers: $n=200$, $d=150$, $\gamma=1/\sqrt{8}$, $\tau_0=1$",
    ),
    "1-right": PaperFigure(
        paper.figure_1_right,
        paper_plots.density_panels,
        r"Last layer, chain and SDE: $n=200$, $d=150$, $\gamma=1/\sqrt{8}$, $\tau_0=1$",
    ),
    "2": PaperFigure(
        paper.figure_2,
        paper_plots.density_and_percentile,
        r"Shaped ReLU alone: $n=300$, $d=100$, $\rho_0=0.2$, $c_+=0$, $c_-=-1$",
    ),
    "3": PaperFigure(
        paper.figure_3,
        paper_plots.layer_curves,
        r"Without one modification, stopped at $|V|=10^8$: $n=300$, $d=150$, $\gamma=1/\sqrt{2}$",
    ),
    "4": PaperFigure(
        paper.figure_4,
        paper_plots.stopping_maps,
        r"First time an eigenvalue leaves $[10^{-4},10^4]$, capped at 1: $n=200$, $V_{aa}=100$",
    ),
    "eigenvalues": PaperFigure(
        beyond.figure_eigenvalues,
        paper_plots.eigenvalue_paths,
        r"Largest eigenvalue, stopped at $|V|=10^5$: $n=d=200$, $\tau_0=1$, $V_{aa}=100$",
    ),
    "transformer": PaperFigure(
        beyond.figure_transformer,
        paper_plots.family_panels,
        r"The blocks of a transformer: $\gamma=1/2$, $\tau_0=1$, $t=0.5$",
    ),
    "causal": PaperFigure(
        beyond.figure_causal,
        paper_plots.family_panels,
        r"Causal and full attention: $\gamma=1/\sqrt{2}$, $\tau_0=1$, $t=0.5$",
    ),
    "heads": PaperFigure(
        beyond.figure_heads,
        paper_plots.family_panels,
        r"Number of heads: $\gamma=1/\sqrt{2}$, $\tau_0=1$, $t=0.5$",
    ),
    "tokens": PaperFigure(
        beyond.figure_tokens,
        paper_plots.density_panels,
        r"Number of tokens: $n=200$, $d=100$, $\gamma=0.6$, $\tau_0=0.5$",
    ),
    "keys": PaperFigure(
        beyond.figure_keys,
        paper_plots.density_panels,
        r"Key size: $n=200$, $d=100$, $\gamma=0.6$, $\tau_0=0.5$",
    ),
}
"""Those with a number are the paper's, the others go beyond it."""


def make(name: str, **options: Any) -> tuple[Figure, xr.Dataset]:
    """Simulate and draw a figure; `options` go to the function of its data.

    Raises
    ------
    ValueError
        If the name is unknown, or an option is outside its range.
    """
    if name not in FIGURES:
        raise ValueError(f"figure={name!r}: one of {', '.join(FIGURES)} is needed")
    figure = FIGURES[name]
    data = figure.simulate(**options)
    tokens = data.attrs.get("tokens")
    title = f"{figure.title}, m={tokens}" if tokens else figure.title
    return figure.draw(data, title), data
