"""The shaped transformer as a trainable torch module.

Weights are N(0, 1) at initialisation and their factors 1 / sqrt n are written out, so an untrained
module is one sample of `simulate_network` with `ShapedTransformer.layer`. Also trainable are gamma
of every block (and with it lambda = sqrt(1 - gamma^2)) and the coefficients of

    A = gamma_1 I + softmax(Y / tau) - gamma_2 w,

which are 1 at the shaped point.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shaped_attention.blocks import Block, Pattern, ShapedAttention, ShapedMLP
from shaped_attention.blocks.base import Layer, blocks_of, pattern_of
from shaped_attention.blocks.parameters import at_depth, resolved
from shaped_attention.checks import argument_error, check_count, check_width


class ShapedAttentionModule(nn.Module):
    """One attention block: weights W_Q, W_K, W_V of each head, and W_O if the block has it."""

    def __init__(self, block: ShapedAttention, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.block = block
        self.layers_done = 0.0
        size = block.heads * block.keys(width)
        self.query = _gaussian((width, size), generator)
        self.key = _gaussian((width, size), generator)
        self.value = _gaussian((width, width), generator)
        self.output = _gaussian((width, width), generator) if block.output_projection else None
        self.query_bias = _bias(size, block.query_bias, generator)
        self.key_bias = _bias(size, block.key_bias, generator)
        self.gamma = nn.Parameter(torch.tensor(float(at_depth(block, 0.0).gamma)))
        self.identity = nn.Parameter(torch.tensor(float(block.identity)))
        self.centring = nn.Parameter(torch.tensor(float(block.centring)))

    def forward(self, tokens: Float[Tensor, "*B m n"]) -> Float[Tensor, "*B m n"]:
        """Apply the block."""
        block, n = self.block, tokens.shape[-1]
        root = math.sqrt(n)
        tau = block.temperature(at_depth(block, 0.0), n)
        queries = _heads(tokens @ self.query / root + self.query_bias, block.heads)
        keys = _heads(tokens @ self.key / root + self.key_bias, block.heads)
        values = _heads(tokens @ self.value / root, block.heads)
        logits = queries @ keys.mT / tau
        w = block.weights(tokens.shape[-2]).to(logits)
        seen = torch.softmax(logits.masked_fill(w == 0.0, -torch.inf), dim=-1)
        mixed = self.identity * values + (seen - self.centring * w) @ values
        branch = mixed.transpose(-3, -2).flatten(-2)
        if self.output is not None:
            branch = branch @ self.output / root
        return _residual(block, tokens, branch, self.gamma)


class ShapedMLPModule(nn.Module):
    """One MLP block: weights W_pre and W_post, and those of the gates, if any."""

    def __init__(self, block: ShapedMLP, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.block = block
        self.layers_done = 0.0
        units = block.units(width)
        self.pre = _gaussian((width, units), generator)
        self.gate = _gaussian((width, units), generator) if block.gated else None
        self.post = _gaussian((units, width), generator)
        self.gamma = nn.Parameter(torch.tensor(float(at_depth(block, 0.0).gamma)))

    def forward(self, tokens: Float[Tensor, "*B m n"]) -> Float[Tensor, "*B m n"]:
        """Apply the block."""
        # In the order of the branch: a gated layer multiplies tokens by the gate's weights first.
        weights = iter(x for x in (self.gate, self.pre, self.post) if x is not None)
        p = at_depth(self.block, 0.0)
        branch = self.block.branch(p, tokens, lambda x, *_: x @ next(weights))
        return _residual(self.block, tokens, branch, self.gamma)


class ShapedTransformer(nn.Module):
    """A trainable shaped transformer.

    Parameters
    ----------
    layer
        `ShapedAttention` and `ShapedMLP` blocks of one layer, in the order in which they act.
    width, depth
        Width n and number of layers L.
    vocabulary
        Size of an embedding with N(0, 1) rows, for inputs of token ids (..., m); None for inputs of
        tokens (..., m, n).
    seed
        Seed of the initial weights. torch's own generator is not used.

    Raises
    ------
    ValueError
        If an argument is outside its range, or a block is neither attention nor an MLP.

    Examples
    --------
    >>> import torch
    >>> from shaped_attention import ShapedAttention, ShapedTransformer
    >>> model = ShapedTransformer(ShapedAttention(0.4), width=16, depth=3, vocabulary=10)
    >>> model(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 16])
    """

    def __init__(
        self,
        layer: Layer | Pattern,
        *,
        width: int,
        depth: int,
        vocabulary: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        pattern = pattern_of(layer)
        self.layer = layer if isinstance(layer, Pattern) else list(blocks_of(layer))
        check_width("width", width)
        check_count("depth", depth)
        check_count("seed", seed, lowest=0)
        generator = torch.Generator().manual_seed(seed)
        self.width = width
        self.embedding: nn.Parameter | None = None
        if vocabulary is not None:
            check_count("vocabulary", vocabulary)
            self.embedding = _gaussian((vocabulary, width), generator)
        for block in blocks_of(self.layer):
            _check_trainable(block)
            mask = getattr(block, "mask", None)
            block.check(len(mask) if isinstance(mask, tuple) else 1, width)
        self.blocks = nn.ModuleList()
        for layer_index in range(depth):
            blocks = pattern[layer_index % len(pattern)]
            for number, block in enumerate(blocks, start=1):
                module = _module(resolved(block, layer_index / depth), width, generator)
                # For the times of `record_covariances`: a layer ends with its last block.
                module.layers_done = layer_index + number / len(blocks)
                self.blocks.append(module)

    def forward(self, inputs: Tensor) -> Float[Tensor, "*B m n"]:
        """Return the tokens after the last layer, for token ids if there is a `vocabulary`.

        Raises
        ------
        ValueError
            If `inputs` is not a tensor of the required type, or tokens have the wrong width.
        """
        tokens = self._embedded(inputs)
        if tokens.shape[-1] != self.width or tokens.ndim < 2:
            raise argument_error("inputs", f"of shape (..., m, {self.width})", tokens)
        for block in blocks_of(self.layer):
            block.check(tokens.shape[-2], self.width)
        for module in self.blocks:
            tokens = module(tokens)
        return tokens

    def _embedded(self, inputs: Tensor) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise argument_error("inputs", "a torch tensor", inputs)
        if self.embedding is None:
            dtype = next(self.parameters()).dtype
            if inputs.dtype != dtype:
                what = f"of type {dtype}, that of the weights"
                raise argument_error("inputs", what, inputs.dtype)
            return inputs
        size = len(self.embedding)
        known = not inputs.is_floating_point() and bool(((inputs >= 0) & (inputs < size)).all())
        if not known:
            raise argument_error("inputs", f"integer token numbers in [0, {size - 1}]", inputs)
        return self.embedding[inputs]


def _module(
    block: Block, width: int, generator: torch.Generator
) -> ShapedAttentionModule | ShapedMLPModule:
    if isinstance(block, ShapedAttention):
        return ShapedAttentionModule(block, width, generator)
    if isinstance(block, ShapedMLP):
        return ShapedMLPModule(block, width, generator)
    raise ValueError(f"layer contains {block!r}; only ShapedAttention and ShapedMLP can be trained")


def _is_own(block: Block) -> bool:
    return type(block) in (ShapedAttention, ShapedMLP)


def _check_trainable(block: Block) -> None:
    """Raise ValueError if a block has an option or a method that the module does not have."""
    if isinstance(block, ShapedAttention | ShapedMLP) and not _is_own(block):
        raise ValueError(
            f"layer contains {block!r}, a subclass, which cannot be trained: the module computes "
            "what the package's own blocks do"
        )
    if not isinstance(block, ShapedAttention):
        return
    for name in ("kv_heads", "head_size", "rope", "position_bias", "qk_norm", "softcap"):
        value = getattr(block, name)
        if value:
            raise ValueError(
                f"layer contains {block!r}, which has {name}={value!r} and cannot be trained"
            )


def _gaussian(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, generator=generator))


def _bias(size: int, variance: float, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter(math.sqrt(variance) * torch.randn(size, generator=generator))


def _heads(x: Float[Tensor, "*B m k"], heads: int) -> Float[Tensor, "*B h m c"]:
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def _residual(block: Block, tokens: Tensor, branch: Tensor, gamma: Tensor) -> Tensor:
    skip = getattr(block, "skip", None)
    if skip is not None:
        return skip * tokens + gamma * branch
    # Training may move gamma past 1; the skip connection then vanishes.
    return (1.0 - gamma**2).clamp(min=0.0).sqrt() * tokens + gamma * branch
