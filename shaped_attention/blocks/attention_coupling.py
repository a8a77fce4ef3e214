"""The random numbers of shaped attention that are increments of its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from shaped_attention.blocks.coupling import Coupling, Handed, wishart_noise
from shaped_attention.lazy_torch import Tensor, torch


@dataclass(frozen=True)
class ScoresCoupling(Coupling):
    """Coupling by dZ_2 = K^T and by the W of W_O, both as sums over heads divided by sqrt H."""

    block: Any

    def reason_against(self, tokens: int, width: int) -> str:
        """Return why the degrees of freedom do not allow a coupling; empty if they do."""
        block = self.block
        for name in ("kv_heads", "head_size", "rope"):
            if getattr(block, name) is not None:
                return f"attention with {name}={getattr(block, name)!r} is not coupled"
        if block.qk_norm:
            return f"attention with qk_norm={block.qk_norm!r} is not coupled"
        if block.key_size is not None:
            return (
                f"with key_size={block.key_size} at all widths the scores of a layer are not "
                "Gaussian; None is needed"
            )
        least = tokens + 2 + (block.query_bias > 0.0)
        if block.keys(width) < least:
            return f"at width {width} its keys have size {block.keys(width)}, below {least}"
        if block.output_projection and width // block.heads < tokens + 2:
            size = width // block.heads
            return f"at width {width} its heads have size {size}, below {tokens + 2}"
        return ""

    def common(self, p: Any, handed: Handed, width: int) -> Tensor | float:
        """Return the noise of the heads' values that W_O mixes."""
        heads = self.block.heads
        if not self.block.output_projection:
            return 0.0
        mixed = [wishart_noise(handed["values", h], width // heads) for h in range(heads)]
        return p.gamma**2 / math.sqrt(heads) * torch.stack(mixed).sum(0)

    def scores(self, handed: Handed) -> Tensor:
        """Return the keys; the columns that a key bias adds cancel in the softmax."""
        heads = self.block.heads
        keys = torch.stack([handed["keys", h] for h in range(heads)]).sum(0) / math.sqrt(heads)
        m = keys.shape[-1] - (self.block.query_bias > 0.0)
        return keys[:, :m].mT
