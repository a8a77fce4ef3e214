"""Queries, keys and scores of attention, with real weights and in Gram space.

The scores of a head are Y = Q K^T, where the rows of Q and K may be divided by their root mean
square (QK-norm) and rotated (RoPE), in this order. Without these two, Y is a product of Gaussian
matrices seen through F, and two m x m matrices determine its law; heads of a group share the keys'
factor. With one of them, the n_k columns of Q = F_Q Gauss and K = F_K Gauss are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shaped_attention.blocks.attention_fields import AttentionFields
from shaped_attention.blocks.base import Project, Tokens
from shaped_attention.blocks.rotations import turned
from shaped_attention.blocks.state import by_mean_square
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    columns,
    concatenate,
    constant,
)


def prepared(block: AttentionFields, heads: Sequence[M]) -> list[M]:
    """Return the rows of queries or keys of some heads, normalised and rotated."""
    rows, norm, rope = list(heads), block.qk_norm, block.rope
    if norm is not None and norm.over == "all":
        size = rows[0].shape[-1]
        whole = by_mean_square(concatenate(rows), norm.eps)
        rows = [columns(whole, h * size, (h + 1) * size) for h in range(len(rows))]
    elif norm is not None:
        rows = [by_mean_square(x, norm.eps) for x in rows]
    if rope is not None:
        angles = rope.pairs(rows[0].shape[-1], rows[0].shape[-2])
        rows = [turned(x, angles, rope.attention_factor) for x in rows]
    return rows


def gram_scores(block: AttentionFields, factor: M, numbers: Numbers, width: int) -> Iterator[M]:
    """Yield Y of each head, Y = F_Q (B K^T) F_K^T, B B^T ~ Wishart(n_k), K Gaussian.

    With a bias F_Q = (F, sigma_Q 1), in homogeneous coordinates, and likewise F_K.
    """
    keys, share = block.keys(width), block.heads_per_key
    query_factor = extended(factor, block.scores.query_bias)
    key_factor = extended(factor, block.scores.key_bias)
    if block.rope is not None or block.qk_norm is not None:
        yield from _drawn_scores(block, query_factor, key_factor, numbers, keys)
        return
    shared: Any = None
    for h in range(block.heads):
        if share == 1:
            query = numbers.wishart("queries", query_factor.shape[-1], keys, h)
            key = numbers.normal("keys", key_factor.shape[-1], query.shape[-1], h)
        else:
            if h % share == 0:
                shared = numbers.wishart("keys", key_factor.shape[-1], keys, h // share)
            key = shared
            query = numbers.normal("queries", query_factor.shape[-1], key.shape[-1], h)
        yield (query_factor @ (query @ key.mT)) @ key_factor.mT


def _drawn_scores(
    block: AttentionFields, query_factor: M, key_factor: M, numbers: Numbers, keys: int
) -> Iterator[M]:
    """Yield Y of each head, from all columns of its queries and keys."""
    heads, groups = range(block.heads), range(block.heads // block.heads_per_key)

    def query(h: int) -> M:
        return query_factor @ numbers.normal("queries", query_factor.shape[-1], keys, h)

    def key(g: int) -> M:
        return key_factor @ numbers.normal("keys", key_factor.shape[-1], keys, g)

    if block.qk_norm is not None and block.qk_norm.over == "all":
        queries = prepared(block, [query(h) for h in heads])
        all_keys = prepared(block, [key(g) for g in groups])
        for h in heads:
            yield queries[h] @ all_keys[h // block.heads_per_key].mT
        return
    current: Any = None
    for h in heads:
        if h % block.heads_per_key == 0:
            (current,) = prepared(block, [key(h // block.heads_per_key)])
        yield prepared(block, [query(h)])[0] @ current.mT


def extended(factor: M, variance: float) -> M:
    """Return (F, sigma 1), a root of V + sigma^2 11^T, or F itself without a bias."""
    if variance == 0.0:
        return factor
    ones = np.full((factor.shape[-2], 1), math.sqrt(variance))
    return concatenate([factor, constant(ones, like=factor)])


def biased(x: Tokens, variance: float, project: Project) -> Tokens:
    """Add one row of independent N(0, variance) entries to every token."""
    if variance == 0.0:
        return x
    one = x.new_full((*x.shape[:-2], 1, 1), math.sqrt(variance))
    return x + project(one, x.shape[-1])
