"""Figure of the three objects, network, chain and SDE: how they are related, and paths of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

from shaped_attention.blocks import ShapedAttention
from shaped_attention.figures.labels import TIME, observable_label
from shaped_attention.figures.panels import COLORS, Drawn, Panels, Target, styled
from shaped_attention.figures.paper.original import RHO_0
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.samplers.sde import integrate_sde

GAMMA, TOKENS, SUBSTEPS = 0.5, 3, 4

_NAMES = ("network: real weights", "exact chain: covariances alone", "SDE: the limit")
_SHOWN = 10
"""Paths that are drawn; the band is that of all samples."""


@recorded()
def figure_schematic(
    width: int = 48, samples: int = 512, seed: int = 0, progress: bool | None = None
) -> xr.Dataset:
    """Correlation rho_01 of three tokens in networks, chain and SDE up to t = 1.

    Returns `rho` (sampler, time, sample), for width = depth, gamma = 1/2 and tau_0 = 1.
    """
    layer, v0 = ShapedAttention(GAMMA), equicorrelated(TOKENS, RHO_0)
    finite = {"width": width, "depth": width}
    runs: dict[str, tuple[Callable[..., xr.Dataset], dict[str, Any]]] = {
        "network": (simulate_network, finite),
        "chain": (simulate_chain, finite),
        "sde": (integrate_sde, {"horizon": 1.0, "step": 1.0 / (SUBSTEPS * width)}),
    }
    paths = []
    for name, (sampler, sizes) in progress_bar("samplers", progress, list(runs.items())):
        run = sampler(
            layer, v0, samples=samples, times=np.arange(width + 1) / width, keep="observables",
            seed=derived_seed(seed, {"study": "figure_schematic", "sampler": name}),
            progress=False, **sizes,
        )  # fmt: skip
        paths.append(run["kept"].sel(observable="rho[0,1]").to_numpy())
    return xr.Dataset(
        {"rho": (("sampler", "time", "sample"), np.array(paths))},
        coords={"sampler": list(runs), "time": np.arange(width + 1) / width},
    )


@styled
def schematic_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw what each object consists of, and below it some of its paths with the 5-95 % band."""
    below = [f"paths of the {name}" for name in ("network", "chain", "SDE")]
    panels = Panels(ax, [*_NAMES, *below], (14.0, 7.6), columns=3,
                    gridspec_kw={"height_ratios": [1.15, 1.0]})  # fmt: skip
    for axis, draw, name in zip(panels.axes, (_network, _chain, _sde), _NAMES, strict=False):
        axis.set(xlim=(0.0, 12.4), ylim=(-0.3, 6.0), xticks=[], yticks=[], title=name)
        axis.set_aspect("equal", adjustable="box")
        axis.spines[:].set_visible(False)
        draw(axis)
    _relation(panels.axes[0], "same law,\nevery $n$", "<|-|>")
    _relation(panels.axes[1], "$n\\to\\infty$,\n$t=\\ell/n$", "-|>")
    for k, (axis, name) in enumerate(zip(panels.axes[3:], data["sampler"].values, strict=True)):
        rho = data["rho"].sel(sampler=name).to_numpy()
        low, middle, high = np.quantile(rho, [0.05, 0.5, 0.95], axis=1)
        color = COLORS[k]
        axis.fill_between(data["time"], low, high, color=color, alpha=0.2, linewidth=0)
        drawing = "default" if name == "sde" else "steps-post"
        axis.plot(data["time"], rho[:, :_SHOWN], color=color, linewidth=0.7, drawstyle=drawing)
        axis.plot(data["time"], middle, color="black", linewidth=1.8)
        axis.set(ylim=(-1.0, 1.0), xlabel=TIME, ylabel=observable_label("rho[0,1]"))
    return panels.finish(
        title, note="below: ten paths of each, their median (black) and 5–95 % band"
    )


_BOX = 1.5
"""Side of a square of m x m cells; the drawings are 10 x 6."""

_RANDOM: dict[str, Any] = {"facecolor": "0.9", "edgecolor": "0.3", "hatch": "...."}
"""Random matrices are dotted."""


def _network(axis: Axes) -> None:
    """Tokens of two layers with n columns, weights between them, and the covariances below."""
    for x, layer in ((0.2, r"\ell"), (6.6, r"\ell+1")):
        _cells(axis, x, 3.1, 3.2, _BOX, 14)
        axis.text(x + 1.6, 4.8, f"$X_{{{layer}}}$,  $m\\times n$", ha="center")
        _arrow(axis, (x + 1.6, 2.95), (x + 1.6, 2.05))
        _covariance(axis, x + 0.85, 0.5, f"V_{{{layer}}}", 0.0)
    axis.text(5.0, 1.2, r"$V=XX^\top/n$", ha="center", va="center")
    axis.add_patch(Rectangle((4.3, 4.35), 1.4, 1.4, **_RANDOM))
    axis.text(5.0, 4.0, r"$W_Q,W_K,W_V$", ha="center", va="center", fontsize="small")
    _arrow(axis, (3.5, 3.6), (6.5, 3.6))
    axis.text(5.0, 2.8, "$n\\times n$,\nGaussian", ha="center", va="center", fontsize="small")
    axis.set_xlabel("state: $m$ tokens of width $n$\na layer costs $n^2$")


def _chain(axis: Axes) -> None:
    """Covariances of two layers and the small random matrices between them."""
    _covariance(axis, 1.0, 2.85, r"V_\ell=FF^\top")
    _covariance(axis, 7.5, 2.85, r"V_{\ell+1}")
    for k, name in enumerate("GHB"):
        x = 3.6 + 1.05 * k
        axis.add_patch(Rectangle((x, 4.35), 0.8, 0.8, **_RANDOM))
        axis.text(x + 0.4, 5.35, f"${name}$", ha="center")
    _arrow(axis, (2.7, 3.6), (7.3, 3.6))
    axis.text(5.0, 2.8, "$m\\times m$, Gaussian\nand Wishart", ha="center", va="center",
              fontsize="small")  # fmt: skip
    axis.set_xlabel("state: covariance, $m\\times m$\nattention costs the same at every $n$")


def _sde(axis: Axes) -> None:
    """Covariance in continuous time, with its equation."""
    _covariance(axis, 1.0, 2.85, "V_t")
    _covariance(axis, 7.5, 2.85, r"V_{t+dt}")
    _arrow(axis, (2.7, 3.6), (7.3, 3.6))
    axis.text(5.0, 1.7, r"$dV=b(V)\,dt+\Sigma(V)^{1/2}dB$", ha="center", va="center")
    axis.set_xlabel("state: covariance, $m\\times m$\nno width; $V$ can explode")


def _covariance(axis: Axes, x: float, y: float, name: str, above: float = 1.75) -> None:
    """Draw V as m x m cells, darker on the diagonal, with its name above or below."""
    for row in range(TOKENS):
        for column in range(TOKENS):
            side = _BOX / TOKENS
            shade = "0.45" if row == column else "0.8"
            corner = (x + column * side, y + (TOKENS - 1 - row) * side)
            axis.add_patch(Rectangle(corner, side, side, facecolor=shade, edgecolor="white"))
    axis.text(x + _BOX / 2, y + above - (0.35 if not above else 0.0), f"${name}$", ha="center",
              va="top" if not above else "bottom")  # fmt: skip


def _cells(axis: Axes, x: float, y: float, width: float, height: float, columns: int) -> None:
    """Draw m tokens as rows of cells, a shade for each token."""
    for row in range(TOKENS):
        for column in range(columns):
            side = width / columns, height / TOKENS
            corner = (x + column * side[0], y + row * side[1])
            axis.add_patch(
                Rectangle(corner, *side, facecolor=COLORS[row], edgecolor="white", linewidth=0.4)
            )


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], **style: str) -> None:
    axis.add_patch(
        FancyArrowPatch(start, end, arrowstyle=style.get("style", "-|>"), mutation_scale=14,
                        color="0.2", linewidth=1.4, clip_on=False)
    )  # fmt: skip


def _relation(axis: Axes, words: str, style: str) -> None:
    """Say, between a drawing and the next one, how they are related."""
    _arrow(axis, (10.2, 3.6), (12.3, 3.6), style=style)
    axis.text(11.25, 3.9, words, ha="center", va="bottom", fontsize="small", clip_on=False)
