"""What goes wrong if gradients are taken back through matrices that are independent of the network.

The assumption of independent gradients replaces W^T in the backward pass by the transpose of
another matrix with the law of W. See Yang (arXiv 2006.14548) for when it is right in the limit of
infinite width, and Lillicrap et al. (Nature Communications 7, 13276, 2016) for training with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import check_count, check_positive, check_values
from shaped_attention.figures.panels import OF_SAMPLES, Drawn, Panels, Target, look, styled
from shaped_attention.figures.paper.learning_rates import TARGETS, tokens_after
from shaped_attention.figures.paper.original import RHO_0, quantiles
from shaped_attention.lazy.coordinates import inner
from shaped_attention.lazy.low_rank import Factors
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.networks import start_of, through_layer
from shaped_attention.lazy.optimizers import SGD, State
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.side_by_side import SideBySide
from shaped_attention.lazy.sources import Source
from shaped_attention.lazy.spaces import Frame
from shaped_attention.lazy.tape import Tape
from shaped_attention.lazy.weights import Weights
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.specification import Options, specify

BACKWARD = {"transpose": r"$W^\top$", "independent": "an independent matrix"}
Array = NDArray[np.float64]


class Untied(Matrix):
    """A matrix whose gradients go back through another one, with the same updates."""

    back: Matrix | None = None

    def _product(self, x: Rows, side: int) -> Rows:
        if side == 0:
            return super()._product(x, 0)
        if self.back is None:
            self.back = Matrix(*self._spaces, self.std, f"{self.name}, back")
            self.back.parameters = self.parameters
        return self.back.transposed_after(x)


class UntiedSideBySide(Untied, SideBySide):
    """Matrices side by side whose gradients go back through others."""


class _UntiedWeights(Weights):
    single, together = Untied, UntiedSideBySide


class OneStep(NamedTuple):
    """Losses (2, samples) before and after a step of SGD, and what goes back in both passes.

    Norms of gradients by matrix and of all together, (2, samples), and cosines of the first token
    with its gradient after each layer, (2, depth, samples).
    """

    loss: Array
    norms: dict[str, Array]
    total: Array
    cosine: Array


def one_step(
    layer: Layer, backward: str, *, width: int, depth: int, rate: float, samples: int, seed: int = 0
) -> OneStep:
    """Return a step of SGD with gradients that go back through W^T, or an independent matrix.

    Tokens, targets and loss are those of `training_losses`. With "transpose" this is
    `simulate_training` number by number.
    """
    spec = specify(
        layer, equicorrelated(len(TARGETS), RHO_0), width=width, steps=depth, dt=1.0 / width,
        samples=samples, seed=seed, options=Options(),
    )  # fmt: skip
    source = Source(samples, spec.seed, spec.dtype, spec.place, 0)
    start, outputs = start_of(spec, width, source), Frame(1, source, explicit=True)
    weights = Weights(source) if backward == "transpose" else _UntiedWeights(source)
    goal = torch.tensor(TARGETS, dtype=spec.dtype)
    states: dict[str, State] = {}
    losses, norms, cosines = [], [], []
    for _ in range(2):
        tokens = [start]
        with Tape() as tape:
            for number in range(depth):
                blocks = spec.pattern[number % len(spec.pattern)]
                tokens.append(through_layer(tokens[-1], blocks, number, depth, weights))
            f = weights.product(tokens[-1], outputs, "readout").entries() / width**0.5
            loss = 0.5 * ((f[..., 0] - goal) ** 2).sum(-1)
        tape.backward(loss)
        losses.append(loss.detach().numpy())
        cosines.append([_cosine(x, tape.gradient(x)) for x in tokens[1:]])
        gradients: dict[str, Factors] = {}
        for name, parameter in weights.items():
            states.setdefault(name, State(parameter))
            gradient = parameter.gradient()
            assert gradient is not None
            gradients[name] = gradient
        for matrix in weights.matrices:
            matrix.forget_gradient()
        norms.append({name: g.norm().numpy() for name, g in gradients.items()})
        SGD(rate).step(states, gradients)
    by_name = {name: np.stack([row[name] for row in norms]) for name in norms[0]}
    total = np.sqrt(sum(x**2 for x in by_name.values()))
    return OneStep(np.stack(losses), by_name, total, np.array(cosines))


def _cosine(x: Rows, g: Rows | None) -> Array:
    assert g is not None
    product = inner(x, g)[:, 0, 0] / (x.squares() * g.squares())[:, 0, 0].sqrt()
    cosine: Array = product.detach().numpy()
    return cosine


@recorded()
def figure_independent_gradients(
    widths: Sequence[int] = (64, 4096),
    depths: Sequence[int] = (2, 8, 32),
    rate: float = 0.05,
    samples: int = 400,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """A step of SGD whose gradients go back through W^T, or through an independent matrix.

    Layers are those of `figure_learning_rate`, with branches of weight 1 / sqrt L. Returns, for
    the largest depth, `gradient_norm` and `cosine` (backward, width, step, layer, level), the norm
    of the gradient of W_V, and sqrt n cos(x_l, g_l) of the first token, before and after the step;
    and `drop` (backward, width, depth, level), by how much the loss falls over rate |gradient|^2,
    which is 1 to first order for a gradient. Levels are quantiles over samples and the mean.

    Parameters
    ----------
    widths, depths, rate
        Widths n, depths L, and the learning rate.
    samples, seed, progress
        Number of samples, seed, and whether to show progress.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    for name, counts in (("widths", widths), ("depths", depths)):
        check_values(name, counts)
        for count in counts:
            check_count(name, count)
    check_positive("rate", rate)
    deepest = max(depths)
    cells = [(kind, n, depth) for kind in BACKWARD for n in widths for depth in depths]
    norms, cosines, drops = [], [], []
    for kind, n, depth in progress_bar("networks", progress, cells):
        # The same networks for both kinds.
        study = {"study": "independent gradients", "width": n, "depth": depth}
        step = one_step(
            tokens_after(depth**-0.5), kind, width=n, depth=depth, rate=rate, samples=samples,
            seed=derived_seed(seed, study),
        )  # fmt: skip
        fall = (step.loss[0] - step.loss[1]) / (rate * step.total[0] ** 2)
        drops.append(quantiles(fall))
        if depth == deepest:
            by_layer = np.stack([step.norms[f"{k}.0.2"] for k in range(depth)], axis=1)
            norms.append(quantiles(by_layer))
            cosines.append(quantiles(n**0.5 * step.cosine))
    by_layer_dims = ("backward", "width", "step", "layer", "level")
    shape = (len(BACKWARD), len(widths))
    return xr.Dataset(
        {
            "gradient_norm": (by_layer_dims, np.reshape(norms, (*shape, 2, deepest, 4))),
            "cosine": (by_layer_dims, np.reshape(cosines, (*shape, 2, deepest, 4))),
            "drop": (
                ("backward", "width", "depth", "level"), np.reshape(drops, (*shape, -1, 4)),
            ),
        },
        coords={
            "backward": list(BACKWARD), "width": list(widths), "depth": list(depths),
            "layer": np.arange(deepest), "level": ["5 %", "median", "95 %", "mean"],
        },
    )  # fmt: skip


@styled
def independence_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw norms and cosines by layer, at the largest width, and the fall of the loss by depth."""
    width = int(data["width"].max())
    names = ["gradients before the step", "gradients after it", "tokens before it", "the step"]
    panels = Panels(ax, names, (10.5, 7.4), columns=2, titles=True)
    layers = data["layer"].values
    for k, (kind, label) in enumerate(BACKWARD.items()):
        at = data.sel(backward=kind, width=width)
        shown = [
            at["gradient_norm"].isel(step=0), at["gradient_norm"].isel(step=1),
            at["cosine"].isel(step=0),
        ]  # fmt: skip
        for axis, values in zip(panels.axes, shown, strict=False):
            low, median, high, _ = values.values.T
            axis.fill_between(layers, low, high, color=look(k)["color"], alpha=0.2, linewidth=0)
            axis.plot(layers, median, label=label, **look(k))
        for n, marker in zip(data["width"].values, "osD^v", strict=False):
            low, median, high, _ = data["drop"].sel(backward=kind, width=n).values.T
            panels.axes[3].errorbar(
                data["depth"] * (1.0 + 0.06 * (k - 0.5)), median, [median - low, high - median],
                fmt=marker, color=look(k)["color"], capsize=2, label=f"{label}, $n$ = {n:,}",
            )  # fmt: skip
    for axis in panels.axes[:2]:
        axis.set(yscale="log", xlabel=r"layer $\ell$", ylabel=r"$|\nabla_{W_V}|$")
    panels.axes[0].legend(fontsize="small", title="back through", loc="lower left")
    panels.axes[2].set(xlabel=r"layer $\ell$", ylabel=r"$\sqrt{n}\,\cos(x_\ell, g_\ell)$")
    panels.axes[3].set(
        xscale="log", xlabel="depth $L$", ylabel=r"fall of the loss / $\eta\,|\nabla|^2$"
    )
    panels.axes[3].set_xticks(data["depth"].values, [f"{depth}" for depth in data["depth"].values])
    panels.axes[3].minorticks_off()
    panels.axes[3].set_ylim(0.0, None)
    panels.axes[3].legend(fontsize="x-small", loc="lower left")
    return panels.finish(
        title, note=f"lines, points: medians; {OF_SAMPLES}; (a)–(c): n = {width:,}"
    )
