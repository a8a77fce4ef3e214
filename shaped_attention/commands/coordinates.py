"""Whether a learning rate transfers to other widths or depths: the command `coordinates`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from shaped_attention.commands.model import changed_fields, numbers_in, set_option
from shaped_attention.commands.options import (
    Choice,
    check_new,
    figure_option,
    json_option,
    optional_figure,
    overwrite_option,
    progress_option,
    save_png,
    seed_option,
    with_options,
)

_OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}), "muon": ("Muon", {"lr": 0.02}), "adamw": ("AdamW", {"lr": 0.001}),
    "lion": ("Lion", {"lr": 0.0003}), "signsgd": ("Lion", {"lr": 0.001, "betas": (0.0, 0.0)}),
}  # fmt: skip
"""Names of optimisers and their arguments, by what is typed."""

_OPTIONS = [
    click.option("--widths", metavar="LIST", help="Widths n, such as 256,1024,4096,16384."),
    click.option("--depths", metavar="LIST", help="Numbers L of layers, in place of widths."),
    click.option("--init", metavar="RECIPE",
                 help="Initialisation, as of the command `model`; mup and standard have the "
                 "smallest width as their base."),
    click.option("--rates", type=Choice(["one", "mup"]),
                 help="One learning rate for all parameters, or those of muP by group.  [default: "
                 "mup with --init mup]"),
    click.option("--optimizer", type=Choice(list(_OPTIMIZERS)), default="sgd", help="Optimiser."),
    click.option("--lr", type=float,
                 help="Learning rate at the base width.  [default: 0.1 for sgd, 0.02 for muon, "
                 "0.0003 for lion, 0.001 for others]"),
    click.option("--steps", default=3, help="Number of training steps."),
    click.option("--tokens", default=8, metavar="M", help="Number of tokens, all different."),
    click.option("--samples", default=8, help="Number of models of each size."),
    seed_option,
    set_option,
    click.option("--memory", default="2 GiB", metavar="SIZE",
                 help="Memory for working arrays; with more, more models move together."),
    json_option,
    figure_option("Draw sizes and changes by step, as a PNG file."),
    overwrite_option,
    progress_option,
]  # fmt: skip


@click.command(name="coordinates")
@click.argument("config")
@with_options(_OPTIONS)
def coordinates_command(
    config: str,
    widths: str | None,
    depths: str | None,
    init: str | None,
    rates: str | None,
    optimizer: str,
    lr: float | None,
    steps: int,
    tokens: int,
    samples: int,
    seed: int,
    changes: tuple[str, ...],
    memory: str,
    as_json: bool,
    figure: Path | None,
    overwrite: bool,
    progress: bool | None,
) -> None:
    """Check by width or depth whether a learning rate transfers: muP's picture.

    CONFIG is as for `model`. Trains models of each size for some steps, exactly in law, and prints
    the root mean squares of embeddings, residual stream, attention logits and logits at step 0,
    their changes after each step, the exponents with which they grow, a verdict, and how to read
    it. A width changes the number of heads and of hidden units by the same factor.
    """
    from shaped_attention.architectures.reading import model_from_config
    from shaped_attention.lazy.entrywise import RULES
    from shaped_attention.models.coordinates import coordinate_check
    from shaped_attention.models.coordinates_text import coordinates_data, coordinates_text

    name, settings = _OPTIMIZERS[optimizer]
    (kind,) = (x for x in RULES if x.__name__ == name)
    rule = kind(**(settings if lr is None else settings | {"lr": lr}))
    if figure is not None:
        check_new("another --figure", overwrite, [figure])
    result = coordinate_check(
        model_from_config(config, **changed_fields(changes)), tokens,
        widths=None if widths is None else numbers_in("--widths", widths),
        depths=None if depths is None else numbers_in("--depths", depths),
        init=init, rates=rates, optimizer=rule, steps=steps, samples=samples, seed=seed,
        memory=memory, progress=progress,
    )  # fmt: skip
    if as_json:
        click.echo(json.dumps(coordinates_data(result), indent=1, allow_nan=False))
    else:
        click.echo(coordinates_text(result))
    written: list[Path] = []
    with optional_figure(written, err=as_json):
        if figure is not None:
            from shaped_attention.figures.plots import coordinates

            written.append(save_png(coordinates(result), figure))
