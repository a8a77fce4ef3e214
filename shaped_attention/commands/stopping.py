"""Draw stopping times: the command `stopping`."""

from __future__ import annotations

from pathlib import Path

import click

from shaped_attention.commands.figures import check_places, write_figure
from shaped_attention.commands.options import (
    HELP,
    figures_option,
    progress_option,
    results_option,
    seed_option,
    with_options,
)

GAMMAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
TAU0S = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
WIDTHS = (50, 200, 800, 3200, 12800)


_OPTIONS = [
    click.option("--gamma", default=0.6,
                 help="Weight of the attention branch for the probability curves."),
    click.option("--tau0", default=0.5,
                 help="Temperature for the probability curves: logits are divided by tau0 sqrt(n "
                 "n_k)."),
    click.option("--tokens", default=4, metavar="M", help=HELP["tokens"]),
    click.option("--samples", default=4096, help="Number of samples per curve."),
    click.option("--map-samples", default=100, help="Number of samples per cell of the map."),
    seed_option,
    figures_option,
    results_option,
    progress_option,
]  # fmt: skip


@click.command(name="stopping")
@with_options(_OPTIONS)
def stopping_command(
    gamma: float,
    tau0: float,
    tokens: int,
    samples: int,
    map_samples: int,
    seed: int,
    figures: Path,
    results: Path | None,
    progress: bool | None,
) -> None:
    """Plot when eigenvalues leave [10^-4, 10^4], and how often |V| reaches 10^4 |V_0|.

    One figure maps the exit times over (gamma, tau_0), chain and SDE side by side. The other shows,
    for one gamma and tau_0, the probability that |V| has reached 10^4 |V_0| by each time, for
    chains of several widths and the SDE.

    Takes about a minute on 2 cores.
    """
    from shaped_attention.blocks import ShapedAttention
    from shaped_attention.checks import check_count
    from shaped_attention.figures.paper import plots
    from shaped_attention.figures.paper.original import RHO_0
    from shaped_attention.numerics.covariance import equicorrelated
    from shaped_attention.statistics.stopping import explosion_table, stopping_map

    check_count("map_samples", map_samples)
    check_places(figures, results)
    v0 = equicorrelated(tokens, RHO_0)
    table = explosion_table(
        ShapedAttention(gamma, tau0), v0, WIDTHS, samples=samples, seed=seed, progress=progress
    )
    title = (
        r"$|V|$ reaches $10^4\,|V_0|$ in wide chains as often as in the SDE, in narrow ones rarely"
        f"\n$\\gamma={gamma:g}$, $\\tau_0={tau0:g}$, $m={tokens}$"
    )
    drawn = plots.explosion_probabilities(table, title)
    data = stopping_map(v0, GAMMAS, TAU0S, samples=map_samples, seed=seed, progress=progress)
    title = (
        r"At small $\tau_0$ eigenvalues leave $[10^{-4},10^4]$, sooner and more often in the SDE"
        f"\nfirst exit of an eigenvalue of $V$: $n=200$, $m={tokens}$"
    )
    paths = write_figure("stopping-explosion", drawn, table, figures, results)
    paths += write_figure("stopping-map", plots.stopping_maps(data, title), data, figures, results)
    for name in table["curve"].values.tolist():
        last = table.sel(curve=name).isel(time=-1)
        click.echo(
            f"{name:9} reached by t = {float(last['time']):g}: {float(last['probability']):.3f} "
            f"[{float(last['lower']):.3f}, {float(last['upper']):.3f}] (95 %)"
        )
    horizon = data.attrs["horizon"]
    left = (data["exit_time"] < horizon).mean(["gamma", "tau0", "sample"]).values
    click.echo(
        f"map: of all paths {left[0]:.3f} (chain) and {left[1]:.3f} (SDE) left [10^-4, 10^4] "
        f"before t = {horizon:g}"
    )
    for path in paths:
        click.echo(path)
