"""Configurations with other names than those of the `transformers` library, or without a family."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from shaped_attention.architectures.fields import Fields, field_error

_Values = dict[str, Any]
_META, _NANOGPT = "Meta's params.json", "nanoGPT"
_KEYS = {_META: ("dim", "n_layers", "n_heads"), _NANOGPT: ("n_layer", "n_head", "n_embd")}
"""Fields by which a format is recognised."""

_SIZES = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
}  # fmt: skip
_NAMES: dict[str, dict[str, str]] = {
    "distilbert": _SIZES | {"activation": "hidden_act"},
    _META: _SIZES | {
        "n_kv_heads": "num_key_value_heads", "norm_eps": "rms_norm_eps", "vocab_size": "vocab_size",
        "max_seq_len": "max_position_embeddings", "multiple_of": "", "ffn_dim_multiplier": "",
        "max_batch_size": "",
    },
    _NANOGPT: {"block_size": "n_positions", "vocab_size": "vocab_size", "bias": ""},
}  # fmt: skip
"""The library's names of the fields of a format, empty for those that are not handed on."""


def converted(
    values: _Values, changes: _Values, families: Collection[str]
) -> tuple[_Values, _Values, tuple[str, ...]]:
    """Return a configuration in the library's names, with its family; other changes; a note."""
    named = changes.get("model_type", values.get("model_type"))
    kind = _recognised(values, families) if named is None else str(named)
    names = _NAMES.get(kind, {})
    values = values | {name: value for name, value in changes.items() if name in names}
    changes = {name: value for name, value in changes.items() if name not in names}
    done = "" if named is not None else f"no model_type: read as {kind!r}"
    if kind == _META:
        values, done = _meta(values), f"{_META} names no initialisation: read as the library's"
    elif kind == _NANOGPT:
        values, done = _nanogpt(values)
    elif named is None:
        values = values | {"model_type": kind}
    given = [(names.get(name, name), value) for name, value in values.items()]
    return {name: value for name, value in given if name}, changes, (done,) if done else ()


def _meta(values: _Values) -> _Values:
    """Return Meta's Llama, or a Mistral: the size of the MLP follows from that of the tokens."""
    if values.get("vocab_size") in (None, -1):
        what = f"given, since {_META} leaves it to the tokenizer (--set vocab_size=32000)"
        raise field_error("vocab_size", what, values.get("vocab_size"))
    kept = {x: value for x, value in values.items() if value is not None or x == "sliding_window"}
    fields = Fields(kept)
    multiple = fields.count("multiple_of", default=256)
    units = fields.number("ffn_dim_multiplier", 1.0) * int(8 * fields.count("dim") / 3)
    defaults = {
        "model_type": "mistral" if "sliding_window" in values else "llama", "norm_eps": 1e-5,
        "n_kv_heads": values["n_heads"], "hidden_dim": multiple * -(-int(units) // multiple),
    }  # fmt: skip
    return defaults | kept


def _nanogpt(values: _Values) -> tuple[_Values, str]:
    """Return a GPT-2 with exact GELU; its biases, if there are any, are zero at initialisation."""
    defaults = {"block_size": 1024, "vocab_size": 50304}
    missing = " and ".join(f"{x}={value}" for x, value in defaults.items() if x not in values)
    done = "nanoGPT: read as 'gpt2' with exact GELU"
    done += f", and with nanoGPT's defaults {missing}" if missing else ""
    gpt2 = {"model_type": "gpt2", "activation_function": "gelu"}
    return gpt2 | defaults | values, done


def _recognised(values: _Values, families: Collection[str]) -> str:
    """Return the format, or the family, that the fields of a configuration tell."""
    for kind, keys in _KEYS.items():
        if values.keys() >= {*keys} and not values.get("architectures"):
            return kind
    classes = values.get("architectures")  # such as LlamaForCausalLM or GPT2LMHeadModel
    for name in classes if isinstance(classes, list) else ():
        stem = re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", str(name)).lower()
        for family in families:
            if re.sub(r"[-_]|_text$", "", family) == stem:
                return family
    if values.get("is_llama_config"):
        return "llama"
    if values.keys() >= {"type_vocab_size", "directionality"}:
        return "bert"  # bert_config.json of the first release
    kind = max(_KEYS, key=lambda x: len(values.keys() & {*_KEYS[x]}))
    missing = [key for key in _KEYS[kind] if key not in values]
    also = f", and lacks {', '.join(missing)} of {kind}" if len(missing) < len(_KEYS[kind]) else ""
    told = "--set model_type=FAMILY names the family"
    raise ValueError(f"config has no field model_type{also}; {told}")
