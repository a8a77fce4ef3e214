"""From a configuration to a model: files, dictionaries, objects of the `transformers` library."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.gpt import gpt2
from shaped_attention.architectures.model import Model
from shaped_attention.architectures.rms_norm import DECODERS
from shaped_attention.architectures.shipped import shipped_configurations, shipped_fields
from shaped_attention.architectures.text_part import text_part
from shaped_attention.checks import did_you_mean

FAMILIES: dict[str, Callable[[Fields], Model]] = {
    "gpt2": gpt2,
    **DECODERS,
}
"""Function that reads the configurations of a `model_type`."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")


def model_from_config(config: Any, **changes: Any) -> Model:
    """Return the model that a configuration describes, at initialisation.

    Parameters
    ----------
    config
        Configuration of the `transformers` library (an object with ``to_dict``, a dict, a
        config.json, or a folder with one; the library itself is not needed), or the name of one in
        `shipped_configurations`.
    changes
        Fields to change, such as ``num_hidden_layers=200``.

    Raises
    ------
    ValueError
        If the family is not covered, or a field is missing, invalid or not covered; the message
        names it.
    FileNotFoundError
        If there is no such file.
    """
    values, name = read_config(config)
    values, left_out = text_part(values)
    values |= changes
    family = values.get("model_type")
    if family is None:
        raise ValueError("config has no field model_type; the name of a family is needed")
    if values.get("is_encoder_decoder"):
        raise ValueError(
            f"config has model_type={family!r}, an encoder-decoder; a single stack of layers is "
            "needed"
        )
    experts = next((x for x in _EXPERTS if values.get(x)), None)
    if experts:
        raise ValueError(
            f"config has {experts}={values[experts]!r}, a mixture of experts; dense layers are "
            "needed"
        )
    if family not in FAMILIES:
        raise ValueError(f"config has model_type={family!r}: {did_you_mean(family, FAMILIES)}")
    fields = Fields(values)
    model = FAMILIES[family](fields)
    return replace(model, unused=left_out + fields.finish(), name=name)


def as_model(model: Any) -> Model:
    """Return a model as it is, or that of a configuration."""
    return model if isinstance(model, Model) else model_from_config(model)


def read_config(config: Any) -> tuple[dict[str, Any], str]:
    """Return the fields of a configuration, and its name ("" if it has none).

    Raises
    ------
    ValueError
        If it is not a configuration.
    FileNotFoundError
        If there is no such file.
    """
    if hasattr(config, "to_dict"):
        values = dict(config.to_dict())
        return values, str(values.get("_name_or_path") or "")
    if isinstance(config, dict):
        return dict(config), str(config.get("_name_or_path") or "")
    if not isinstance(config, str | os.PathLike):
        raise ValueError(
            f"config is a {type(config).__name__}; a configuration with to_dict, a dict, a "
            "config.json or a folder with one is needed"
        )
    path = _file_of(config)
    if path is None:
        return shipped_fields(str(config)), str(config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config={str(config)!r}: a JSON file is needed ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"config={str(config)!r}: a file with a JSON object is needed")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return values, str(values.get("_name_or_path") or name)


def _file_of(config: str | os.PathLike[str]) -> Path | None:
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
                f"config={given!r}: the folder has no config.json; a folder with one is needed"
            )
        return file
    if path.is_file():
        return path
    if given in shipped_configurations():
        return None
    if path.suffix == ".json" or path.is_absolute():
        raise FileNotFoundError(f"config={given!r}: there is no such file; a config.json is needed")
    if given.count("/") == 1:
        missing = importlib.util.find_spec("transformers") is None
        install = "; pip install 'shaped-attention[trained]' installs it" if missing else ""
        raise FileNotFoundError(
            f"config={given!r}: there is no such folder, and nothing is downloaded; the object "
            f"transformers.AutoConfig.from_pretrained({given!r}) is needed{install}"
        )
    choices = [*shipped_configurations(), "the path of a config.json"]
    raise ValueError(f"config={given!r}: {did_you_mean(given.lower(), choices)}")
