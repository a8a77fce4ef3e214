"""The loss after a few training steps against the learning rate, by width and by depth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks import Normalised, ShapedAttention
from shaped_attention.blocks.base import Layer
from shaped_attention.checks import check_choice, check_count, check_positive, check_values
from shaped_attention.figures.panels import OF_SAMPLES, Drawn, Panels, Target, look, styled
from shaped_attention.figures.paper.original import RHO_0, quantiles
from shaped_attention.lazy.optimizers import SGD
from shaped_attention.lazy.training import simulate_training
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded

PARAMETRISATIONS = ("standard", "muP")
BRANCHES = {"1": "branches of weight 1", "1/sqrt L": r"branches of weight $1/\sqrt{L}$"}
TARGETS = (1.0, -1.0)
CEILING = 1e6
"""Losses from here on, also those that overflow, are counted as this."""
_RATES = tuple(float(f"{10 ** (k / 2):.3g}") for k in range(-16, 2))
_DEPTH_RATES = tuple(float(f"{10 ** (k / 2):.3g}") for k in range(-7, 1))


def tokens_after(weight: float) -> Layer:
    """Return a layer: X + weight W_O(shaped attention of X / rms(X))."""
    return Normalised(ShapedAttention(weight, skip=1.0, output_projection=True), norm="rms")


def training_losses(
    parametrisation: str,
    layer: Layer,
    *,
    width: int,
    depth: int,
    rate: float,
    steps: int,
    samples: int,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return losses (steps + 1, samples) by SGD with a learning rate, in a parametrisation.

    Two tokens, the loss is |y - f|^2 / 2 with y = (1, -1). Hidden matrices W (n, n) have N(0, 1/n)
    entries. Both parametrisations name learning rates of W and of the readout u, f = X_L u:

        standard    u ~ N(0, 1/n)      rate eta for all
        muP         u ~ N(0, 1/n^2)    rate eta for W, eta / n for u

    as in table 3 of Yang et al. (arXiv 2203.03466) for SGD, from Yang and Hu (arXiv 2011.14522).
    `simulate_training` has matrices of N(0, 1) entries, W = w / sqrt n, and f = X_L v / sqrt n.
    The gradient in w is that in W over sqrt n, and a step of w is that of W times sqrt n, so that
    rate eta in W is rate n eta in w. So the standard rates are n eta for w and v. With muP
    u = v / n, so a step of rate eta / n in u is one of rate n^2 eta / n = n eta in v: n eta again,
    for w and v, of the loss of f / sqrt n,

        |y - f / sqrt n|^2 / 2 = |sqrt n y - f|^2 / (2 n),

    which is that of the targets sqrt n y over n. With these targets both rates are therefore eta.

    Losses above 10^6 are returned as 10^6. If a step makes a loss of one of the samples overflow,
    so are all of that step.
    """
    check_choice("parametrisation", parametrisation, PARAMETRISATIONS)
    standard = parametrisation == "standard"
    # A loss of simulate_training is `unit` times that of the parametrisation.
    unit = 1.0 if standard else float(width)
    hidden = readout = width * rate / unit
    goal = [math.sqrt(unit) * y for y in TARGETS]
    losses = np.full((steps + 1, samples), CEILING)
    # If not all steps are finite, as many as are.
    for count in (steps, *range(1, steps)):
        try:
            run = simulate_training(
                layer, equicorrelated(len(TARGETS), RHO_0), goal, width=width, depth=depth,
                samples=samples, steps=count, seed=seed, progress=False,
                optimizer=SGD({"*": hidden, "readout": readout}),
            )  # fmt: skip
        except FloatingPointError:
            if count < steps:
                break
            continue
        losses[: count + 1] = np.minimum(run["loss"].values / unit, CEILING)
        if count == steps:
            break
    return losses


@recorded()
def figure_learning_rate(
    widths: Sequence[int] = (100, 10_000, 1_000_000),
    rates: Sequence[float] | None = None,
    depths: Sequence[int] = (4, 16, 64),
    depth_rates: Sequence[float] | None = None,
    depth_width: int = 48,
    steps: int = 3,
    samples: int = 12,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Losses after each of a few steps of SGD against the learning rate, by width and by depth.

    Layers are pre-norm shaped attention with W_O, two tokens, y = (1, -1); parametrisations and
    rates are those of `training_losses`. Widths are compared at depth 2, in both parametrisations;
    depths by muP, with branches of weight 1, and of weight 1 / sqrt L with the same rates (Yang et
    al., arXiv 2310.02244; Bordelon et al., arXiv 2309.16620). Returns `by_width` (parametrisation,
    width, rate, step, level) and `by_depth` (branch, depth, depth_rate, step, level): quantiles and
    mean over samples.

    Parameters
    ----------
    widths, rates
        Widths n, and learning rates, of the first two panels.
    depths, depth_rates, depth_width
        Depths L, learning rates, and the width of the other two panels.
    steps, samples, seed, progress
        Number of training steps, samples, seed, and whether to show progress.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    rates = _RATES if rates is None else rates
    depth_rates = _DEPTH_RATES if depth_rates is None else depth_rates
    for name, counts in (("widths", widths), ("depths", depths)):
        check_values(name, counts)
        for count in counts:
            check_count(name, count)
    for name, positive in (("rates", rates), ("depth_rates", depth_rates)):
        check_values(name, positive)
        for rate in positive:
            check_positive(name, rate)
    usual = 2**-0.5
    kinds = PARAMETRISATIONS
    cells = [(kind, usual, n, 2, rate) for kind in kinds for n in widths for rate in rates]
    wide = len(cells)
    cells += [("muP", 1.0, depth_width, d, rate) for d in depths for rate in depth_rates]
    cells += [("muP", d**-0.5, depth_width, d, rate) for d in depths for rate in depth_rates]
    curves = []
    for kind, weight, n, depth, rate in progress_bar("learning rates", progress, cells):
        # The same networks at every learning rate.
        study = {"study": "learning rate", "kind": kind, "weight": weight, "sizes": (n, depth)}
        losses = training_losses(
            kind, tokens_after(weight), width=n, depth=depth, rate=rate, steps=steps,
            samples=samples, seed=derived_seed(seed, study),
        )  # fmt: skip
        curves.append(quantiles(losses))
    by_width = np.reshape(curves[:wide], (2, len(widths), len(rates), steps + 1, 4))
    by_depth = np.reshape(curves[wide:], (2, len(depths), len(depth_rates), steps + 1, 4))
    return xr.Dataset(
        {
            "by_width": (("parametrisation", "width", "rate", "step", "level"), by_width),
            "by_depth": (("branch", "depth", "depth_rate", "step", "level"), by_depth),
        },
        coords={
            "parametrisation": list(PARAMETRISATIONS), "width": list(widths), "rate": list(rates),
            "branch": list(BRANCHES), "depth": list(depths), "depth_rate": list(depth_rates),
            "level": ["5 %", "median", "95 %", "mean"],
        },
    )  # fmt: skip


@styled
def learning_rate_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw losses against the rate: after the last step with 5-95 % bands, after one dotted."""
    panels_of = [
        (f"{kind}, $L$ = 2", data["by_width"].sel(parametrisation=kind), "width", "rate", "n")
        for kind in data["parametrisation"].values
    ]
    for kind in data["branch"].values:
        losses = data["by_depth"].sel(branch=kind)
        panels_of.append((f"muP, {BRANCHES[str(kind)]}", losses, "depth", "depth_rate", "L"))
    panels = Panels(
        ax, [name for name, *_ in panels_of], (11.0, 7.0), columns=2, titles=True, sharey=True
    )
    last = data.sizes["step"] - 1
    for axis, (_, losses, by, along, symbol) in zip(panels.axes, panels_of, strict=True):
        rates = data[along].values
        for k, value in enumerate(data[by].values):
            low, median, high, _ = losses.sel({by: value}).isel(step=last).values.T
            line = look(k + 3 * (by == "depth"))
            axis.fill_between(rates, low, high, color=line["color"], alpha=0.2, linewidth=0)
            axis.plot(rates, median, label=f"${symbol}$ = {value:,}", **line)
            first = losses.sel({by: value}).isel(step=1, level=1).values
            axis.plot(rates, first, color=line["color"], linestyle=":", linewidth=1.0)
        axis.set(xscale="log", yscale="log", ylim=(1e-4, 30.0))
        axis.legend(fontsize="small", loc="lower left")
    panels.label(r"learning rate $\eta$", "loss")
    note = f"lines: medians after {last} steps; {OF_SAMPLES}; dotted: after one step"
    return panels.finish(title, note=note)
