"""The commands that simulate the figures of the paper, and stopping times."""

from __future__ import annotations

from pathlib import Path

import click
import xarray as xr

from shaped_attention.blocks import ShapedAttention
from shaped_attention.commands.options import figures_option, results_option
from shaped_attention.figures import plots
from shaped_attention.figures.paper import catalogue as paper_figures
from shaped_attention.figures.paper import original
from shaped_attention.figures.paper import plots as paper_plots
from shaped_attention.figures.recipes import make
from shaped_attention.io.storage import check_writable
from shaped_attention.numerics.covariance import equicorrelated
from shaped_attention.samplers.results import save
from shaped_attention.statistics.stopping import explosion_curves, stopping_map

GAMMAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
TAU0S = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
WIDTHS = (50, 200, 800, 3200, 12800)


_LISTED = "\n".join(f"  {name:12} {figure.about}" for name, figure in paper_figures.FIGURES.items())


@click.command(
    name="paper",
    epilog=f"\b\nFigures (5 to 100 seconds each on 2 cores; numbers are the paper's):\n{_LISTED}",
)
@click.argument("figure")
@click.option("--samples", type=int, help="Samples; by default those of the figure.")
@click.option(
    "--tokens",
    type=int,
    help="Tokens m >= 2.  [default: 4; in figures 2 and heads 2]",
)
@click.option("--seed", type=int, default=0, show_default=True)
@figures_option
@results_option
def paper_command(
    figure: str,
    samples: int | None,
    tokens: int | None,
    seed: int,
    figures: Path,
    results: Path | None,
) -> None:
    """Simulate FIGURE of The Shaped Transformer (arXiv 2306.17759) again, or one beyond it."""
    options = {"samples": samples, "tokens": tokens}
    if figure == "tokens" and tokens is not None:
        raise click.ClickException(f"--tokens {tokens}: figure 'tokens' has all of 2, 4, 8, 16")
    try:
        check_writable(figures, "figures")
        if results is not None:
            check_writable(results, "results")
        drawn, data = make(
            paper_figures.FIGURES,
            figure,
            seed=seed,
            **{k: v for k, v in options.items() if v is not None},
        )
        paths = plots.save_figure(drawn, figures / f"paper-{figure}")
        if results is not None:
            paths.append(save(data, results / f"paper-{figure}.nc"))
        for path in paths:
            click.echo(path)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    click.echo(data)


@click.command(name="stopping")
@click.option("--gamma", type=float, default=0.6, show_default=True, help="Of the curves.")
@click.option("--tau0", type=float, default=0.5, show_default=True, help="Of the curves.")
@click.option("--tokens", type=int, default=4, show_default=True, help="Number of tokens m.")
@click.option("--samples", type=int, default=4096, show_default=True, help="Of the curves.")
@click.option("--map-samples", type=int, default=100, show_default=True, help="Of a map's cell.")
@click.option("--seed", type=int, default=0, show_default=True)
@figures_option
@results_option
def stopping_command(
    gamma: float,
    tau0: float,
    tokens: int,
    samples: int,
    map_samples: int,
    seed: int,
    figures: Path,
    results: Path | None,
) -> None:
    """When eigenvalues leave [10^-4, 10^4], and how probable an explosion is.

    A map of the exit times over (gamma, tau_0), chain and SDE side by side; and at one gamma and
    tau_0 the probability that |V| has reached 10^4 |V_0|, for chains of several widths and the SDE
    with the fixed step 0.0025, which decides how many of its paths explode.
    About half a minute on 2 cores.
    """
    if map_samples < 1:
        raise click.ClickException(f"--map-samples {map_samples}: a number >= 1 is needed")
    try:
        check_writable(figures, "figures")
        if results is not None:
            check_writable(results, "results")
        v0 = equicorrelated(tokens, original.RHO_0)
        curves = explosion_curves(
            ShapedAttention(gamma, tau0), v0, WIDTHS, samples=samples, seed=seed
        )
        title = rf"$|V|$ reaches $10^4\,|V_0|$: $\gamma={gamma:g}$, $\tau_0={tau0:g}$, m={tokens}"
        drawn = paper_plots.explosion_probabilities(curves, title)
        data = stopping_map(v0, GAMMAS, TAU0S, samples=map_samples, seed=seed)
        title = rf"First time an eigenvalue leaves $[10^{{-4}},10^4]$: $n=200$, m={tokens}"
        map_ = paper_plots.stopping_maps(data, title)
        paths = plots.save_figure(drawn, figures / "stopping-explosion")
        paths += plots.save_figure(map_, figures / "stopping-map")
        if results is not None:
            joined = xr.concat(curves.values(), xr.DataArray(list(curves), dims="curve"))
            paths.append(save(joined, results / "stopping-explosion.nc"))
            paths.append(save(data, results / "stopping-map.nc"))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    for name, curve in curves.items():
        last = curve.isel(time=-1)
        click.echo(
            f"{name:9} reached by t = {float(last['time']):g}: {float(last['probability']):.3f} "
            f"[{float(last['lower']):.3f}, {float(last['upper']):.3f}] (95 %)"
        )
    left = (data["exit_time"] < data.attrs["horizon"]).mean(["gamma", "tau0", "sample"]).values
    click.echo(
        f"map: of all paths {left[0]:.3f} (chain) and {left[1]:.3f} (SDE) left [10^-4, 10^4] "
        f"before t = {data.attrs['horizon']:g}"
    )
    for path in paths:
        click.echo(path)
