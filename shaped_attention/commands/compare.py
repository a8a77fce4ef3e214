"""The main job as a command: it reads arguments, calls `study` and prints.

The libraries that compute are imported when it runs, not for its help text.
"""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shaped_attention.commands.options import (
    HELP,
    Choice,
    check_new,
    device_option,
    optional_figure,
    overwrite_option,
    progress_option,
    seed_option,
    with_options,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_OPTIONS = [
    click.option("--tokens", type=int, metavar="M",
                 help="Start from M equicorrelated tokens of variance 1."),
    click.option("--rho", default=0.2, help="Correlation of these tokens (with --tokens)."),
    click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE",
                 help="Start from tokens X_0, an array of shape (m, n_0) in a .npy file, "
                 "with V_0 = X_0 X_0^T / n_0.  [default: 8 tokens of a real sentence]"),
    click.option("--covariance", type=click.Path(path_type=Path), metavar="FILE",
                 help="Start from an m x m covariance V_0 in a .npy file."),
    click.option("--scale", default="1", metavar="NUMBER|raw",
                 help="Rescale V_0 so that the mean of its diagonal is this number, as an input "
                 "normalisation would; 'raw' leaves V_0 unchanged."),
    click.option("--layer", "kind", type=Choice(["attention", "mlp", "transformer"]),
                 default="transformer",
                 help="Blocks of a layer; 'transformer' is attention followed by an MLP."),
    click.option("--gamma", default=0.35,
                 help="Weight of the attention branch, in [0, 1]; the skip connection has weight "
                 "sqrt(1 - gamma^2)."),
    click.option("--tau0", default=1.0,
                 help="Temperature: logits are divided by tau0 sqrt(n n_k)."),
    click.option("--heads", default=1, help="Number H of heads."),
    click.option("--key-size", type=int,
                 help="Key size n_k, the number of columns of a head's W_Q and W_K.  [default: "
                 "width / heads]"),
    click.option("--query-bias", default=0.0, help="Variance of the query biases."),
    click.option("--key-bias", default=0.0, help="Variance of the key biases."),
    click.option("--causal/--no-causal", default=False,
                 help="Causal mask: token a sees tokens 0, ..., a."),
    click.option("--output-projection/--no-output-projection", default=False,
                 help="Apply an output projection W_O after the heads."),
    click.option("--mlp-gamma", type=float, help="Weight of the MLP branch.  [default: --gamma]"),
    click.option("--c-plus", default=0.0,
                 help="The ReLU slope for positive inputs is 1 + c_plus / sqrt n."),
    click.option("--c-minus", default=-1.0,
                 help="The ReLU slope for negative inputs is 1 + c_minus / sqrt n."),
    click.option("--width", default=200, help=HELP["width"]),
    click.option("--depth", default=150, help="Number L of layers; the SDE runs on [0, L / n]."),
    click.option("--step", default=0.01,
                 help="Step of the SDE; it must divide L / n."),
    click.option("--samples", default=4096,
                 help="Number of samples of the exact chain and the SDE."),
    click.option("--network-samples", default=512,
                 help="Number of samples of networks with real weight matrices (each costs about "
                 "1,000 times as much as one of the chain)."),
    seed_option,
    click.option("--radius", type=float,
                 help="Stop paths where |V| (Frobenius norm) reaches this radius.  [default: 10^4 "
                 "|V_0|]"),
    device_option,
    click.option("--dtype", type=Choice(["float64", "float32"]), default="float64",
                 help="Floating-point precision."),
    click.option("--memory", metavar="SIZE",
                 help="Memory for working arrays, such as '8 GiB'.  [default: 2 GiB; for a single "
                 "sample, half of what is free]"),
    click.option("--figures", type=click.Path(path_type=Path), help=HELP["figures"],
                 show_default="the folder for the data"),
    click.option("--results", type=click.Path(path_type=Path), default=Path("results"),
                 help=HELP["results"]),
    overwrite_option,
    progress_option,
]  # fmt: skip


@click.command(name="compare")
@with_options(_OPTIONS)
@click.pass_context
def compare_command(
    context: click.Context,
    /,
    figures: Path | None,
    results: Path,
    tokens: int | None,
    token_file: Path | None,
    covariance: Path | None,
    rho: float,
    scale: str,
    memory: str | None,
    overwrite: bool,
    progress: bool | None,
    **options: Any,
) -> None:
    """Compare finite shaped transformers with their limiting SDE.

    Samples the covariance V of m tokens from (1) networks with real weight matrices, (2) the exact
    chain of their covariances and (3) the limiting SDE; prints the distances between their laws at
    the last layer with confidence bounds, plots the results, and saves network.nc, chain.nc, sde.nc
    and comparison.json in the folder for the data. Files of an earlier command are replaced only
    with --overwrite.
    """
    from shaped_attention.blocks.catalogue import named_layer, rescaled
    from shaped_attention.commands import study
    from shaped_attention.io.storage import check_writable
    from shaped_attention.libraries import extras
    from shaped_attention.statistics.comparison_text import format_comparison

    _refuse_unused(context)
    v0, labels, origin = _start(tokens, rho, token_file, covariance)
    raw = float(v0.diagonal().mean())
    v0 = rescaled(v0, scale)
    layer = named_layer(
        options["kind"],
        mask="causal" if options["causal"] else None,
        **{name: options[name] for name in _LAYER_OPTIONS},
    )
    asked = study.Study(
        layer=layer, v0=v0, **{name: options[name] for name in _STUDY_OPTIONS},
        options={name: options[name] for name in _SAMPLER_OPTIONS} | {"memory": memory},
    )  # fmt: skip
    asked.check()
    with extras():
        import h5netcdf  # noqa: F401  so that a missing library is reported before the work
    check_writable(results, "results")
    if figures is not None:
        check_writable(figures, "figures")
    for option, files in study.files(results, figures or results).items():
        check_new(f"another folder with {option}", overwrite, files)
    width, depth = options["width"], options["depth"]
    click.echo(f"V_0: {origin}; m = {len(v0)}, mean diagonal {raw:.4g}", nl=False)
    kept = math.isclose(float(v0.diagonal().mean()), raw, rel_tol=1e-9)
    click.echo("" if kept else f", rescaled to {float(scale):g} (--scale)")
    click.echo(f"layer: {', '.join(map(str, layer))}")
    click.echo(f"width n = {width}, depth L = {depth}, t in [0, {depth / max(width, 1):g}]\n")
    results_of, tables = asked.run(progress)
    main_table, *others = study.PAIRS
    click.echo(f"{main_table}\n{format_comparison(tables[main_table])}\n")
    for name in others:
        click.echo(f"{name}\n{fill(tables[name].attrs['verdict'], width=110)}\n")
    title = f"{origin}, n = {width}, L = {depth}; the most correlated pair of tokens"
    written = study.write_study(results_of, tables, results)
    with optional_figure(written):
        written += study.draw_study(results_of, figures or results, labels, title)


_LAYER_OPTIONS = ("gamma", "tau0", "heads", "output_projection", "key_size", "query_bias",
                  "key_bias", "mlp_gamma", "c_plus", "c_minus")  # fmt: skip

_STUDY_OPTIONS = ("width", "depth", "step", "samples", "network_samples", "seed")

_SAMPLER_OPTIONS = ("radius", "device", "dtype")


def _refuse_unused(context: click.Context) -> None:
    """Raise ValueError if an option was given that would have no effect."""
    from shaped_attention.blocks.catalogue import UNUSED

    options = context.params

    def is_typed(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source is not ParameterSource.DEFAULT

    if is_typed("rho") and options["tokens"] is None:
        raise ValueError(f"--rho {options['rho']:g} needs --tokens")
    for parameter in UNUSED[options["kind"]]:
        name = "causal" if parameter == "mask" else parameter
        # The weight of an MLP is --gamma unless --mlp-gamma is given.
        if is_typed(name) and not (name == "gamma" and options["mlp_gamma"] is None):
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} has no effect with --layer {options['kind']}")


def _start(
    tokens: int | None,
    rho: float,
    token_file: Path | None,
    covariance: Path | None,
) -> tuple[NDArray[np.float64], list[str] | None, str]:
    """The starting covariance, words for the tokens if there are any, and where it is from."""
    from shaped_attention.io.inputs import example_tokens, read_covariance, read_tokens
    from shaped_attention.numerics.covariance import check_covariance, covariance_of, equicorrelated

    starts = [
        name
        for name, value in (
            ("--tokens", tokens), ("--token-file", token_file), ("--covariance", covariance)
        )
        if value is not None
    ]  # fmt: skip
    if len(starts) > 1:
        raise ValueError(f"{' and '.join(starts)} cannot be used together")
    if token_file is not None:
        return covariance_of(read_tokens(token_file)), None, f"tokens of {token_file.name}"
    if covariance is not None:
        v0 = check_covariance(read_covariance(covariance), f"--covariance {covariance}")
        return v0, None, f"covariance of {covariance.name}"
    if tokens is not None:
        return equicorrelated(tokens, rho), None, f"{tokens} tokens with correlation {rho:g}"
    words, x = example_tokens()
    return covariance_of(x), words, "8 tokens of Moby-Dick"
