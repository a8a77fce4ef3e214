"""The figures of the paper, and those beyond it, by name: data, drawing and title."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from shaped_attention.paper import beyond, original, plots
from shaped_attention.version import __version__


@dataclass(frozen=True)
class PaperFigure:
    """What makes a figure: `simulate` gives its data, `draw` draws them under `title`.

    Values in the title come from the attributes of the data.
    """

    simulate: Callable[..., xr.Dataset]
    draw: Callable[[xr.Dataset, str], Figure]
    title: str

    @property
    def about(self) -> str:
        """What it shows, in one sentence."""
        return (getdoc(self.simulate) or "").splitlines()[0]


FIGURES: dict[str, PaperFigure] = {
    "1-left": PaperFigure(
        original.figure_1_left,
        plots.layer_curves,
        r"Transformers: $n=%(width)d$, $d=%(depth)d$, $\gamma=1/\sqrt{8}$, $\tau_0=1$",
    ),
    "1-right": PaperFigure(
        original.figure_1_right,
        plots.density_panels,
        r"Last layer, chain and SDE: $n=%(width)d$, $d=%(depth)d$, $\gamma=1/\sqrt{8}$, $\tau_0=1$",
    ),
    "2": PaperFigure(
        original.figure_2,
        plots.density_and_percentile,
        r"Shaped ReLU alone: $n=%(width)d$, $d=%(depth)d$, $\rho_0=0.2$, $c_+=0$, $c_-=-1$",
    ),
    "3": PaperFigure(
        original.figure_3,
        plots.layer_curves,
        r"Ablations, to $|V|=10^8$: $n=%(width)d$, $d=%(depth)d$, $\gamma=1/\sqrt{2}$",
    ),
    "4": PaperFigure(
        original.figure_4,
        plots.stopping_maps,
        r"First time an eigenvalue leaves $[10^{-4},10^4]$, at most 1: $n=%(width)d$, $V_{aa}=100$",
    ),
    "eigenvalues": PaperFigure(
        beyond.figure_eigenvalues,
        plots.eigenvalue_paths,
        r"Largest eigenvalue, stopped at $|V|=10^5$: $n=d=%(width)d$, $\tau_0=1$, $V_{aa}=100$",
    ),
    "transformer": PaperFigure(
        beyond.figure_transformer,
        plots.family_panels,
        r"The blocks of a transformer: $\gamma=1/2$, $\tau_0=1$, $t=0.5$",
    ),
    "causal": PaperFigure(
        beyond.figure_causal,
        plots.family_panels,
        r"Causal and full attention: $\gamma=1/\sqrt{2}$, $\tau_0=1$, $t=0.5$",
    ),
    "heads": PaperFigure(
        beyond.figure_heads,
        plots.family_panels,
        r"Number of heads: $\gamma=1/\sqrt{2}$, $\tau_0=1$, $t=0.5$",
    ),
    "tokens": PaperFigure(
        beyond.figure_tokens,
        plots.density_panels,
        r"Number of tokens: $n=%(width)d$, $d=%(depth)d$, $\gamma=0.6$, $\tau_0=0.5$",
    ),
    "keys": PaperFigure(
        beyond.figure_keys,
        plots.density_panels,
        r"Key size: $n=%(width)d$, $d=%(depth)d$, $\gamma=0.6$, $\tau_0=0.5$",
    ),
}
"""Those with a number are the paper's, the others go beyond it."""


FEWEST = 10


def make(name: str, **options: Any) -> tuple[Figure, xr.Dataset]:
    """Simulate and draw a figure; `options` go to the function of its data, and to its attributes.

    Raises
    ------
    ValueError
        If the name is unknown, or an option is outside its range.
    """
    if name not in FIGURES:
        raise ValueError(f"figure={name!r}: one of {', '.join(FIGURES)} is needed")
    if options.get("samples", FEWEST) < FEWEST:
        raise ValueError(f"samples={options['samples']!r}: at least {FEWEST} are needed to draw")
    figure = FIGURES[name]
    data = figure.simulate(**options).assign_attrs(
        figure=name, arguments=json.dumps(options), version=__version__
    )
    tokens = data.attrs.get("tokens")
    title = figure.title % data.attrs
    if tokens:
        title = f"{title}, m={tokens}"
    return figure.draw(data, title), data
