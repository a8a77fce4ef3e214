"""A model at another width or depth, as users of muP scale it: heads keep their size."""

from __future__ import annotations

import math
from typing import Any

from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.architectures.reading import model_from_config
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.parameters import blocks_inside
from shaped_attention.checks import argument_error, check_count

_SIZES = (
    "hidden_size", "n_embd", "n_embed", "dim", "num_attention_heads", "n_head", "n_heads",
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "intermediate_size", "n_inner", "ffn_dim",
    "ffn_hidden_size", "hidden_dim", "word_embed_proj_dim",
)  # fmt: skip
"""Fields that grow with the width, by the names of all families."""


def resized(model: Model, axis: str, value: int, init: str | None) -> Model:
    """Return a model at another width or depth."""
    check_count(f"{axis}s", value)
    if model.config is None:
        raise argument_error("model", "a configuration, or a model from one", model)
    if axis == "depth":
        return model_from_config(model.config, init=init, num_hidden_layers=value)
    inner = model.config.get("text_config") or model.config
    sizes = {x: inner[x] for x in _SIZES if isinstance(inner.get(x), int)}
    unit = model.width // math.gcd(*sizes_of(model), *sizes.values())
    if value % unit:
        raise argument_error("widths", f"multiples of {unit}, as its heads need", value)
    changes = {name: size * value // model.width for name, size in sizes.items()}
    result = model_from_config(model.config, init=init, **changes)
    if sizes_of(result) != [size * value // model.width for size in sizes_of(model)]:
        raise ValueError(
            f"the sizes of {model} do not scale with its width; give hidden_size, "
            "num_attention_heads, num_key_value_heads and intermediate_size"
        )
    return result


def sizes_of(model: Model) -> list[int]:
    """Return the width, and the numbers of heads and hidden units of all layers."""
    blocks = [block for layer in model.layers() for block in layer]
    heads = [x for b in blocks for a in attention_of(b) for x in (a.heads, a.kv_heads or a.heads)]
    return [model.width, *heads, *(x.units(model.width) for b in blocks for x in _mlps(b))]


def _mlps(block: Any) -> list[ShapedMLP]:
    if isinstance(block, ShapedMLP):
        return [block]
    return [x for part in blocks_inside(block) for x in _mlps(part)]
