"""From a configuration to a model: which part of it is read, and by which family."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeGuard

from shaped_attention.architectures.configurations import plain, read_config
from shaped_attention.architectures.coverage import OBSTACLE_FIELDS, POINTER, READ, obstacles
from shaped_attention.architectures.family import DEPTHS
from shaped_attention.architectures.fields import Fields, field_error, in_the_names_of
from shaped_attention.architectures.formats import converted
from shaped_attention.architectures.layer_types import shortest
from shaped_attention.architectures.model import Model, check_depth
from shaped_attention.checks import argument_error, check_choice

_WRAPPERS = ("gemma3", "idefics3", "internvl", "llava", "llava_next", "mistral3", "smolvlm")
"""Models of text and images whose text goes through the model of `text_config` only."""

_LISTS = ("layer_types", "no_rope_layers")
"""Fields with an entry for each layer in the families that are covered."""


def model_from_config(
    config: Any, *, ignore: Collection[str] = (), init: str | None = None, **changes: Any
) -> Model:
    """Return the model that a configuration describes, at initialisation.

    Parameters
    ----------
    config
        Configuration of the `transformers` library (an object with ``to_dict``, a dict, a
        config.json, or a folder with one; the library itself is not needed), or the name of one in
        `shipped_configurations`. Meta's params.json, and nanoGPT's fields, are recognised as well.
    ignore
        Names of fields to leave out although they may change the law; `Model.adapted` lists them.
    init
        Initialisation in place of the library's own: "library-5.0", "gpt2", "olmo-normal",
        "olmo-mitchell", "torchtitan", "standard:base=256" or "mup:base=256", as in
        `architectures/recipes.py`; or
        standard deviations of matrices by the ends of their parameters' names, such as
        "down_proj=0.02/sqrt(2*L), wpe=0.01", as formulas in L (depth), l (layer, from 0), n
        (width), fan_in and std (the configuration's), with numbers, sqrt, + - * / ** and
        parentheses. A truncated law is approximated by a Gaussian one (`Model.approximations`).
    changes
        Fields to change, such as ``num_hidden_layers=200``; sizes may also have the names that
        other families use. Lists with an entry for each layer, such as `layer_types`, follow the
        depth if they repeat a pattern.

    Raises
    ------
    ValueError
        If the family is not supported, or a field is missing, invalid or not supported; the message
        names all that is not supported.
    FileNotFoundError
        If there is no such file.
    """
    return _read_model(config, changes, "config", ignore, init)


def _read_model(
    config: Any, changes: dict[str, Any], argument: str, ignore: Collection[str] = (),
    init: str | None = None,
) -> Model:  # fmt: skip
    outer, name = read_config(config, argument)
    inner, left_out = _text_part(outer)
    inner, ignored = _without(inner, ignore)
    inner, changes, done = converted(inner, plain(changes), READ)
    changes = in_the_names_of(inner, changes)
    for depth in DEPTHS:
        if _is_depth(layers := changes.get(depth, inner.get(depth))):
            check_depth(f"config.{depth}", layers)
    lists, adapted = _at_new_depth(inner, changes)
    values = inner | changes | lists
    model = _built(values, changes, init)
    kept = outer | {"text_config": values} if left_out else values
    kept = kept | ({"_name_or_path": name} if name else {})
    unused, adapted = left_out + model.unused, done + ignored + adapted
    return replace(model, unused=unused, adapted=adapted, name=name, config=kept)


def _built(values: dict[str, Any], changes: Collection[str], init: str | None) -> Model:
    """Return the model of a family, with the fields without influence, or name all obstacles."""
    fields, family, known = Fields(values), values["model_type"], values["model_type"] in [*READ]
    fields.refused += obstacles(values)
    fields.no_influence(*OBSTACLE_FIELDS)
    try:
        if known or not fields.refused:
            check_choice("config.model_type", family, sorted(READ))
            model = replace(READ[family](fields, init), unused=fields.finish(changes))
            if not fields.refused:
                return model
    except ValueError as error:
        if known and not fields.refused:
            raise
        fields.refused.append(str(error))
    raise ValueError("; ".join(dict.fromkeys(fields.refused)) + POINTER)


def _without(
    values: dict[str, Any], ignore: Collection[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a configuration without some fields, and what these were, in words."""
    if not isinstance(ignore, list | tuple) or not all(isinstance(x, str) for x in ignore):
        raise argument_error("ignore", "a list of names of fields", ignore)
    gone = {name: values[name] for name in ignore if name in values}
    kept = {name: value for name, value in values.items() if name not in gone}
    return kept, tuple(f"{x}={value!r:.60} ignored, as asked for" for x, value in gone.items())


def as_model(model: Any, argument: str = "model") -> Model:
    """Return a model as it is, or that of a configuration that was given under this name."""
    return model if isinstance(model, Model) else _read_model(model, {}, argument)


def record_of(model: Model) -> Any:
    """Return what a record holds of a model: its configuration, unless it differs from that."""
    exact = model.config and not model.init and model_from_config(model.config) == model
    return model.config if exact else model


def _text_part(values: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of the text model, and what is left out, in words."""
    inner, family = values.get("text_config"), values.get("model_type")
    if inner is None and family not in _WRAPPERS:
        return values, ()
    inner = {} if inner is None and family == "gemma3" else inner
    if not isinstance(inner, dict):
        raise field_error("text_config", "an object with the fields of the text model", inner)
    if family not in _WRAPPERS:
        alone = "its text_config may be covered: pass that alone"
        what = f"config has model_type={family!r} around a text_config, which is not covered"
        raise ValueError("; ".join([what, *(obstacles(inner) or [alone])]) + POINTER)
    # Old files of Gemma 3 leave out what is the library's default.
    inner = {"model_type": "gemma3_text"} | inner if family == "gemma3" else dict(inner)
    left = [name for name in values if name.endswith("_config") and name != "text_config"]
    rest = f" without {', '.join(sorted(left))}" if left else ""
    return inner, (f"{family}: only text_config{rest}",)


def _at_new_depth(
    values: dict[str, Any], changes: dict[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the lists of a configuration at a changed depth, and what was done, in words.

    A pattern that a list holds at least twice is continued or cut. Lists that are changed
    themselves, or do not have the old depth, are left as they are.
    """
    name = next((x for x in DEPTHS if x in changes), DEPTHS[0])
    old, new = values.get(name), changes.get(name)
    lists: dict[str, Any] = {}
    done: list[str] = []
    if not _is_depth(old) or not _is_depth(new) or old == new:
        return lists, ()
    for field in _LISTS:
        entries = values.get(field)
        if field in changes or not isinstance(entries, list) or len(entries) != old:
            continue
        pattern = shortest(entries)
        if 2 * len(pattern) > old:
            raise ValueError(
                f"config has {field} for {old} layers, without a repeated pattern, but "
                f"{name}={new}; give {field} for {new} layers, or {field}=None (null) for the "
                "family's default"
            )
        lists[field] = [pattern[k % len(pattern)] for k in range(new)]
        verb = "continued" if new > old else "cut"
        done.append(f"{field} with period {len(pattern)} {verb} from {old} to {new} layers")
    return lists, tuple(done)


def _is_depth(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
