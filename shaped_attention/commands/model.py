"""What depth does to the tokens of a model: the command `model`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from shaped_attention.checks import argument_error, check_count
from shaped_attention.commands.options import (
    check_new,
    figure_option,
    json_option,
    optional_figure,
    overwrite_option,
    progress_option,
    results_option,
    save_png,
    seed_option,
    with_options,
)

if TYPE_CHECKING:
    import xarray as xr

    from shaped_attention.architectures.model import Model

_WIDTH = 110
_IDS = "a comma-separated list of integers, or a file that contains integers"

set_option = click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE",
    help="Change a field of the configurations; the value is JSON, for example "
    "num_hidden_layers=200. Can be repeated.",
)  # fmt: skip

_OPTIONS = [
    click.option("--tokens", default=64, metavar="M",
                 help="Number of tokens, all different."),
    click.option("--ids", metavar="LIST|FILE",
                 help="Token ids: a comma-separated list, or a file in which commas, spaces or "
                 "line breaks separate them."),
    click.option("--targets", metavar="LIST|FILE",
                 help="Token id that each position should predict.  [default: the next token; "
                 "after the last one a random one]"),
    click.option("--samples", type=int,
                 help="Number of independent models.  [default: 4, or 16 with --forward-only]"),
    click.option("--forward-only", is_flag=True,
                 help="Leave out the loss and its gradients."),
    seed_option,
    set_option,
    click.option("--ignore", multiple=True, metavar="FIELD",
                 help="Leave out a field of the configurations that would be refused, at your own "
                 "risk. Can be repeated."),
    click.option("--init", multiple=True, metavar="RECIPE",
                 help="Initialisation: library, library-5.0, gpt2, olmo-normal, olmo-mitchell, "
                 "torchtitan, standard:base=WIDTH, mup:base=WIDTH, or standard deviations such as "
                 "\"down_proj=0.02/sqrt(2*L), wpe=0.01\". Given twice, compares two."),
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
    json_option,
    figure_option("Draw what the table shows, as a PNG file."),
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
    init: tuple[str, ...],
    **options: Any,
) -> None:
    """Show a model at step 0: its tokens by layer, its loss and its gradients.

    CONFIG is a config.json of the transformers library, a folder with one, Meta's params.json, a
    file with nanoGPT's fields, or the name of a shipped configuration (--list). Prints cosines,
    effective rank, norms and attention entropy by layer (median, and 5 and 95 % quantiles over
    samples) and a verdict. Then prints the loss next to log(vocabulary), the standard deviation of
    the logits, the gradient norm in total and by layer, the parameters with the largest share, and
    the root mean square of gradient entries next to Adam's eps. Given two configurations, also
    prints how they differ. Existing files are replaced only with --overwrite.
    """
    if families or listed:
        from shaped_attention.architectures.configurations import shipped_configurations
        from shaped_attention.architectures.coverage import coverage

        click.echo(coverage() if families else "\n".join(shipped_configurations()))
        return
    if not 1 <= len(configs) <= 2:
        raise ValueError(f"CONFIG must be given once or twice; got {len(configs)}")
    models = _models(configs, changed_fields(changes) | {"ignore": ignore}, init)
    if describe:
        from shaped_attention.architectures.describe import describe as in_words

        click.echo("\n\n".join(in_words(model) for model in models.values()))
        return
    source = context.get_parameter_source("tokens")
    if options["ids"] is not None and source is not ParameterSource.DEFAULT:
        raise ValueError("--ids and --tokens cannot be used together")
    if options["forward_only"] and options["targets"] is not None:
        raise ValueError("--targets and --forward-only cannot be used together")
    _run(models, (*changes, *(f"without_{name}" for name in ignore)), **options)


def _run(
    models: dict[str, Model],
    changes: tuple[str, ...],
    *,
    tokens: int,
    ids: str | None,
    targets: str | None,
    samples: int | None,
    forward_only: bool,
    as_json: bool,
    seed: int,
    every: int | None,
    entropy: bool,
    accept_approximation: bool,
    figure: Path | None,
    results: Path | None,
    overwrite: bool,
    progress: bool | None,
) -> None:
    from shaped_attention.architectures.layer_summary import LAYER_NUMBERS, LEVELS, model_summary
    from shaped_attention.architectures.tokens import checked_ids
    from shaped_attention.architectures.verdict import compared, summary_table, verdict
    from shaped_attention.io.storage import check_writable
    from shaped_attention.models.gradients import checked_targets
    from shaped_attention.models.simulate import simulate_model
    from shaped_attention.models.step_zero_text import step_zero_data, step_zero_text
    from shaped_attention.results.files import save

    if every is not None:
        check_count("every", every)
    start = tokens if ids is None else numbers_in("--ids", ids)
    goal = "next" if targets is None else numbers_in("--targets", targets)
    count = start if isinstance(start, int) else len(start)
    for model in models.values():
        known = checked_ids(model.embedding, start)
        if not forward_only:
            checked_targets(model.embedding, known, goal)
    counted = f"{count} token{'s' if count != 1 else ''}"
    if samples is None:
        samples = 16 if forward_only else 4
    if figure is not None:
        check_new("another --figure", overwrite, [figure])
    places = {}
    if results is not None:
        check_writable(results, "results")
        places = {name: results / f"{_stem(name, *changes)}.nc" for name in models}
        check_new("another folder with --results", overwrite, places.values())
    summaries, data, written = {}, [], []
    say = _silent if as_json else click.echo
    for name, model in models.items():
        # A single token has no cosine, and what is kept in place of V has no missing numbers.
        how: dict[str, Any] = {"targets": goal}
        if forward_only:
            how = {"keep": LAYER_NUMBERS if count > 1 else "V"}
        result = simulate_model(
            model, start, samples=samples, seed=seed, entropy=entropy,
            accept_approximation=accept_approximation, progress=progress, **how,
        )  # fmt: skip
        summary = summaries[name] = model_summary(result)
        about = f"{model.family}, {model.depth} layers of width {model.width}"
        say(f"{name}: {about}; {counted}, {samples} samples")
        for text in model.adapted:
            say(f"adapted: {text}")
        say(f"\n{summary_table(summary, every)}\n\n{fill(verdict(summary), _WIDTH)}\n")
        entry = {"name": name, "family": model.family, "samples": samples}
        entry["by_layer"] = {
            str(key): {level: _numbers_of(values.sel(level=level)) for level in LEVELS}
            for key, values in summary.data_vars.items()
        }
        if not forward_only:
            say(f"{step_zero_text(result, model, every)}\n")
            entry |= step_zero_data(result, model) if as_json else {}
        data.append(entry)
        if places:
            written.append(save(result, places[name]))
    if len(summaries) > 1:
        say(f"{' and '.join(summaries)}\n{fill(compared(summaries), _WIDTH)}\n")
    if as_json:
        click.echo(json.dumps({"models": data}, indent=1, allow_nan=False))
    title = f"{' and '.join(summaries)} at initialisation, {counted}"
    with optional_figure(written, err=as_json):
        if figure is not None:
            from shaped_attention.figures.plots import model_layers

            written.append(save_png(model_layers(summaries, title), figure))


def _numbers_of(values: xr.DataArray) -> list[float | None]:
    """Return numbers by layer; None where there are none, as of the embedding's entropy."""
    return [None if x != x else x for x in values.to_numpy().tolist()]


def _silent(text: str) -> None:
    """Print nothing."""


def _models(
    configs: Sequence[str], changes: dict[str, Any], inits: Sequence[str]
) -> dict[str, Model]:
    """Return the models, each with each initialisation, by different names."""
    from shaped_attention.architectures.reading import model_from_config

    if len(configs) * len(inits) > 2:
        raise ValueError("--init can be given twice for one CONFIG, and once for two")
    models: dict[str, Model] = {}
    for config, init in product(configs, inits or (None,)):
        model = model_from_config(config, init=init, **changes)
        name = str(model) if init is None else f"{model}, {init:.60}"
        models[f"{name} ({config})" if name in models else name] = model
    return models


def _stem(*names: str) -> str:
    """Return the name of a file about models and fields that were changed."""
    return "-".join(["model", *(re.sub(r"[^\w.=-]+", "_", name).strip("_") for name in names)])


def changed_fields(words: Iterable[str]) -> dict[str, Any]:
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


def numbers_in(option: str, ids: str) -> list[int]:
    """Return the numbers of tokens in a list or a file."""
    words = _words(ids)
    if not all(word.lstrip("-").isdigit() for word in words):
        try:
            words = _words(Path(ids).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise argument_error(option, _IDS, ids) from None
    try:
        return [int(word) for word in words]
    except ValueError:
        raise argument_error(option, _IDS, ids) from None


def _words(text: str) -> list[str]:
    """Return the words between commas, spaces and brackets."""
    return re.sub(r"[\[\],]", " ", text).split()
