"""From a configuration to a model: files, dictionaries, objects of the `transformers` library."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shaped_attention.architectures.bert import bert
from shaped_attention.architectures.bloom import bloom, falcon
from shaped_attention.architectures.cohere import cohere
from shaped_attention.architectures.config_files import file_of
from shaped_attention.architectures.fields import Fields, in_the_names_of
from shaped_attention.architectures.gpt import gpt2
from shaped_attention.architectures.model import Model
from shaped_attention.architectures.modernbert import modernbert
from shaped_attention.architectures.neox import gpt_neox, gptj, phi, stablelm, starcoder2
from shaped_attention.architectures.opt import opt
from shaped_attention.architectures.per_layer import at_new_depth
from shaped_attention.architectures.refused import check_single_stack
from shaped_attention.architectures.rms_norm import DECODERS
from shaped_attention.architectures.shipped import shipped_fields
from shaped_attention.architectures.text_part import text_part
from shaped_attention.checks import did_you_mean

FAMILIES: dict[str, Callable[[Fields], Model]] = {
    "bert": bert,
    "bloom": bloom,
    "codegen": gptj,
    "cohere": cohere,
    "cohere2": cohere,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt2,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "modernbert": modernbert,
    "opt": opt,
    "phi": phi,
    "roberta": bert,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    **DECODERS,
}
"""Function that reads the configurations of a `model_type`."""

_NEEDED = "a configuration with to_dict, a dict, a config.json or a folder with one"
_ENCODERS = ("bert", "modernbert", "roberta")


def model_from_config(config: Any, **changes: Any) -> Model:
    """Return the model that a configuration describes, at initialisation.

    Parameters
    ----------
    config
        Configuration of the `transformers` library (an object with ``to_dict``, a dict, a
        config.json, or a folder with one; the library itself is not needed), or the name of one in
        `shipped_configurations`.
    changes
        Fields to change, such as ``num_hidden_layers=200``; sizes also by the names of other
        families. Lists with an entry for each layer, such as `layer_types`, follow the depth if
        they repeat a pattern.

    Raises
    ------
    ValueError
        If the family is not covered, or a field is missing, invalid or not covered; the message
        names it.
    FileNotFoundError
        If there is no such file.
    """
    return _read_model(config, changes, "config")


def _read_model(config: Any, changes: dict[str, Any], argument: str) -> Model:
    outer, name = read_config(config, argument)
    inner, left_out = text_part(outer)
    changes = in_the_names_of(inner, _plain(changes))
    lists, adapted = at_new_depth(inner, changes)
    values = inner | changes | lists
    family = values.get("model_type")
    check_single_stack(values)
    if not isinstance(family, str) or family not in FAMILIES:
        given = "no model_type" if family is None else f"model_type={family!r}"
        raise ValueError(f"config has {given}: {did_you_mean(family, sorted(FAMILIES))}")
    fields = Fields(values)
    if fields.get("model_type") in _ENCODERS and not values.get("is_decoder"):
        fields.no_influence("is_causal")
    else:
        fields.choice("is_causal", True, (True,))  # False removes the library's causal mask.
    model = FAMILIES[family](fields)
    kept = outer | {"text_config": values} if left_out else values
    kept = kept | ({"_name_or_path": name} if name else {})
    unused = left_out + fields.finish(changes)
    return replace(model, unused=unused, adapted=adapted, name=name, config=kept)


def as_model(model: Any) -> Model:
    """Return a model as it is, or that of a configuration given as the argument `model`."""
    return model if isinstance(model, Model) else _read_model(model, {}, "model")


def record_of(model: Model) -> Any:
    """Return what a record holds of a model: its configuration, unless it differs from that."""
    if model.config is not None and model_from_config(model.config) == model:
        return model.config
    return replace(model, config=None)


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
        needed = (
            f"an object of it, such as {config.__name__}(),"
            if hasattr(config, "to_dict")
            else _NEEDED
        )
        raise ValueError(f"{argument} is the class {config.__name__}; {needed} is needed")
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if isinstance(config, dict):
        values = _plain(config)
        return values, str(values.get("_name_or_path") or "")
    if not isinstance(config, str | os.PathLike):
        raise ValueError(f"{argument} is of the type {type(config).__name__}; {_NEEDED} is needed")
    path = file_of(config, argument)
    if path is None:
        return shipped_fields(str(config)), str(config)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{argument}={str(config)!r}: a JSON file is needed ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{argument}={str(config)!r}: a file with a JSON object is needed")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return values, str(values.get("_name_or_path") or name)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return fields as they are in a config.json, so that records of results hold them."""
    fields: dict[str, Any] = json.loads(
        json.dumps(values, default=lambda x: x.item() if hasattr(x, "item") else str(x))
    )
    return fields
