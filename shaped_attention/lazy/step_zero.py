"""The loss of a model of the library at step 0 and its gradients, layer by layer.

The layers have frames that forget (`lazy.forgetting`). A head that is tied to the embedding sees
the embedding rows of the tokens in the text, so these rows are carried through all layers with the
tokens, and their gradients are carried back. All other rows are drawn in the head, where they are
first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.architectures.model import Model
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy.deep import DeepNetwork
from shaped_attention.lazy.low_rank import length
from shaped_attention.lazy.named_model import LibraryModel
from shaped_attention.lazy.networks import classification
from shaped_attention.lazy.space import new_rows
from shaped_attention.lazy.weights import Weights
from shaped_attention.rows.coordinates import inner
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame
from shaped_attention.rows.tape import Tape

Ids = NDArray[np.int64]

OTHERS, ZERO = "other tokens", "zero tokens"
"""The rows of a tied embedding for tokens that do not occur, and for those that start at 0."""


class StepZero(NamedTuple):
    """What is known of some samples at step 0.

    `covariances` (L + 1, B, m, m) are those of the tokens that enter each layer and of the last
    ones, `final` (B, m, m) those after the final norm; `entropies` (B, H, m) are those of the
    attention in the first block of each layer. `norms` (B,) are those of the gradients, and
    `sizes` numbers of entries, of each parameter.
    """

    loss: Tensor
    logit_std: Tensor
    covariances: Tensor
    final: Tensor
    entropies: list[Tensor]
    norms: dict[str, Tensor]
    sizes: dict[str, int]


class ModelAtStart(LibraryModel):
    """Some samples of a model, of which only the rows of the tokens that occur are carried on.

    With `entropy` the entropies of the attention in the first block of each layer are kept.
    """

    def __init__(self, model: Model, ids: Ids, source: Source, means: bool, entropy: bool) -> None:
        super().__init__(model, ids, source)
        # The row of padding is 0, and a look at it gives it no gradient.
        drawn = ~np.isin(ids, model.embedding.zero_ids)
        occurring, place = np.unique(ids[drawn], return_inverse=True)
        others = np.setdiff1d(np.arange(self._vocabulary.n), occurring)
        zero = np.isin(others, model.embedding.zero_ids)
        self._counts = len(occurring), int((~zero).sum()), int(zero.sum())
        self._order = np.argsort([*occurring, *others[~zero], *others[zero]])
        self._units = torch.eye(len(occurring), dtype=source.dtype, device=source.device)
        self._place = self._units.new_zeros(len(ids), len(occurring))
        self._place[torch.as_tensor(drawn)] = self._units[torch.as_tensor(place)]
        self._source, self._means, self._entropy = source, means, entropy
        self._entropies: list[Tensor] = []
        self._known: Rows | None = None
        self._network: DeepNetwork | None = None

    def words(self) -> Rows:
        """Return the rows of the embedding for the tokens."""
        space, law = Frame(self._counts[0], self._source, explicit=True), self.model.embedding
        units = new_rows(space, self._units)
        self._known = self._product(units, self.space, self._names.embedding, law.std)
        return self._place @ self._known

    def scores(self, x: Rows) -> Tensor:
        """Return the products with the head, those of tokens that occur first if it is tied."""
        if not self.tied:
            return super().scores(x)
        assert self._known is not None
        _, others, zero = (Frame(max(1, k), self._source, explicit=True) for k in self._counts)
        parts = [x @ self._known.mT]
        if self._counts[1]:
            std = self.model.embedding.std
            parts.append(self.weights.product(x, others, OTHERS, std, False).entries())
        if self._counts[2]:
            parts.append(self.weights.product_with_zero(x, zero, ZERO).entries())
        return torch.cat(parts, dim=-1)

    def forward(
        self, passed: Callable[[int], object] = lambda count: None, layers: int | None = None
    ) -> DeepNetwork:
        """Go forward to the last tokens, or so far; `passed` is called as by `DeepNetwork`."""
        with Tape() as self._start:
            x = self.start()
            self._entering = x if not self.tied or self._known is None else _below(self._known, x)
        start, means = self._entering.detached(), self._means
        self._network = DeepNetwork(start, self._layer, self.depth, means, passed)
        self._last = self._network.forward(layers)
        return self._network

    def step(self, targets: Ids) -> StepZero:
        """Return the loss for targets (m,), and the norms of its gradients."""
        network = self._network
        assert network is not None
        goal = torch.as_tensor(self._order[targets] if self.tied else targets)
        with Tape() as tape:
            self._known, x = self._parts(self._last)
            x = self.normalised(x)
            logits = self.logits(x)
            loss = classification(logits, goal.to(logits.device))
        tokens = [self._parts(rows)[1] for rows in network.tokens()]
        covariances = torch.stack([inner(y, y) for y in tokens]) / self.width
        final = inner(x, x) / self.width
        std = logits.detach().flatten(1).std(dim=1, correction=0)
        del logits
        tape.backward(loss)
        gradient = tape.gradient(self._last)
        assert gradient is not None
        above: list[dict[str, Tensor]] = []
        sizes: dict[str, int] = {}
        for layer in network.backward([gradient]):
            above.append({name: length(part)[:, 0, 0] for name, (part,) in layer.weights.items()})
            sizes |= layer.sizes
            (gradient,) = layer.entering
        self._start.add(self._entering, gradient)
        self._start.backward()
        norms: dict[str, Tensor] = {}
        others: list[Tensor] = []
        for name, parameter in self.weights.items():
            norm = parameter.matrix.gradient_norm()
            if name in (OTHERS, ZERO):
                others.append(norm)
                continue
            norms[name], sizes[name] = norm, math.prod(parameter.shape)
        embedding = f"{self._names.embedding}.weight"
        sizes[embedding] = self._vocabulary.n * self.width
        for norm in others:
            norms[embedding] = torch.hypot(norms[embedding], norm)
        for found in above:
            norms |= found
        loss, covariances, final = loss.detach(), covariances.detach(), final.detach()
        return StepZero(loss, std, covariances, final, self._entropies, norms, sizes)

    def _parts(self, rows: Rows) -> tuple[Rows | None, Rows]:
        """Return the rows of the embedding and the tokens."""
        known = self._counts[0]
        return (rows[:, :known], rows[:, known:]) if self.tied else (None, rows)

    def _layer(self, rows: Rows, number: int, weights: Weights) -> Rows:
        known, x = self._parts(rows)
        after = self.through(x, number, weights)
        if self._entropy:
            with Tape.paused():
                self._entropies.append(self._entropies_of(x, number, weights))
        return after if known is None else _below(known, after)

    def _entropies_of(self, x: Rows, number: int, weights: Weights) -> Tensor:
        """Return the entropies (B, H, m) of the attention in the first block of a layer."""
        block = self._layers[number][0]
        project = self.project(weights, number, 0)
        tokens: Any = x
        seen = block.attention_weights(at_depth(block, number / self.depth), tokens, project)
        return torch.stack([torch.special.entr(a.detach()).sum(-1) for _, a in seen], dim=1)


def _below(x: Rows, y: Rows) -> Rows:
    """Return the rows of both."""
    both: Any = torch.cat([x, y], dim=1)  # type: ignore[list-item]
    rows: Rows = both
    return rows
