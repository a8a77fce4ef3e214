"""The table of supported models: each family of the registry, as a small model shows it."""

from __future__ import annotations

from typing import Any

import shaped_attention as sa
from shaped_attention.architectures.families import FAMILIES
from shaped_attention.architectures.family import shared_keys
from shaped_attention.architectures.model import Model
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parallel import Parallel

PLACES = {
    "before": "before each branch",
    "after": "after each sum",
    "sandwich": "before and after each branch",
    "branch": "after each branch",
}

REQUIRED = {family: {"rotary_dim": 8} for family in ("codegen", "gptj")}
"""Required fields other than the sizes."""


def smallest(family: str) -> Model:
    """Return a small model of a family: the sizes are given, all else is the family's default."""
    row = FAMILIES[family]
    fields: dict[str, Any] = {"model_type": family, "hidden_size": 128, "num_hidden_layers": 12}
    fields |= {"num_attention_heads": 8, "vocab_size": 64, row.hidden[0]: 512}
    if row.kv_heads is shared_keys:
        fields["num_key_value_heads"] = 4
    if row.padding:
        fields["pad_token_id"] = 3
    if row.positions:
        fields["max_position_embeddings"] = 64
    return sa.model_from_config(fields | REQUIRED.get(family, {}))


def supported_models() -> str:
    """Return the table in Markdown: norms, positions, attention, MLP, shipped configurations."""
    shipped: dict[str, list[str]] = {}
    for name in sa.shipped_configurations():
        shipped.setdefault(sa.model_from_config(name).family, []).append(f"`{name}`")
    lines = [
        f"{len(FAMILIES)} families, by their `model_type`:",
        "",
        "| `model_type` | norm | positions | attention | MLP | shipped |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    notes = []
    for family in sorted(FAMILIES):
        model = smallest(family)
        star = "\\*" if model.approximations else ""
        notes += [f"\\* `{family}`: {what}." for what in model.approximations]
        cells = [f"`{family}`{star}", *_cells(model), ", ".join(shipped.get(family, []))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *notes, ""])


def _cells(model: Model) -> list[str]:
    blocks = [block for layer in model.layers() for block in layer]
    norms = [block for block in blocks if isinstance(block, Normalised)]
    inner = [block.inner if isinstance(block, Normalised) else block for block in blocks]
    parallel = any(isinstance(block, Parallel) for block in inner)
    parts = [part for block in inner for part in getattr(block, "blocks", (block,))]
    attentions = [part for part in parts if isinstance(part, ShapedAttention)]
    mlp = next(part for part in parts if isinstance(part, ShapedMLP))
    kind = "LayerNorm" if norms[0].norm == "layer" else "RMSNorm"
    activation = mlp.activation.removeprefix("plain_")
    return [
        f"{kind} {PLACES[norms[0].place]}",
        _positions(model, attentions),
        _attention(attentions),
        f"{'gated ' if mlp.gated else ''}{activation}{', parallel' if parallel else ''}",
    ]


def _positions(model: Model, attentions: list[ShapedAttention]) -> str:
    if model.embedding.position_std:
        return "learned"
    if attentions[0].position_bias is not None:
        return "ALiBi"
    shares = {0.0 if part.rope is None else part.rope.share for part in attentions}
    share = max(shares)
    words = "RoPE" if share == 1.0 else f"RoPE on {100 * share:g} % of a head"
    words = "RoPE on `rotary_dim` columns" if model.family in REQUIRED else words
    return f"{words}, not in all layers" if 0.0 in shares else words


def _attention(attentions: list[ShapedAttention]) -> str:
    masks = {part.mask for part in attentions}
    words = ["causal" if all(str(mask).startswith("causal") for mask in masks) else "full"]
    windows = [":" in str(mask) for mask in masks]
    if any(windows):
        words.append("windows" if all(windows) else "windows in some layers")
    first = attentions[0]
    if first.heads_per_key > 1:
        words.append("one key head" if first.heads_per_key == first.heads else "grouped keys")
    if first.qk_norm is not None:
        words.append("QK-norm")
    if first.softcap is not None:
        words.append("soft cap")
    return ", ".join(words)
