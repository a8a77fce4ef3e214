"""GPT-2 and GPT-BigCode: LayerNorm, learned positions, and last weights scaled by the depth."""

from __future__ import annotations

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.hidden import activation_of
from shaped_attention.architectures.model import Embedding, Model, Norm
from shaped_attention.architectures.parts import attention, mlp, normed
from shaped_attention.blocks.pattern import Pattern


def gpt2(fields: Fields) -> Model:
    """Return a GPT-2: the weights behind each branch have std / sqrt(2 L).

    In a GPT-BigCode (StarCoder) all heads may share keys and values.
    """
    family = fields.get("model_type")
    bigcode = family == "gpt_bigcode"
    n, depth = fields.count("n_embd", "hidden_size"), fields.count("n_layer", "num_hidden_layers")
    std = fields.number("initializer_range", 0.02)
    heads = fields.count("n_head", "num_attention_heads")
    norm = Norm("layer", fields.number("layer_norm_epsilon", 1e-5, zero=True))
    if n % heads:
        raise ValueError(f"config has n_embd={n} and n_head={heads}; a multiple is needed")
    size, last = n // heads, std / (2 * depth) ** 0.5
    hidden = mlp(
        n, std, fields.count("n_inner", default=4 * n),
        activation_of(fields, "activation_function", "gelu_new"), out_std=last,
    )  # fmt: skip
    scale = size**-0.5 if fields.flag("scale_attn_weights", True) else 1.0
    by_layer = not bigcode and fields.flag("scale_attn_by_inverse_layer_idx", False)
    kv_heads = 1 if bigcode and fields.flag("multi_query", True) else heads
    layers = [
        [
            normed(
                attention(
                    n,
                    std,
                    heads,
                    size,
                    out_std=last,
                    logit_scale=scale / (k + 1),
                    mask="causal",
                    kv_heads=kv_heads,
                ),
                "before",
                norm,
            ),
            normed(hidden, "before", norm),
        ]
        for k in range(depth if by_layer else 1)
    ]
    fields.no_influence(
        "n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj", "pad_token_id",
    )  # fmt: skip
    if bigcode:
        fields.no_influence(
            "attention_softmax_in_fp32", "inference_runner", "max_batch_size",
            "max_sequence_length", "num_key_value_heads", "pad_key_length",
            "pre_allocate_kv_cache", "scale_attention_softmax_in_fp32", "validate_runner_input",
        )  # fmt: skip
    embedding = Embedding(
        fields.count("vocab_size"),
        std,
        position_std=std,
        positions=fields.count("n_positions", "max_position_embeddings"),
    )
    return Model(family, n, depth, Pattern(layers), embedding, norm)
