"""What depth does to the tokens of a model: the command `model`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shaped_attention.checks import argument_error, check_count
from shaped_attention.commands.options import (
    check_new,
    figures_option,
    optional_figure,
    overwrite_option,
    progress_option,
    results_option,
    save_png,
    seed_option,
    with_options,
)

if TYPE_CHECKING:
    from shaped_attention.architectures.model import Model

_WIDTH = 110
_IDS = "a comma-separated list of integers, or a file that contains integers"

_OPTIONS = [
    click.option("--tokens", default=64, metavar="M",
                 help="Number of tokens, all different."),
    click.option("--ids", metavar="LIST|FILE",
                 help="Token ids: a comma-separated list, or a file in which commas, spaces or "
                 "line breaks separate them."),
    click.option("--samples", default=16, help="Number of independent models."),
    seed_option,
    click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE",
                 help="Change a field of the configurations; the value is JSON, for example "
                 "num_hidden_layers=200. Can be repeated."),
    click.option("--ignore", multiple=True, metavar="FIELD",
                 help="Leave out a field of the configurations that would be refused, at your own "
                 "risk. Can be repeated."),
    click.option("--every", type=int, metavar="K",
                 help="Print every K-th layer in the table.  [default: all if there are at most "
                 "20, otherwise 16 of them]"),
    click.option("--entropy/--no-entropy", default=True,
                 help="Compute the entropy of the attention weights."),
    click.option("--accept-approximation", is_flag=True,
                 help="If the initialisation of the model is not Gaussian, use Gaussian weights "
                 "of the same variance."),
    click.option("--describe", is_flag=True,
                 help="Print how the configurations were read, and stop."),
    click.option("--list", "listed", is_flag=True,
                 help="Print the names of the shipped configurations, and stop."),
    click.option("--families", is_flag=True,
                 help="Print which values of model_type are covered, approximated and refused, "
                 "and stop."),
    figures_option,
    results_option,
    overwrite_option,
    progress_option,
]  # fmt: skip


@click.command(name="model")
@click.argument("configs", metavar="CONFIG...", nargs=-1)
@with_options(_OPTIONS)
@click.pass_context
def model_command(
    context: click.Context,
    /,
    configs: tuple[str, ...],
    describe: bool,
    listed: bool,
    families: bool,
    changes: tuple[str, ...],
    ignore: tuple[str, ...],
    **options: Any,
) -> None:
    """Show what depth does to the tokens of a model at initialisation, from its configuration.

    CONFIG is a config.json of the transformers library, a folder with one, Meta's params.json, a
    file with nanoGPT's fields, or the name of a shipped configuration (--list). Prints cosines,
    effective rank, norms and entropy of attention by layer (median, and 5 and 95 % quantiles over
    samples) and a verdict, and plots these quantities in model-CONFIG.png; the name also contains
    what --set changes and --ignore leaves out. Files of an earlier command are replaced only with
    --overwrite. Given two configurations, it also prints how they differ, and plots both.

    Takes seconds for GPT-2, and a minute for models with 70 billion parameters.
    """
    if families or listed:
        from shaped_attention.architectures.configurations import shipped_configurations
        from shaped_attention.architectures.coverage import coverage

        click.echo(coverage() if families else "\n".join(shipped_configurations()))
        return
    if not 1 <= len(configs) <= 2:
        raise ValueError(f"CONFIG must be given once or twice; got {len(configs)}")
    models = _models(configs, _changes(changes) | {"ignore": ignore})
    if describe:
        from shaped_attention.architectures.describe import describe as in_words

        click.echo("\n\n".join(in_words(model) for model in models.values()))
        return
    source = context.get_parameter_source("tokens")
    if options["ids"] is not None and source is not ParameterSource.DEFAULT:
        raise ValueError("--ids and --tokens cannot be used together")
    _run(models, (*changes, *(f"without_{name}" for name in ignore)), **options)


def _run(
    models: dict[str, Model],
    changes: tuple[str, ...],
    *,
    tokens: int,
    ids: str | None,
    samples: int,
    seed: int,
    every: int | None,
    entropy: bool,
    accept_approximation: bool,
    figures: Path,
    results: Path | None,
    overwrite: bool,
    progress: bool | None,
) -> None:
    from shaped_attention.architectures.layer_summary import LAYER_NUMBERS, model_summary
    from shaped_attention.architectures.verdict import compared, summary_table, verdict
    from shaped_attention.io.storage import check_writable
    from shaped_attention.models.simulate import simulate_model
    from shaped_attention.results.files import save

    if every is not None:
        check_count("every", every)
    start = tokens if ids is None else _numbers(ids)
    count = start if isinstance(start, int) else len(start)
    counted = f"{count} token{'s' if count != 1 else ''}"
    # A single token has no cosine, and what is kept in place of V has no missing numbers.
    keep = LAYER_NUMBERS if count > 1 else "V"
    check_writable(figures, "figures")
    picture = figures / f"{_stem(*models, *changes)}.png"
    check_new("another folder with --figures", overwrite, [picture])
    places = {}
    if results is not None:
        check_writable(results, "results")
        places = {name: results / f"{_stem(name, *changes)}.nc" for name in models}
        check_new("another folder with --results", overwrite, places.values())
    summaries, written = {}, []
    for name, model in models.items():
        result = simulate_model(
            model, start, samples=samples, seed=seed, keep=keep, entropy=entropy,
            accept_approximation=accept_approximation, progress=progress,
        )  # fmt: skip
        summary = summaries[name] = model_summary(result)
        about = f"{model.family}, {model.depth} layers of width {model.width}"
        click.echo(f"{name}: {about}; {counted}, {samples} samples")
        for text in model.adapted:
            click.echo(f"adapted: {text}")
        click.echo(f"\n{summary_table(summary, every)}\n")
        click.echo(f"{fill(verdict(summary), _WIDTH)}\n")
        if places:
            written.append(save(result, places[name]))
    if len(summaries) > 1:
        click.echo(f"{' and '.join(summaries)}\n{fill(compared(summaries), _WIDTH)}\n")
    title = f"{' and '.join(summaries)} at initialisation, {counted}"
    with optional_figure(written):
        from shaped_attention.figures.plots import model_layers

        written.append(save_png(model_layers(summaries, title), picture))


def _models(configs: Iterable[str], changes: dict[str, Any]) -> dict[str, Model]:
    """Return the models by different names."""
    from shaped_attention.architectures.reading import model_from_config

    models: dict[str, Model] = {}
    for config in configs:
        model = model_from_config(config, **changes)
        name = str(model)
        models[f"{name} ({config})" if name in models else name] = model
    return models


def _stem(*names: str) -> str:
    """Return the name of a file about models and fields that were changed."""
    return "-".join(["model", *(re.sub(r"[^\w.=-]+", "_", name).strip("_") for name in names)])


def _changes(words: Iterable[str]) -> dict[str, Any]:
    """Return fields and their values from "field=value"; what is not JSON is text."""
    changes: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not name.isidentifier() or not sign:
            raise argument_error("--set", "FIELD=VALUE", word)
        if name in changes:
            raise ValueError(f"--set {word} sets {name} a second time")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    return changes


def _numbers(ids: str) -> list[int]:
    """Return the numbers of tokens in a list or a file."""
    words = _words(ids)
    if not all(word.lstrip("-").isdigit() for word in words):
        try:
            words = _words(Path(ids).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise argument_error("--ids", _IDS, ids) from None
    try:
        return [int(word) for word in words]
    except ValueError:
        raise argument_error("--ids", _IDS, ids) from None


def _words(text: str) -> list[str]:
    """Return the words between commas, spaces and brackets."""
    return re.sub(r"[\[\],]", " ", text).split()
