"""Decoders with RoPE and gated MLPs; families are variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.heads import heads_of
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.layer_types import Kind, Kinds, all_full, mask_of, shortest
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp, normed
from shaped_attention.architectures.rotary import rope_of
from shaped_attention.architectures.stack import padding_of
from shaped_attention.blocks.pattern import Pattern


class Factors(NamedTuple):
    """Factors of the embedding, of the logits (None for 1 / sqrt(d_h)) and of each branch."""

    embedding: float = 1.0
    logits: float | None = None
    branch: float = 1.0
    softcap: float | None = None


@dataclass(frozen=True)
class Decoder:
    """A family of decoders: a function from the fields of a configuration to the model.

    Parameters
    ----------
    defaults
        Values of the fields that a configuration lacks, those of the library's class.
    place, norm, eps
        Place of the norms and their kind, as in `Normalised`, and their eps; None for
        `rms_norm_eps`.
    qk_norm
        As in `ShapedAttention`.
    activation
        Field with the activation's name.
    kinds, mask, rope
        Functions for the kind of each layer, the mask of a type, and its RoPE.
    factors
        Function of the fields and the width.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    place: str = "before"
    norm: str = "rms"
    eps: float | None = None
    qk_norm: str | bool = False
    activation: str = "hidden_act"
    kinds: Kinds = all_full
    mask: Callable[[Fields, str], str | None] = mask_of
    rope: Callable[[Fields, int, str], dict[str, Any]] = rope_of
    factors: Callable[[Fields, int], Factors] = lambda fields, width: Factors()

    def __call__(self, fields: Fields) -> Model:
        """Return the model of a configuration."""
        fields.complete(self.defaults)
        n, depth = fields.count("hidden_size"), fields.count("num_hidden_layers")
        std, heads = fields.standard_deviation(), heads_of(fields, n)
        eps = fields.number("rms_norm_eps", 1e-6, zero=True) if self.eps is None else self.eps
        norm, factors = Norm(self.norm, eps), self.factors(fields, n)
        fields.zero_at_start("attention_bias", "attention_out_bias", "mlp_bias")
        hidden = mlp(
            n, std, fields.count("intermediate_size"),
            activation_of(fields, self.activation, "silu"), gated=True,
        )  # fmt: skip
        kinds = shortest(self.kinds(fields, depth))

        def layer(kind: Kind) -> list[Any]:
            # Read even if the layer is not rotated, so that the fields are checked.
            rope = self.rope(fields, heads.size, kind.attention)
            seeing = attention(
                n, std, heads.queries, heads.size, kv_heads=heads.keys,
                logit_scale=factors.logits, softcap=factors.softcap,
                qk_norm=self.qk_norm, qk_norm_eps=eps if self.qk_norm else 0.0,
                mask=self.mask(fields, kind.attention), **(rope if kind.rotated else {}),
            )  # fmt: skip
            return [normed(x, self.place, norm, factors.branch) for x in (seeing, hidden)]

        layers = [layer(kind) for kind in kinds]
        fields.no_influence("max_position_embeddings", "original_max_position_embeddings")
        vocabulary = fields.count("vocab_size")
        zero_ids = padding_of(fields, vocabulary)
        embedding = Embedding(vocabulary, std, scale=factors.embedding, zero_ids=zero_ids)
        return Model(fields.get("model_type"), n, depth, Pattern(layers), embedding, norm)
