"""Language models in the manner of nanoGPT and of Meta's Llama, with their initialisations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, POSITIONS = 96, 64, 4, 3, 32


@dataclass
class GPTConfig:
    block_size: int = POSITIONS
    vocab_size: int = VOCABULARY
    n_layer: int = LAYERS
    n_head: int = HEADS
    n_embd: int = WIDTH
    dropout: float = 0.1
    bias: bool = True


class Attention(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.heads, self.dropout, self.causal = config.n_head, config.dropout, True

    def forward(self, x: Tensor) -> Tensor:
        batch, m, n = x.shape
        q, k, v = (
            y.view(batch, m, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(n, 2)
        )
        rate = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=self.causal)
        return self.c_proj(y.transpose(1, 2).reshape(batch, m, n))


class MLP(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(functional.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    """Returns logits and the loss; without targets those of the last token alone."""

    def __init__(self, config: GPTConfig, scaled: bool = True) -> None:
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.block_size, config.n_embd),
            "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
            "ln_f": nn.LayerNorm(config.n_embd, bias=config.bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight
        for name, weight in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(weight)
            elif weight.ndim == 2:
                depth = math.sqrt(2 * config.n_layer) if "c_proj" in name and scaled else 1.0
                nn.init.normal_(weight, std=0.02 / depth)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        parts: Any = self.transformer
        x = parts.wte(idx) + parts.wpe(torch.arange(idx.shape[1]))
        for block in parts.h:
            x = block(x)
        x = parts.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, functional.cross_entropy(logits[0], targets[0])


class LlamaAttention(nn.Module):
    def __init__(self, n: int, heads: int) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(n, n, bias=False) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        shape = (*x.shape[:2], self.heads, -1)
        q, k, v = (w(x).view(shape).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(x.shape))


def rotated(x: Tensor) -> Tensor:
    """Pairs of neighbours are turned, as in Meta's code."""
    m, d = x.shape[-2:]
    angle = torch.arange(m)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


class FeedForward(nn.Module):
    def __init__(self, n: int, hidden: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(n, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, n, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class LlamaBlock(nn.Module):
    def __init__(self, n: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = LlamaAttention(n, heads), FeedForward(n, hidden)
        self.attention_norm, self.ffn_norm = (nn.RMSNorm(n, eps=1e-5) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


PARAMS = {
    "dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "vocab_size": VOCABULARY,
    "multiple_of": 32, "norm_eps": 1e-5,
}  # fmt: skip
"""Meta's params.json; the MLP has 192 units."""

DEPTH = "o_proj=0.02/sqrt(2*(l+1)), down_proj=0.02/sqrt(2*(l+1)), embed_tokens=0.02, lm_head=n**-.5"
"""The initialisation below, which scales w3 of no layer."""


class Llama(nn.Module):
    """Meta's and torchtitan's names; the last matrix of each branch is scaled by the depth."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleDict({
            str(k): LlamaBlock(WIDTH, HEADS, 192) for k in range(LAYERS)
        })  # fmt: skip
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                ends = name.split(".")
                last = ends[-2] in ("wo", "w2")
                std = 0.02 / math.sqrt(2 * (int(ends[1]) + 1)) if last else 0.02
                nn.init.normal_(weight, std=WIDTH**-0.5 if name == "output.weight" else std)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            x = layer(x)
        return self.output(self.norm(x))


def build(**options: Any) -> NanoGPT:
    """A correct model, for the command."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return NanoGPT(GPTConfig(), **options)


def unscaled() -> NanoGPT:
    """A model whose residual projections are not scaled by the depth."""
    return build(scaled=False)


def llama() -> Llama:
    """A correct Llama."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Llama()
