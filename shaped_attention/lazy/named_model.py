"""A model of the `transformers` library on rows, with the library's parameters by their names.

Biases start at 0, and so do those of LayerNorm, which are added to the rows that a block's first
matrices take. Gains are not trained.
"""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.architectures.model import Model, Norm
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.parameters import at_depth, value_at
from shaped_attention.lazy.networks import residual_space
from shaped_attention.lazy.space import new_rows
from shaped_attention.lazy.weights import Stored, Weights
from shaped_attention.numerics.primitives import by_mean_square
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame

_GPT2 = {
    "layer": "transformer.h", "embedding": "transformer.wte.weight",
    "positions": "transformer.wpe.weight", "final_bias": "transformer.ln_f.bias",
}  # fmt: skip
_LLAMA = {"layer": "model.layers", "embedding": "model.embed_tokens.weight"}
NAMES = {"gpt2": _GPT2, "llama": _LLAMA}
"""Names of parameters by family, as in the causal language models of the library."""


class LibraryModel:
    """Some samples of a model, as rows, for a text with the token numbers `ids`.

    The model was read from a configuration, and its family is in `NAMES`.
    """

    def __init__(self, model: Model, ids: NDArray[np.int64], source: Source) -> None:
        self._names = NAMES[model.family]
        self.model, self.width, self.depth = model, model.width, model.depth
        self.space, self.weights = residual_space(source, model.width, 1), Weights(source)
        self._vocabulary = Frame(model.embedding.vocabulary, source, explicit=True)
        self._tied = _flag(model, "tie_word_embeddings", model.family == "gpt2")
        words = self._vocabulary
        if not self._tied:
            # The rows of tokens that do not occur have no gradient.
            unique, ids = np.unique(ids, return_inverse=True)
            words = Frame(len(unique), source, explicit=True)
        self._words = new_rows(words, torch.eye(words.n)[torch.as_tensor(ids)])
        places = Frame(len(ids), source, explicit=True)
        self._places = new_rows(places, torch.eye(len(ids)))

    def start(self) -> Rows:
        """Return the tokens X_0."""
        law, name = self.model.embedding, self._names
        x = self.weights.product(self._words, self.space, name["embedding"], law.std, False)
        if law.position_std:
            std = law.position_std
            x = x + self.weights.product(self._places, self.space, name["positions"], std, False)
        return x

    def through(self, x: Any, layer: int) -> Rows:
        """Return the tokens after a layer."""
        for index, block in enumerate(self.model.layers()[layer]):
            project: Any = self.weights.block(f"{layer}.{index}", stored(self.model, layer, index))
            x = block.forward(at_depth(block, layer / self.depth), x, project)
        return x

    def outputs(self, x: Rows) -> Tensor:
        """Return the logits (B, m, vocabulary)."""
        x = _normalised(x, self.model.final_norm)
        if "final_bias" in self._names:
            x = x + self.weights.bias(self.space, self._names["final_bias"])
        if self._tied:
            logits = self.weights.looked_up(x, self._names["embedding"])
        else:
            std = self.model.embedding.std
            logits = self.weights.product(x, self._vocabulary, "lm_head.weight", std, False)
        return logits.entries()


def stored(model: Model, layer: int, index: int) -> list[Stored]:
    """Return how the library stores the matrices of a block of a layer."""
    block: Any = model.layers()[layer][index]
    inner, std, gpt2 = block.inner, model.embedding.std, model.family == "gpt2"
    whole = f"{NAMES[model.family]['layer']}.{layer}"
    # The factor by which the block, but not the library, divides the inputs of its last matrix.
    divisor = std * math.sqrt(model.width)
    names: tuple[str, ...]
    if isinstance(inner, ShapedAttention):
        size = float(inner.heads * inner.values(model.width))
        *parts, [last] = _products(inner)
        biased = gpt2 or _flag(model, "attention_bias", False)
        names, place = ("q_proj", "k_proj", "v_proj", "o_proj"), "self_attn"
        if gpt2:
            names, place = ("c_attn", "c_proj"), "attn"
    else:
        assert isinstance(inner, ShapedMLP)
        size = inner.units(model.width) * inner.mean_square(model.width)
        divisor = divisor if inner.gated else 1.0
        parts, last = ([[0], [1]], 2) if inner.gated else ([[0]], 1)
        biased, place = gpt2 or _flag(model, "mlp_bias", False), "mlp"
        names = ("c_fc", "c_proj") if gpt2 else ("gate_proj", "up_proj", "down_proj")
    names = tuple(f"{whole}.{place}.{name}" for name in names)
    weights = [f"{name}.weight" for name in names]
    biases = {f"{name}.weight": f"{name}.bias" for name in names} if biased else {}
    one = len(parts) > 1 and len(names) == 2
    held = [sorted(k for part in parts for k in part)] if one else parts
    last_std = value_at(block.gamma, 0.0) / (divisor * math.sqrt(size))
    norm_bias = f"{whole}.ln_{index + 1}.bias" if gpt2 else ""
    first = Stored(
        dict(zip(weights, held, strict=False)), std, {weights[0]: parts} if one else {}, biases,
        norm_bias=norm_bias, by_inputs=gpt2,
    )  # fmt: skip
    return [first, Stored({weights[-1]: [last]}, last_std, {}, biases, divisor, by_inputs=gpt2)]


def _products(attention: ShapedAttention) -> list[list[int]]:
    """Return the numbers of the products for queries, keys, values and W_O in a branch."""
    numbers = count()
    queries, keys, values = [], [], []
    for head in range(attention.heads):
        queries.append(next(numbers))
        if head % attention.heads_per_key == 0:
            keys.append(next(numbers))
            values.append(next(numbers))
    return [queries, keys, values, [next(numbers)]]


def _flag(model: Model, name: str, default: bool) -> bool:
    """Return a field of the configuration."""
    value = (model.config or {}).get(name)
    return default if value is None else bool(value)


def _normalised(x: Rows, norm: Norm | None) -> Rows:
    if norm is None:
        return x
    if norm.kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    tokens: Any = x
    return by_mean_square(tokens, norm.eps)
