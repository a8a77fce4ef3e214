"""Sweeps from TOML files, such as ``notebooks/sweep.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path

from shaped_attention.checks import function_named, names_code, with_types
from shaped_attention.io.inputs import read_covariance, read_tokens
from shaped_attention.io.storage import reason
from shaped_attention.numerics.covariance import covariance_of
from shaped_attention.sweep.cells import LAYERS, each
from shaped_attention.sweep.file import SweepFile
from shaped_attention.sweep.specification import Sweep, SweepFaultsError


@with_types
def read_sweep(path: str | Path) -> Sweep:
    """Read a sweep from a TOML file, or the specification in a ``.sweep`` file.

    The entries of a TOML file are those of `Sweep`; of `fixed`, `layer` is required, and may be
    'module:function', which is imported. `fixed.covariance` and `fixed.token_file` may name a file
    (see `shaped_attention.read_covariance`, `read_tokens`), and `fixed.config` a config.json or its
    folder, relative to the sweep's own.

    From a ``.sweep`` nothing is imported: of its functions it has the names.

    Raises
    ------
    SweepFaultsError
        If the file has faults; all of them are listed.
    SweepFileError
        If a ``.sweep`` cannot be read.
    """
    source = Path(path)
    if source.suffix == ".sweep":
        with SweepFile(source) as file:
            return file.sweep
    try:
        entries = {"fixed": {}, "axes": {}} | tomllib.loads(source.read_text(encoding="utf-8"))
        fixed, axes = entries["fixed"], entries["axes"]
        if not (isinstance(fixed, dict) and isinstance(axes, dict)):
            raise ValueError("fixed, axes: give a table [fixed], and a table [axes]")
        if "layer" not in fixed | axes:
            raise ValueError(f"layer must be given, fixed or as an axis; {LAYERS}")
        for table in (fixed, axes):
            if "layer" in table:
                table["layer"] = each(
                    lambda x: function_named(x) if names_code(x) else x, table["layer"]
                )
        # Names of files are replaced by what is in them, so that the sweep depends on no files.
        folder, config = source.parent, fixed.get("config")
        if isinstance(config, str) and (folder / config).exists():
            fixed["config"] = str(folder / config)
        if "token_file" in fixed:
            if "covariance" in fixed:
                raise ValueError("token_file, covariance: give exactly one of the two")
            tokens = read_tokens(folder / str(fixed.pop("token_file")))
            fixed["covariance"] = covariance_of(tokens)
        elif isinstance(fixed.get("covariance"), str):
            fixed["covariance"] = read_covariance(folder / fixed["covariance"])
        return Sweep(**entries)
    except SweepFaultsError as error:
        raise SweepFaultsError(error.faults, str(source)) from None
    except (OSError, ValueError) as error:
        raise SweepFaultsError([reason(error)], str(source)) from None
