"""How random the neural tangent kernel is when depth and width grow together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.linalg import expm

from shaped_attention.blocks import ShapedAttention
from shaped_attention.checks import check_count, check_positive, check_values
from shaped_attention.figures.panels import Drawn, Panels, Target, draw_density, look, styled
from shaped_attention.figures.paper.original import RHO_0
from shaped_attention.lazy.tangent_kernel import neural_tangent_kernel
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.progress import progress_bar
from shaped_attention.results.provenance import recorded

GAMMA = 2**-0.5


def kernel_moment(gamma: float, time: float) -> float:
    """Return E Theta^2 / (E Theta)^2 of one token in the limit, after the time L / n.

    Of shaped attention without W_O, which is linear if there is one token, so that only the
    values' weights count: k = gamma^2 (2 - gamma^2). For a Gaussian readout v, Theta is the mean
    of <v, dx>^2 / n over tangents dx by independent N(0, 1) directions of all weights, so that
    E Theta^2 is the mean of D_1 D_2 + 2 D_12^2 with D_12 = <dx_1, dx_2> / n of two directions and
    D_i = |dx_i|^2 / n. With V = |x|^2 / n and C_1 = <x, dx_1> / n let b = E V D_1, c = E C_1^2,
    d = E D_1 D_2 and e = E D_12^2. They are 0 at first and solve

        b' = gamma^2 e^(2 k t) + 2 k c,      c' = k (b + c),
        d' = 2 gamma^2 b + 2 k e,            e' = k (d + e),

    and E Theta = gamma^2 t. If a mean over many outputs replaces v, E Theta^2 is d alone.
    """
    k, rate = gamma**2 * (2.0 - gamma**2), gamma**2
    generator = np.zeros((5, 5))
    # In the order e^(2 k t), b, c, d, e.
    generator[0, 0] = 2.0 * k
    generator[1, [0, 2]] = rate, 2.0 * k
    generator[2, [1, 2]] = k
    generator[3, [1, 4]] = 2.0 * rate, 2.0 * k
    generator[4, [3, 4]] = k
    d, e = expm(generator * time)[3:, 0]
    return float(d + 2.0 * e) / (rate * time) ** 2


@recorded()
def figure_tangent_kernel(
    ratios: Sequence[float] = (0.1, 0.3, 0.6, 1.0),
    widths: Sequence[int] = (16, 64, 256),
    tokens: Sequence[int] = (1,),
    samples: int = 2000,
    seed: int = 0,
    progress: bool | None = None,
) -> xr.Dataset:
    """Samples of the tangent kernel Theta_00 of shaped attention divided by their mean.

    gamma = 1/sqrt 2, tau_0 = 1, without W_O. Returns `kernel` (token_count, width, ratio, sample);
    `moment` and `moment_error` (token_count, width, ratio), E Theta^2 / (E Theta)^2 with its
    standard error, both too small at large ratios, where rare samples carry the moment; and
    `limit` (ratio), this moment of one token in the limit, from `kernel_moment`.

    Parameters
    ----------
    ratios, widths, tokens
        Ratios L / n of depth to width, widths n, and numbers of tokens. With several tokens V can
        explode in the limit, and moments of samples then mean little at large ratios.
    samples, seed, progress
        Number of samples, seed, and whether to show progress.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    for name, values in (("ratios", ratios), ("widths", widths), ("tokens", tokens)):
        check_values(name, values)
    for ratio in ratios:
        check_positive("ratios", ratio)
    for name, counts in (("widths", widths), ("tokens", tokens)):
        for count in counts:
            check_count(name, count)
    cells = [(m, n, ratio) for m in tokens for n in widths for ratio in ratios]
    kernels = []
    for m, n, ratio in progress_bar("kernels", progress, cells):
        study = {"study": "tangent kernel", "tokens": m, "width": n, "ratio": ratio}
        data = neural_tangent_kernel(
            ShapedAttention(GAMMA), equicorrelated(m, RHO_0), width=n,
            depth=max(1, round(ratio * n)), samples=samples, seed=derived_seed(seed, study),
            progress=False,
        )  # fmt: skip
        kernels.append(data["kernel"].values[:, 0, 0])
    kernel = np.reshape(kernels, (len(tokens), len(widths), len(ratios), samples))
    kernel /= kernel.mean(-1, keepdims=True)
    moment = (kernel**2).mean(-1)
    # The mean in the denominator moves with the samples.
    influence = kernel**2 - 2.0 * moment[..., None] * kernel
    dims = ("token_count", "width", "ratio")
    return xr.Dataset(
        {
            "kernel": ((*dims, "sample"), kernel),
            "moment": (dims, moment),
            "moment_error": (dims, influence.std(-1) / samples**0.5),
            "limit": (("ratio",), [kernel_moment(GAMMA, ratio) for ratio in ratios]),
        },
        coords={"token_count": list(tokens), "width": list(widths), "ratio": list(ratios)},
    )


@styled
def kernel_panels(data: xr.Dataset, title: str | None = None, *, ax: Target = None) -> Drawn:
    """Draw densities of the kernel at the smallest and the largest ratio, and its second moment."""
    ratios = data["ratio"].values
    shown = [ratios.min(), ratios.max()]
    names = [rf"one token, $L/n$ = {ratio:g}" for ratio in shown]
    first = int(data["token_count"].values[0])
    if first > 1:
        names = [name.replace("one token", f"$m$ = {first}") for name in names]
    panels = Panels(ax, [*names, "second moment"], (11.7, 3.9), titles=True)
    for axis, ratio in zip(panels.axes, shown, strict=False):
        for k, n in enumerate(data["width"].values):
            values = data["kernel"].sel(ratio=ratio, width=n).isel(token_count=0).values
            draw_density(axis, values, support=(0.0, np.inf), label=f"$n$ = {n}", **look(k))
        axis.set(xlim=(0.0, 4.0), xlabel=r"$\Theta_{00} / \mathbb{E}\,\Theta_{00}$")
        axis.legend(fontsize="small")
    panels.axes[0].set_ylabel("density")
    axis = panels.axes[2]
    fine = np.linspace(0.0, shown[1], 101)[1:]
    limit = [kernel_moment(GAMMA, time) for time in fine]
    axis.plot(fine, limit, color="black", label="limit, one token")
    cells = [(m, n) for m in data["token_count"].values for n in data["width"].values]
    for k, (m, n) in enumerate(cells):
        at = data.sel(token_count=m, width=n)
        # Next to each other, since they are alike.
        place = ratios + 0.012 * (k - 0.5 * (len(cells) - 1))
        axis.errorbar(
            place, at["moment"], 2.0 * at["moment_error"], fmt="osD^v"[k % 5], capsize=2,
            markersize=4, color=look(k)["color"],
            label=f"$n$ = {n}" if len(cells) == data.sizes["width"] else f"$m$ = {m}, $n$ = {n}",
        )  # fmt: skip
    moment = r"$\mathbb{E}\,\Theta_{00}^2 / (\mathbb{E}\,\Theta_{00})^2$"
    axis.set(xlabel="$L/n$", ylabel=moment, ylim=(0.9, None))
    axis.legend(fontsize="small")
    return panels.finish(title, note="bars: two standard errors")
