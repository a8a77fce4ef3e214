"""Where the file of a configuration is."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from shaped_attention.architectures.shipped import shipped_configurations
from shaped_attention.checks import did_you_mean


def file_of(config: str | os.PathLike[str], argument: str) -> Path | None:
    """Return the file of a configuration; None for the name of a shipped one.

    Raises
    ------
    ValueError
        If it is neither a path nor such a name.
    FileNotFoundError
        If there is no such file.
    """
    path, given = Path(config), str(config)
    if path.is_dir():
        file = path / "config.json"
        if not file.is_file():
            raise FileNotFoundError(
                f"{argument}={given!r}: the folder has no config.json; a folder with one is needed"
            )
        return file
    if path.is_file():
        return path
    if given in shipped_configurations():
        return None
    if path.suffix == ".json" or path.is_absolute():
        raise FileNotFoundError(
            f"{argument}={given!r}: there is no such file; a config.json is needed"
        )
    if given.count("/") == 1:
        missing = importlib.util.find_spec("transformers") is None
        install = "; pip install 'shaped-attention[trained]' installs it" if missing else ""
        raise FileNotFoundError(
            f"{argument}={given!r}: there is no such folder, and nothing is downloaded; the object "
            f"transformers.AutoConfig.from_pretrained({given!r}) is needed{install}"
        )
    choices = [*shipped_configurations(), "the path of a config.json"]
    raise ValueError(f"{argument}={given!r}: {did_you_mean(given.lower(), choices)}")
