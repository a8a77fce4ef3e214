"""Where a configuration comes from: an object, a dictionary, a file, or one that is shipped."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from shaped_attention.checks import argument_error, did_you_mean

_SHIPPED = Path(__file__).parent.parent / "data" / "models"
_SOURCE = "a configuration with to_dict, a dict, a config.json, or a folder that contains one"


def shipped_configurations() -> list[str]:
    """Return the names of the shipped configurations, which `model_from_config` accepts.

    They describe public models at their real depth and width, with the fields that matter at
    initialisation, and no weights.

    Examples
    --------
    >>> "llama-3.1-70b" in shipped_configurations()
    True
    """
    return sorted(path.stem for path in _SHIPPED.glob("*.json"))


def read_config(config: Any, argument: str = "config") -> tuple[dict[str, Any], str]:
    """Return the fields of a configuration, and its name ("" if it has none).

    Raises
    ------
    ValueError
        If it is not a configuration.
    FileNotFoundError
        If there is no such file.
    """
    if isinstance(config, type):
        known = hasattr(config, "to_dict")
        needed = f"an instance of the class, such as {config.__name__}()" if known else _SOURCE
        raise argument_error(argument, needed, config)
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if isinstance(config, dict):
        values = plain(config)
        return values, str(values.get("_name_or_path") or "")
    if not isinstance(config, str | os.PathLike):
        raise argument_error(argument, _SOURCE, config)
    path, text = _file_of(config, argument), str(config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{argument}={text!r} is not a JSON file ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{argument}={text!r} is a JSON file that does not contain an object")
    if path.parent == _SHIPPED:
        return values, path.stem
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return values, str(values.get("_name_or_path") or name)


def _file_of(config: str | os.PathLike[str], argument: str) -> Path:
    path, text = Path(config), str(config)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{argument}={text!r} is a folder without a config.json")
        return path / "config.json"
    if path.is_file():
        return path
    if text in shipped_configurations():
        return _SHIPPED / f"{text}.json"
    if path.suffix == ".json" or path.is_absolute():
        raise FileNotFoundError(f"{argument}={text!r} does not exist; it must be a config.json")
    if text.count("/") == 1:
        missing = importlib.util.find_spec("transformers") is None
        install = (
            "; pip install 'shaped-attention[trained]' installs transformers" if missing else ""
        )
        raise FileNotFoundError(
            f"{argument}={text!r} is not a folder, and nothing is downloaded; pass the object "
            f"transformers.AutoConfig.from_pretrained({text!r}){install}"
        )
    choices = [*shipped_configurations(), "or the path of a config.json"]
    raise ValueError(
        f"{argument}={text!r} is not a configuration; {did_you_mean(text.lower(), choices)}"
    )


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return fields as they are in a config.json, so that records of results hold them."""
    fields: dict[str, Any] = json.loads(
        json.dumps(values, default=lambda x: x.item() if hasattr(x, "item") else str(x))
    )
    return fields
