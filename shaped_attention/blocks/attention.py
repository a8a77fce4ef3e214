"""Shaped attention: softmax centred at the identity, with temperature tau_0 sqrt(n n_k).

    X' = lambda X + gamma A X W_V / sqrt n,        A_ab = delta_ab + softmax(Y / tau)_ab - w_ab,
    Y = Q K^T,    Q = X W_Q / sqrt n + 1 b_Q^T,    K = X W_K / sqrt n + 1 b_K^T,

with tau = tau_0 sqrt(n n_k), where w_ab = 1 / m_a if token a may attend to token b and 0 otherwise
(m_a is the number of such b; without a mask w = 1/m). With H heads the n columns of the branch fall
into H groups of n / H, each with its own A; an output projection mixes them by W_O / sqrt n. See
Noci et al., "The Shaped Transformer" (arXiv 2306.17759). The limit follows from
A = I + A_1 / sqrt n + A_2 / n + ... with G_ab Gaussian, E[G_ab G_cd] = (V_ac + sigma_Q^2) V_bd (the
biases of the keys cancel in the softmax):

    A_1 = w o (G - rowmean G) / tau_0,    E A_2 = w o (s - rowmean s) q / (2 tau_0^2),

with row means weighted by w, q = diag V + sigma_Q^2 and s_ab = V_bb - 2 (w V)_ab. The heads'
fluctuations average out: H heads divide the covariance of the scores' noise by H.

Without an output projection V alone does not determine the law of the next layer at finite width:
the state of the chain is the Gram matrices V_h of the H groups of columns, V = (1/H) sum V_h. Given
these, the branch of group h has n / H independent columns N(0, A_h V A_h^T), and the skip
connection keeps X_h, so that

    V_h' = Gram of (lambda X_h + gamma Z_h),

whose law depends only on V_h and A_h V A_h^T (`Block.step`).

Heads may share keys and values in groups, rotate queries and keys, normalise them, bound their
logits, and add a position bias B; w is then the softmax of B over the tokens that are seen. With
head size d_h the H d_h columns are mixed by W_O / sqrt(H d_h), which averages the heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from shaped_attention.blocks.attention_fields import AttentionFields, QKNorm
from shaped_attention.blocks.base import Block, Project, Tokens
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.blocks.positions import allowed, bias_array, centre, is_per_head
from shaped_attention.blocks.rotations import Rope, turned
from shaped_attention.checks import argument_error
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.primitives import (
    M,
    by_mean_square,
    columns,
    concatenate,
    constant,
    softmax,
    tanh,
)


@dataclass(frozen=True, repr=False)
class ShapedAttention(AttentionFields, Block):
    """Shaped attention with heads, masks and biases; each modification can be switched off.

    Parameters
    ----------
    gamma
        Weight of the branch, in [0, 1], or >= 0 if `skip` is given, or a `Schedule`.
    tau0
        Temperature, positive, or a `Schedule`: the logits are divided by tau0 sqrt(n n_k).
    heads
        Number H of heads. It must divide the width unless `head_size` is given. Without an output
        projection the width must be at least H times the rank of the initial covariance.
    mask
        None (every token attends to all), "causal" (token a attends to 0..a), "causal:W" (to the
        last W of these), "local:W" (to tokens closer than W on both sides), or a boolean (m, m)
        array with no empty row, `mask[a, b]` true if a attends to b. Each row is centred over the
        tokens that it attends to.
    output_projection
        Whether a further matrix W_O (H d_h, n) / sqrt(H d_h) mixes the heads.
    key_size
        Number n_k of columns of W_Q and W_K of a head; None for the head size.
    query_bias, key_bias
        Variances of the Gaussian entries of b_Q and b_K; 0 for no bias.
    skip
        Weight of the skip connection; None for sqrt(1 - gamma^2).
    kv_heads
        Number G of heads of keys and values, each shared by H / G heads of queries; None for H. It
        must divide H and needs an output projection.
    head_size
        Number d_h of columns of queries, keys and values of a head; None for n / H. It needs an
        output projection.
    value_ratio
        Ratio H d_h / n of the model that the limit describes, if `head_size` is given; None for 1.
    rope
        Rotation of queries and keys: None; a `Rope`; or in short its base or its angles. Tokens
        have the positions 0, ..., m - 1.
    position_bias
        What is added to the logits before the softmax: None; an array (m, m) (`alibi`), or one for
        each head, (H, m, m); or "alibi", for any number of tokens, with the slopes that models have
        (2^(-8 h / H), h = 1, ..., H, if H is a power of two). "alibi:S" multiplies the slopes by S;
        with ":bfloat16" at the end slopes and positions are rounded to this precision.
    qk_norm
        Whether the rows of queries and keys are divided by their root mean square: None, "head"
        (or True), "all", over all heads together, or a `QKNorm`, with an eps that is added to the
        mean square of a row.
    softcap
        Bound c of the logits, which become c tanh(logits / c) before the position bias is added;
        None for no bound.
    identity, centring, scaled_temperature
        Whether each of the three modifications of softmax attention is on. Without one of them (I
        is not added; w is not subtracted; tau is tau_0 sqrt(n_k)) the networks and their chain
        exist, but the limit does not.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    """

    @property
    def groups(self) -> int:
        """Number of heads, or 1 if they are mixed."""
        return 1 if self.output_projection else self.heads

    def specification(self) -> dict[str, Any]:
        """Return the name and the arguments as plain data that JSON can hold."""
        arguments = self.arguments()
        for name in ("rope", "qk_norm"):
            if isinstance(arguments[name], Rope | QKNorm):
                arguments[name] = {"dict": arguments[name].changed}
        return self.named(arguments)

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if mask and bias do not fit the tokens, or the heads the width."""
        for name, array in (("mask", self.mask), ("position_bias", self.bias())):
            if isinstance(array, tuple) and len(array) != tokens:
                raise ValueError(
                    f"{name} must have shape ({tokens}, {tokens}) for {tokens} tokens; got "
                    f"{(len(array),) * 2}"
                )
        if width is not None and self.head_size is None and width % self.heads:
            raise argument_error("width", f"a multiple of heads={self.heads}", width)
        if self.rope is not None and (width is not None or self.fixed_keys is not None):
            self.rope.pairs(self.keys(width or 0), tokens)

    def weights(self, tokens: int, head: int = 0) -> Float[Tensor, "m m"]:
        """Return the centre w: the softmax of the bias over the tokens that a token attends to.

        Without a bias w_ab is 1 / m_a if token a attends to token b, and 0 otherwise; m_a is the
        number of tokens that token a attends to.
        """
        return torch.tensor(centre(self.mask, self.bias(head), tokens))

    def softmax(self, logits: M, head: int = 0) -> M:
        """Return the softmax of bounded logits plus the bias, over the tokens that are seen."""
        bias = self.bias(head)
        if self.softcap is not None:
            logits = self.softcap * tanh(logits / self.softcap)
        if bias is not None:
            logits = logits + constant(bias_array(bias, logits.shape[-1]), like=logits)
        return softmax(logits, allowed(self.mask, logits.shape[-1]))

    def mix(self, logits: M, head: int = 0) -> M:
        """Return ``softmax(logits + bias) - w``, which is A - I."""
        seen = self.softmax(logits, head)
        if not self.centring:
            return seen
        w = centre(self.mask, self.bias(head), logits.shape[-1])
        return seen - constant(w, like=logits)

    def attend(self, logits: M, values: M, head: int = 0) -> M:
        """Return A times the values."""
        # An override may take the logits only, as long as all heads are alike.
        apart = is_per_head(self.position_bias, self.heads)
        mixed = (self.mix(logits, head) if apart else self.mix(logits)) @ values
        return values + mixed if self.identity else mixed

    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the branch.

        The weights are W_Q, b_Q, W_K, b_K, W_V head by head, then W_O; heads that share keys and
        values have only W_Q and b_Q, except for the first of a group.
        """
        n = tokens.shape[-1]
        logits, values = self._logits_and_values(p, tokens, project)
        heads = [self.attend(x, values[h // self.heads_per_key], h) for h, x in enumerate(logits)]
        branch = torch.cat(heads, dim=-1) if self.heads > 1 else heads[0]
        mixed = (self.heads * self.values(n)) ** 0.5
        return project(branch, n, "output") / mixed if self.output_projection else branch

    def _logits_and_values(
        self, p: Parameters, tokens: Tokens, project: Project
    ) -> tuple[Iterator[Any], list[Any]]:
        n = tokens.shape[-1]
        key_size, size, tau, root = self.keys(n), self.values(n), self.temperature(p, n), n**0.5
        queries, keys, values, share = [], [], [], self.heads_per_key

        def scored(name: str, head: int, variance: float) -> Tokens:
            return biased(
                project(tokens, key_size, name, head) / root, variance, project, name, head
            )

        for h in range(self.heads):
            queries.append(scored("queries", h, self.query_bias))
            if h % share == 0:
                keys.append(scored("keys", h // share, self.key_bias))
                values.append(project(tokens, size, "values", h // share) / root)
        queries, keys = prepared(self, queries), prepared(self, keys)
        # From the last on, so that what was drawn for a head is freed before the next one's.
        return self._logits(queries[::-1], keys[::-1], tau), values

    def _logits(self, queries: list[Any], keys: list[Any], tau: Any) -> Iterator[Any]:
        """Yield the logits of each head; the lists become empty."""
        while queries:
            yield (queries.pop() @ keys[-1].mT) / tau
            if len(queries) % self.heads_per_key == 0:
                keys.pop()

    def attention_weights(
        self, p: Parameters, tokens: Tokens, project: Project, logits: bool = False
    ) -> Iterator[tuple[int, Any]]:
        """Yield the softmax of each head, or its logits before bound and bias."""
        scores, _ = self._logits_and_values(p, tokens, project)
        for h, x in enumerate(scores):
            yield h, x if logits else self.softmax(x, h)


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


def biased(
    x: Tokens, variance: float, project: Project, name: str | None = None, head: int = 0
) -> Tokens:
    """Add one row of independent N(0, variance) entries to every token."""
    if variance == 0.0:
        return x
    one = x.new_full((*x.shape[:-2], 1, 1), math.sqrt(variance))
    return x + project(one, x.shape[-1], f"{name} bias", head)
