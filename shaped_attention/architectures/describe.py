"""A model in words: what was understood of its configuration."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any

import numpy as np

from shaped_attention.architectures.model import Embedding
from shaped_attention.architectures.reading import as_model
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parameters import value_at
from shaped_attention.blocks.rotations import Rope

_PLACES = {
    "before": "{norm} before it (pre-norm)",
    "after": "{norm} after the sum (post-norm)",
    "sandwich": "{norm} before it and at its output (sandwich)",
    "branch": "{norm} at its output",
}


_NUMBERS = re.compile(r"(?<=standard deviation )[\d.e+-]+|(?<=branch x )[\d.e+-]+")
_FEW = 3
"""Number of ranges of layers up to which all are named."""


def describe(model: Any) -> str:
    """Describe in words how a model or a configuration was read.

    The text describes the embedding, each distinct kind of layer with its layer numbers, and the
    final norm. It then names the approximations, the lists that follow a changed depth, and the
    fields that have no effect.

    Parameters
    ----------
    model
        A `Model`, or a configuration as in `model_from_config`.

    Raises
    ------
    ValueError
        As in `model_from_config`.
    """
    known = as_model(model)
    lines = [f"{known}: {known.family}, {known.depth} layers of width {known.width}"]
    lines += [f"{'  ' * (k > 0)}{line}" for k, line in enumerate(known.recipe)]
    lines.append(f"embedding: {_embedding(known.embedding)}")
    layers = known.layers()
    texts = {x: [y for block in x for y in _block(block, known.width)] for x in layers}
    # With a recipe, layers that differ in its numbers only are one entry, with those of the first.
    keys = {x: _NUMBERS.sub("", "\n".join(y)) if known.recipe else x for x, y in texts.items()}
    for key in dict.fromkeys(keys.values()):
        alike = [x for x in texts if keys[x] == key]
        numbers = [k + 1 for k, layer in enumerate(layers) if keys[layer] == key]
        first = f", with the numbers of layer {numbers[0]}" if len(alike) > 1 else ""
        lines.append(f"{_ranges(numbers)}{first}:")
        lines += [f"  {line}" for line in texts[alike[0]]]
    lines.append(f"final norm: {known.final_norm or 'none'}")
    for approximation in known.approximations:
        lines.append(f"not exact: {approximation}")
    lines += [f"adapted: {text}" for text in known.adapted]
    if known.unused:
        lines.append(f"without influence on the tokens: {', '.join(known.unused)}")
    return "\n".join(lines)


def _embedding(embedding: Embedding) -> str:
    parts = [f"{embedding.vocabulary} tokens, standard deviation {embedding.std:g}"]
    if embedding.position_std:
        count = "" if embedding.positions is None else f"{embedding.positions} "
        parts.append(f"{count}learned positions ({embedding.position_std:g})")
    elif embedding.positions is not None:
        parts.append(f"up to {embedding.positions} positions")
    if embedding.common_std:
        parts.append(f"a row common to all tokens ({embedding.common_std:g})")
    if embedding.scale != 1.0:
        parts.append(f"multiplied by {embedding.scale:g}")
    if embedding.norm:
        parts.append(f"then {embedding.norm}")
    if embedding.zero_ids:
        also = ", whose position is zero too" if embedding.zero_positions else ""
        parts.append(f"zero for id {', '.join(map(str, embedding.zero_ids))} (padding){also}")
    return ", ".join(parts)


def _ranges(numbers: list[int]) -> str:
    """Return "layers 1-3, 5", or "layers 1, 3, ..., 41" for many with one distance."""
    groups: list[list[int]] = []
    for k in numbers:
        if groups and k == groups[-1][-1] + 1:
            groups[-1].append(k)
        else:
            groups.append([k])
    words = [f"{g[0]}-{g[-1]}" if len(g) > 1 else f"{g[0]}" for g in groups]
    steps = {
        b - a for first, second in pairwise(groups) for a, b in zip(first, second, strict=False)
    }
    if len(groups) > _FEW and len(steps) == 1 and len({len(g) for g in groups}) == 1:
        words = [*words[:2], "...", words[-1]]
    return f"{'layer' if len(numbers) == 1 else 'layers'} {', '.join(words)}"


def _block(block: Any, width: int) -> list[str]:
    if isinstance(block, Normalised):
        kind = "LayerNorm" if block.norm == "layer" else "RMSNorm"
        norm = _PLACES[block.place].format(norm=f"{kind} (eps {block.eps:g})")
        return [*_block(block.inner, width), f"  {norm}"]
    if isinstance(block, ShapedAttention):
        return _attention(block, width)
    if isinstance(block, ShapedMLP):
        return _mlp(block, width)
    if hasattr(block, "blocks"):
        inner = [f"  {line}" for part in block.blocks for line in _block(part, width)]
        return ["in parallel:", *inner]
    return [repr(block)]


def _attention(block: ShapedAttention, width: int) -> list[str]:
    heads = f"{block.heads} heads of size {block.values(width)}"
    if block.heads_per_key > 1:
        heads += f", {block.kv_heads} of keys and values"
    details, more = [_mask(block.mask)], []
    rope, norm = block.rope, block.qk_norm
    if block.position_bias is not None:
        details.append("ALiBi" if isinstance(block.position_bias, str) else "position bias")
    if block.softcap is not None:
        details.append(f"logits capped at {block.softcap:g}")
    rotated = 1.0
    if rope is not None:
        more.append(f"{_rope(rope, block.keys(width))}{_scaling(rope)}")
        rotated = rope.share * rope.attention_factor**4 + 1.0 - rope.share
    if norm is not None:
        over = "a head" if norm.over == "head" else "all heads"
        eps = f"eps {norm.eps:.3g} for queries and keys of mean square 1"
        more.append(f"QK-norm over {over} ({eps})")
    logit = math.sqrt(rotated) / value_at(block.tau0, 0.0)
    spread = "" if norm is not None else " for tokens of mean square 1"
    weight = value_at(block.gamma, 0.0)
    more.append(f"logits of standard deviation {logit:.3g}{spread}; branch x {weight:.3g}")
    return [f"attention: {heads}; {', '.join(details)}", *(f"  {line}" for line in more)]


def _rope(rope: Rope, size: int) -> str:
    """Return the columns that RoPE rotates and its wavelengths, with any base and scaling."""
    angles = np.abs(rope.pairs(size))
    angles = angles[angles > 0.0]
    text = f"RoPE on {2 * len(angles)} of {size} columns of a head"
    if not len(angles):
        return text
    shortest, longest = (float(f"{2.0 * np.pi / x:.3g}") for x in (angles.max(), angles.min()))
    return f"{text}, wavelengths {shortest:g} to {longest:g} tokens"


def _scaling(rope: Rope) -> str:
    """Return the factor of the rotated columns, and for how many tokens the angles are."""
    scale, longest = rope.attention_factor, rope.original_max_position_embeddings
    factor = "" if scale == 1.0 else f", these columns x {scale:.4g}"
    if longest is None:
        return factor
    longer = "more are refused" if rope.long_angles is None else "other angles for more"
    return f"{factor}, for up to {longest} tokens ({longer})"


def _mask(mask: Any) -> str:
    if mask is None:
        return "all tokens seen"
    if not isinstance(mask, str):
        return f"mask {np.shape(mask)}"
    kind, _, window = mask.partition(":")
    if not window:
        return "causal"
    return f"causal, window {window}" if kind == "causal" else f"window {window} on both sides"


def _mlp(block: ShapedMLP, width: int) -> list[str]:
    kind = "gated MLP" if block.gated else "MLP"
    inner = f"inputs of standard deviation {block.input_scale:.3g}"
    return [
        f"{kind}: {block.units(width)} hidden units, {block.activation.removeprefix('plain_')}; "
        f"{inner}; branch x {value_at(block.gamma, 0.0):.3g}"
    ]
