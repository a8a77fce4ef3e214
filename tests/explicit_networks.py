"""Networks with explicit weights in torch: what lazily revealed ones are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import shaped_attention as sa
from shaped_attention.blocks.base import pattern_of
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.lazy.optimizers import rate_of
from shaped_attention.samplers.specification import common_groups

TWO_EQUAL = np.array(
    [[1.0, 1.0, 0.2, 0.1], [1.0, 1.0, 0.2, 0.1], [0.2, 0.2, 1.0, 0.3], [0.1, 0.1, 0.3, 1.0]]
)
"""A covariance of four tokens of which the first two are equal."""


@dataclass
class Explicit:
    """Independent networks of `count` samples, whose weights are drawn when they are first used."""

    layer: Any
    width: int
    depth: int
    count: int
    seed: int
    v0: NDArray[np.float64] = field(default_factory=lambda: TWO_EQUAL)
    weights: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)
        pattern = pattern_of(self.layer)
        groups = common_groups([block for blocks in pattern for block in blocks])
        values, vectors = np.linalg.eigh(self.v0)
        factor = torch.tensor(vectors * np.sqrt(np.maximum(values, 0.0)))
        m, n = len(self.v0), self.width // groups
        frames = torch.linalg.qr(self.normal(self.count * groups, n, n))[0][:, :m]
        tokens = (n**0.5 * factor @ frames).unflatten(0, (self.count, groups))
        self.start = tokens.permute(0, 2, 1, 3).reshape(self.count, m, self.width)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def weight(self, name: str, rows: int, columns: int) -> Tensor:
        if name not in self.weights:
            self.weights[name] = self.normal(self.count, rows, columns).requires_grad_()
        return self.weights[name]

    def tokens(self) -> list[Tensor]:
        """Tokens after each layer, with gradients to come."""
        x = self.start.clone().requires_grad_()
        after = [x]
        pattern = pattern_of(self.layer)
        for number in range(self.depth):
            for index, block in enumerate(pattern[number % len(pattern)]):
                project = projection(self.weight, f"{number}.{index}")
                x = block.forward(at_depth(block, number / self.depth), x, project)
            x.retain_grad()
            after.append(x)
        return after

    def outputs(self, tokens: Tensor, columns: int) -> Tensor:
        return tokens @ self.weight("readout", self.width, columns) / math.sqrt(self.width)


def projection(weight: Callable[[str, int, int], Tensor], name: str) -> Callable[..., Tensor]:
    """``project(x, columns)`` with weights "name.0", "name.1", ..."""
    used = 0

    def project(x: Tensor, columns: int, _: str | None = None, head: int = 0) -> Tensor:
        nonlocal used
        used += 1
        return x @ weight(f"{name}.{used - 1}", x.shape[-1], columns)

    return project


def norms(matrices: dict[str, Tensor]) -> dict[str, NDArray[np.float64]]:
    """Frobenius norms for each sample."""
    return {name: x.flatten(1).norm(dim=1).detach().numpy() for name, x in matrices.items()}


def take_step(
    weights: dict[str, Tensor], gradients: dict[str, Tensor], buffers: dict[str, Any],
    rule: sa.SGD | sa.Muon, is_hidden: Callable[[str], bool], sign: Callable[[str, Tensor], Tensor],
) -> dict[str, Tensor]:  # fmt: skip
    """Take a step of SGD or Muon in place, and return the updates without decay of the weights.

    `sign` gives U V^T of a matrix (samples, ...) of that name, times the factor of Muon.
    """
    if isinstance(rule, sa.SGD) and rule.clip:
        total = sum(g.flatten(1).norm(dim=1) ** 2 for g in gradients.values()) ** 0.5
        shrink = (rule.clip / (total + 1e-6)).clamp(max=1.0)
        gradients = {k: shrink.reshape(-1, *[1] * (g.dim() - 1)) * g for k, g in gradients.items()}
    updates = {}
    for name, w in weights.items():
        g = gradients[name]
        if isinstance(rule, sa.Muon) and is_hidden(name):
            buffers[name] = rule.momentum * buffers.get(name, 0.0) + g
            w *= 1.0 - rule.lr * rule.weight_decay
            seen = g + rule.momentum * buffers[name] if rule.nesterov else buffers[name]
            updates[name] = rule.lr * sign(name, seen)
        else:
            sgd = rule if isinstance(rule, sa.SGD) else rule.rest or sa.SGD(rule.lr)
            direction = g + sgd.weight_decay * w
            buffers[name] = sgd.momentum * buffers.get(name, 0.0) + direction
            updates[name] = rate_of(sgd.lr, name) * buffers[name]
        w -= updates[name]
    return updates


def matrix_sign(x: Tensor, level: float) -> Tensor:
    """U V^T of U S V^T, over the singular values above a level of the largest."""
    u, values, vh = torch.linalg.svd(x, full_matrices=False)
    there = (values > level * values[:, :1]).to(x.dtype)
    return (u * there[:, None]) @ vh
