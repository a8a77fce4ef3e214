"""Roots and steps of the chain written by hand, in Gram space, beside those derived from branches.

They are a second text of each block, with score Grams, groups of columns, the means of LayerNorm
and special cases of norms. The derived chain has the same random numbers by name, so its paths
agree to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import shaped_attention as sa
from shaped_attention.blocks.activations import SHAPED_RELU
from shaped_attention.blocks.attention import prepared
from shaped_attention.blocks.score_moments import extended
from shaped_attention.derived.state import State
from shaped_attention.numerics.primitives import (
    M,
    Numbers,
    by_length,
    cholesky,
    columns,
    compress,
    concatenate,
    lower,
    row_squares,
    sqrt,
    unit_rows,
)

Rows = list[M]
"""Coordinates of the rows of one group: along the columns of its factor, then orthogonal to them.

The second matrix is missing if the factor has as many columns as the group.
"""


def total_factor(state: State) -> M:
    """Return a factor of V, compressed if it has more columns than rows."""
    factors = state.factors
    if len(factors) == 1:
        return compress(factors[0])
    weight = 1.0 / len(factors) ** 0.5
    return compress(concatenate([weight * factor for factor in factors]))


def branch_rows(
    factor: M, root: M, weight: Any, width: int, numbers: Numbers, group: int = 0
) -> Rows[M]:
    """Return the coordinates ``weight R [H, B] / sqrt n`` of a branch, for one group."""
    root = compress(root)
    rank, inner = factor.shape[-1], root.shape[-1]
    scale = weight / width**0.5
    along = scale * (root @ numbers.normal("branch", inner, rank, group))
    if width == rank:
        return [along]
    rest = numbers.wishart("branch, orthogonal", inner, width - rank, group)
    return [along, scale * (root @ rest)]


def branches(
    state: State, root: M | list[M], weight: Any, width: int, numbers: Numbers
) -> list[Rows[M]]:
    """Return the coordinates of the branch for each of the g groups of n / g columns.

    Given the past the branches of the groups are independent. The columns of a group have the
    covariance given by `root`, or by the group's entry if that is a list.
    """
    groups = len(state.factors)
    heads = root if isinstance(root, list) else [root]
    share = groups // len(heads)
    return [
        branch_rows(factor, heads[g // share], weight, width // groups, numbers, g)
        for g, factor in enumerate(state.factors)
    ]


def added(state: State, rows: Sequence[Rows[M]], skip: Any) -> State:
    """Return the state of ``skip X + Z``, from the coordinates of Z for each group."""
    pairs = zip(state.factors, rows, strict=True)
    return state._replace(
        factors=tuple(
            _turned([skip * factor + along, *rest], state.means) for factor, (along, *rest) in pairs
        )
    )


def _turned(parts: Rows[M], means: bool) -> M:
    """Return a factor with the Gram of [parts], with few columns; a column of means is kept."""
    along, *rest = parts
    if means:
        first, body = columns(along, 0, 1), columns(along, 1, along.shape[-1])
        return concatenate([first, _turned([body, *rest], False)])
    if rest or along.shape[-1] >= along.shape[-2]:
        return lower(concatenate(parts))
    return along


def residual_step(
    state: State, root: M | list[M], skip: Any, gamma: Any, width: int, numbers: Numbers
) -> State:
    """Take the state of g groups of n / g columns through ``lambda X + gamma Z``.

    Each group has its own skip connection: V_g' is the Gram of lambda X_g + gamma Z_g.
    """
    return added(state, branches(state, root, gamma, width, numbers), skip)


def centred(rows: Sequence[Rows[M]]) -> list[Rows[M]]:
    """Subtract the means of the tokens over all groups, whose first columns are their means."""
    firsts = [columns(along, 0, 1) for along, *_ in rows]
    mean = (1.0 / len(firsts)) * sum(firsts[1:], firsts[0])
    return [
        [concatenate([first - mean, columns(along, 1, along.shape[-1])]), *rest]
        for first, (along, *rest) in zip(firsts, rows, strict=True)
    ]


def divided(rows: Sequence[Rows[M]], eps: float, gain: Any) -> list[Rows[M]]:
    """Divide the rows of all groups by sqrt(mean square + eps), and multiply them by `gain`.

    The mean square is (1/g) sum of the groups' squared lengths. With eps = 0 a row of zeros is
    unchanged.
    """
    groups = len(rows)
    flat = [part for parts in rows for part in parts]
    if len(flat) == 1:
        return [[gain * by_length(flat[0], eps)]]
    if eps > 0.0:
        squares = [row_squares(part) for part in flat]
        length = sqrt((1.0 / groups) * sum(squares[1:], squares[0]) + eps)
        return [[gain * (part / length) for part in parts] for parts in rows]
    unit, stop = unit_rows(concatenate(flat)), 0
    result = []
    for parts in rows:
        here = []
        for part in parts:
            start, stop = stop, stop + part.shape[-1]
            here.append((gain * groups**0.5) * columns(unit, start, stop))
        result.append(here)
    return result


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


def attention_root(block, p: Parameters, factor: M, numbers: Numbers, width: int) -> M | list[M]:
    """Return A_h F for each head; the scores are those of `gram_scores`.

    With an output projection the columns have the covariance (1 / (H d_h)) sum_h A_h F W_h F^T
    A_h^T with W_h ~ Wishart(d_h), equal for all heads h of a group and independent otherwise.
    """
    size, tau = block.values(width), block.temperature(p, width)
    roots = []
    shared: Any = None
    # Fewer columns than tokens: A (F W) costs less than (A F) W.
    few = size < min(factor.shape[-2:])
    for h, scores in enumerate(gram_scores(block, factor, numbers, width)):
        if not block.output_projection:
            roots.append(block.attend(scores / tau, factor, h))
            continue
        if h % block.heads_per_key == 0:
            group = h // block.heads_per_key
            shared = numbers.wishart("values", factor.shape[-1], size, group)
            shared = factor @ shared if few else shared
        if few:
            root = block.attend(scores / tau, shared, h)
        else:
            root = block.attend(scores / tau, factor, h) @ shared
        roots.append(root / math.sqrt(block.heads * size))
    if block.output_projection:
        return concatenate(roots)
    return roots if block.heads > 1 else roots[0]


def mlp_root(block, p: Parameters, factor: M, numbers: Numbers, width: int) -> M:
    """Return a factor of the Gram matrix of d hidden units h = F g.

    It costs O(d m^2): the Gram matrix of a nonlinear function has no simpler exact law. If
    there are fewer units than tokens, the units themselves are a factor, without the rounding
    of a singular Gram matrix.
    """
    units, (tokens, columns) = block.units(width), factor.shape[-2:]

    def unit(z: M, *u: M) -> M:
        value = block.activated(p, z, width)
        return value * u[0] if u else value

    weight = (1.0 / block._mean_square(p, width)) / units
    # A shaped ReLU layer of the same width keeps the random numbers that it has always had.
    kept = block.activation == SHAPED_RELU and units == width
    if units < tokens and not kept:
        names = ("hidden", "gated") if block.gated else ("hidden",)
        few = unit(*(factor @ numbers.normal(name, columns, units) for name in names))
        return sqrt(weight) * few
    copies = 2 if block.gated else 1
    return cholesky(numbers.activated_gram("hidden", factor, units, unit, copies) * weight)


def parallel_root(block, p: Parameters, factor: M, numbers: Numbers, width: int) -> M | list[M]:
    """Return the weighted roots next to each other, for each group of columns."""
    pairs = enumerate(zip(block.blocks, p.blocks, strict=True))
    roots = [(q.gamma, block.root(q, factor, numbers.inside(i), width)) for i, (block, q) in pairs]
    groups = block.groups
    if groups == 1:
        return concatenate([gamma * root for gamma, root in roots])
    return [
        concatenate([gamma * _of_group(root, g, groups) for gamma, root in roots])
        for g in range(groups)
    ]


def _of_group(root: M | list[M], group: int, groups: int) -> M:
    return root[group * len(root) // groups] if isinstance(root, list) else root


def root_of(block, p, factor, numbers, width):
    """Return the root of a block, written by hand."""
    if isinstance(block, sa.ShapedAttention):
        return attention_root(block, p, factor, numbers, width)
    if isinstance(block, sa.ShapedMLP):
        return mlp_root(block, p, factor, numbers, width)
    if isinstance(block, sa.Parallel):
        return parallel_root(block, p, factor, numbers, width)
    return block.root(p, factor, numbers, width)


def step_of(block, p, state, numbers, width, centre=centred):
    """Take the step of a block, written by hand."""
    if not isinstance(block, sa.Normalised):
        root = root_of(block, p, total_factor(state), numbers, width)
        return residual_step(state, root, block.skip_weight(p), p.gamma, width, numbers)

    def centred_rows(rows):
        return centre(rows) if block.norm == "layer" else rows

    def state_of(rows):
        return state._replace(factors=tuple(along for (along,) in rows))

    eps = block.eps if block.branch_eps is None else block.branch_eps
    skip, gamma, inner = block.inner.skip_weight(p.inner), p.inner.gamma, block.inner
    rows_of = [[factor] for factor in state.factors]
    before, ends = block.place in ("before", "sandwich"), block.place in ("branch", "sandwich")
    seen = total_factor(state_of(centred_rows(rows_of)) if before else state)
    if before:
        [[seen]] = divided([[seen]], block.eps, p.gain)
    root = root_of(inner, p.inner, seen, numbers, width)
    if ends:
        rows = divided(centred_rows(branches(state, root, 1.0, width, numbers)), eps, p.gain)
        return added(state, [[gamma * part for part in parts] for parts in rows], skip)
    new = added(state, branches(state, root, gamma, width, numbers), skip)
    if block.place != "after":
        return new
    return state_of(divided(centred_rows([[x] for x in new.factors]), block.eps, p.gain))


class ByHand:
    """A block whose step is the one that is written by hand; mixed in before the block."""

    def step(self, p, state, numbers, width):
        return step_of(self, p, state, numbers, width)
