"""Whether a module was initialised as its configuration says: the command `check`."""

from __future__ import annotations

import click

from shaped_attention.commands.options import json_option, seed_option, with_options

_OPTIONS = [
    click.option("--config", metavar="CONFIG",
                 help="Configuration, as for the command model.  [default: that of the module]"),
    click.option("--init", metavar="RECIPE",
                 help="Initialisation, as for the command model.  [default: the library's]"),
    click.option("--ids", metavar="LIST|FILE",
                 help="Token ids, as for the command model.  [default: the first 8]"),
    click.option("--names", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
                 help="JSON object with the library's names by those of the module, with * for the "
                 "number of a layer."),
    click.option("--samples", default=32, help="Number of samples of the law."),
    click.option("--level", default=0.001,
                 help="Probability with which a correct module is flagged at most."),
    seed_option,
    json_option,
]  # fmt: skip


@click.command(name="check")
@click.argument("build", metavar="MODULE:FUNCTION")
@with_options(_OPTIONS)
def check_command(
    build: str, config: str | None, init: str | None, ids: str | None, names: str | None,
    samples: int, level: float, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Check whether a torch module is initialised as its configuration says.

    MODULE:FUNCTION is called without arguments and returns the module. Prints what is wrong, by
    parameter and in the order of consequence. Exit status: 0 if nothing is suspect, 1 if something
    is, 2 if an argument is bad.
    """
    import json
    from pathlib import Path

    from shaped_attention.audit.check_model import check_model
    from shaped_attention.checks import function_named
    from shaped_attention.commands.model import numbers_in

    make = function_named(build, "MODULE:FUNCTION")
    try:
        module = make()
    except Exception as error:
        raise ValueError(f"{build}() failed: {type(error).__name__}: {error}") from error
    found = check_model(
        module, None if ids is None else numbers_in("--ids", ids), config, init, samples=samples,
        names=None if names is None else json.loads(Path(names).read_text(encoding="utf-8")),
        level=level, seed=seed,
    )  # fmt: skip
    click.echo(found.to_json() if as_json else found)
    raise click.exceptions.Exit(0 if found.ok else 1)
