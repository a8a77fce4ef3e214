"""A model of the `transformers` library on rows, with the library's parameters by their names.

Biases start at 0, and so do those of LayerNorm, which are added to the rows that a block's first
matrices take. Gains of norms, except those of queries and keys, are parameters if all spaces are
explicit: they act on entries.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from shaped_attention.architectures.family import ACTIVATIONS
from shaped_attention.architectures.model import Model, Norm
from shaped_attention.architectures.parameter_names import biased, holds, names_of, option
from shaped_attention.blocks.activations import activation_named
from shaped_attention.blocks.normalised import normed
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy.networks import residual_space
from shaped_attention.lazy.space import new_rows
from shaped_attention.lazy.stored import gain_and_bias, of_norm, stored
from shaped_attention.lazy.weights import Weights
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import AnySpace, Frame


class LibraryModel:
    """Some samples of a model, as rows, for a text with the token numbers `ids`.

    `weights` are the parameters, those of layers only if these go through it too.
    """

    def __init__(self, model: Model, ids: NDArray[np.int64], source: Source) -> None:
        self._names = names_of(model)
        self.model, self.width, self.depth = model, model.width, model.depth
        self._layers = model.layers()
        self.space, self.weights = residual_space(source, model.width, 1), Weights(source)
        self._vocabulary = Frame(model.embedding.vocabulary, source, explicit=True)
        self.tied = holds(model, ("tie_word_embeddings", self._names.tied))
        words = self._vocabulary
        if not self.tied:
            # The rows of tokens that do not occur have no gradient.
            unique, ids = np.unique(ids, return_inverse=True)
            words = Frame(len(unique), source, explicit=True)
        self._words = new_rows(words, one_hot(torch.as_tensor(ids), words.n))
        places = Frame(len(ids), source, explicit=True)
        self._places = new_rows(places, torch.eye(len(ids)))
        self._type = new_rows(Frame(1, source, explicit=True), torch.ones(len(ids), 1))

    def start(self) -> Rows:
        """Return the tokens X_0."""
        law, names = self.model.embedding, self._names
        x = self.words()
        if law.position_std:
            x = x + self._product(self._places, self.space, names.positions, law.position_std)
        if law.common_std:
            x = x + self._product(self._type, self.space, names.types, law.common_std)
        x = law.scale * x
        return x if law.norm is None else self._normed(x, law.norm, names.start_norm)

    def through(self, x: Rows, layer: int, weights: Weights | None = None) -> Rows:
        """Return the tokens after a layer, whose weights are those of the model by default."""
        model, weights = self.model, self.weights if weights is None else weights
        prefix = f"{self._names.layers}.{layer}."
        tokens = cast(Any, x)
        for index, block in enumerate(cast(Any, self._layers[layer])):
            project = self.project(weights, layer, index)
            place, gains = getattr(block, "place", ""), {}
            if place in ("branch", "sandwich") and weights.source.explicit:
                gain, _ = of_norm(model, block.inner, branch=True)
                gains["branch_gain"] = weights.gain(tokens.space, prefix + gain)
            p = at_depth(block, layer / self.depth, gains)
            tokens = cast(Any, block.forward(p, tokens, project))
            if place == "after":
                tokens = weights.after_norm(tokens, *of_norm(model, block.inner), prefix)
        rows: Rows = tokens
        return rows

    def project(self, weights: Weights, layer: int, index: int) -> Any:
        """Return the products of a block of a layer with its weights."""
        prefix = f"{self._names.layers}.{layer}."
        stds = self.model.stds
        assert stds is not None
        groups = stored(self.model, self._layers[layer][index], stds[layer % len(stds)])
        return weights.block(f"{prefix}{index}", groups, prefix)

    def outputs(self, x: Rows) -> Tensor:
        """Return the logits (B, m, vocabulary)."""
        return self.logits(self.normalised(x))

    def normalised(self, x: Rows) -> Rows:
        """Return the tokens after the final norm."""
        norm = self.model.final_norm
        return x if norm is None else self._normed(x, norm, self._names.final_norm)

    def logits(self, x: Rows) -> Tensor:
        """Return the logits of tokens after the final norm."""
        model, names = self.model, self._names
        if names.transform is not None:
            x = self._transformed(x)
        # Not the bias: it has one input at any width.
        logits = model.logit_multiplier * self.scores(x)
        if names.head_bias and holds(model, names.head_biased):
            logits = logits + self.weights.bias(self._vocabulary, names.head_bias).entries()
        if names.scale:
            logits = option(model, *names.scale) * logits
        if names.divisor:
            logits = logits / option(model, *names.divisor)
        cap = option(model, *names.cap) if names.cap else None
        return logits if cap is None else cap * (logits / cap).tanh()

    def words(self) -> Rows:
        """Return the rows of the embedding for the tokens."""
        law = self.model.embedding
        return self._product(self._words, self.space, self._names.embedding, law.std)

    def scores(self, x: Rows) -> Tensor:
        """Return the products of tokens with the head (B, m, vocabulary)."""
        if self.tied:
            return self.weights.looked_up(x, f"{self._names.embedding}.weight").entries()
        model = self.model
        std = model.embedding.std if model.head_std is None else model.head_std
        return self._product(x, self._vocabulary, self._names.head, std).entries()

    def _transformed(self, x: Rows) -> Rows:
        """Return what the head of a masked model makes of the tokens."""
        model, names = self.model, self._names
        assert names.transform is not None
        name, norm = names.transform
        std = model.embedding.std if model.transform_std is None else model.transform_std
        y: Any = self._product(x, x.space, name, std)
        if biased(model, "h"):
            y = y + self.weights.bias(y.space, f"{name}.bias")
        activation = activation_named(ACTIVATIONS[option(model, *names.activation)])
        law = model.embedding.norm
        assert law is not None
        return self._normed(activation(y), law, norm)

    def _product(self, x: Rows, space: AnySpace, name: str, std: float) -> Rows:
        return self.weights.product(x, space, f"{name}.weight", std, False)

    def _normed(self, x: Rows, norm: Norm, name: str) -> Rows:
        tokens: Any = x
        result: Any = normed(tokens, norm.kind, norm.eps)
        return self.weights.after_norm(result, *gain_and_bias(self.model, name))
