"""How the `transformers` library names and stores the parameters of each family (5.23).

The names were read from its language models, causal or masked, and are compared with these in
`tests/test_step_zero.py`. In a table of matrices q, k, v and o stand for queries, keys, values and
the output of attention; g, u and d for the gate, the first and the last matrix of the MLP, and
h for the head. Several letters are one matrix, with the rows of each below each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shaped_attention.architectures.model import Model

Flag = bool | tuple[str, bool]
"""Whether something is there, or the field of the configuration that says so, and its default."""

_SEPARATE = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v",
    "self_attn.o_proj": "o",
}  # fmt: skip
_QKV = {name: letter for name, letter in _SEPARATE.items() if letter != "o"}
_GATED = {"mlp.gate_proj": "g", "mlp.up_proj": "u", "mlp.down_proj": "d"}
_GATE_UP = {"mlp.gate_up_proj": "gu", "mlp.down_proj": "d"}


@dataclass(frozen=True)
class Names:
    """Names of the parameters of a family.

    `layers` is in front of the number of a layer, whose `matrices` have the letters of the module;
    `norms` are those in front of attention and of the MLP, or after them, and `branch_norms` those
    at the output of both; `gains` says whether norms have them. `biases` say which matrices, by
    their letters, have one, and `norm_biases` whether the norms do. `head` may be the
    `tied` embedding; its products are multiplied by a field of `scale` or divided by one of
    `divisor`, and capped by one of `cap`. A masked model has a `transform` in front of it: names of
    its matrix and its norm, and its activation or the field of it. The matrices may be stored as
    (inputs, outputs), `by_inputs`.
    """

    matrices: Mapping[str, str] = field(default_factory=lambda: _SEPARATE | _GATED)
    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    positions: str = ""
    types: str = ""
    start_norm: str = ""
    norms: tuple[str, str] = ("input_layernorm", "post_attention_layernorm")
    final_norm: str = "model.norm"
    head: str = "lm_head"
    tied: bool = False
    biases: Mapping[str, Flag] = field(default_factory=dict)
    norm_biases: Flag = False
    head_bias: str = ""
    head_biased: Flag = True
    scale: tuple[str, float] | None = None
    divisor: tuple[str, float] | None = None
    cap: tuple[str, float | None] | None = None
    transform: tuple[str, str] | None = None
    activation: tuple[str, str] = ("hidden_act", "gelu")
    by_inputs: bool = False
    branch_norms: tuple[str, str] = ("post_attention_layernorm", "post_feedforward_layernorm")
    gains: Flag = True


def option(model: Model, name: str, default: Any) -> Any:
    """Return a field of a model's configuration, which may be None."""
    values = model.config or {}
    inner = values.get("text_config")
    return (inner if isinstance(inner, dict) else values).get(name, default)


def holds(model: Model, flag: Flag) -> bool:
    """Return whether a flag is set."""
    if isinstance(flag, bool):
        return flag
    value = option(model, *flag)
    return flag[1] if value is None else bool(value)


def biased(model: Model, letters: str) -> bool:
    """Return whether the parameter that holds these matrices has a bias."""
    table = names_of(model).biases
    return any(letters[0] in some and holds(model, flag) for some, flag in table.items())


def names_of(model: Model) -> Names:
    """Return the names of a model's parameters; raise ValueError if they are unknown."""
    names = NAMES.get(model.family)
    if names is None or model.stds is None:
        known = ", ".join(sorted(NAMES))
        raise ValueError(
            f"the gradients of {model} need names and standard deviations of its matrices, as "
            f"models from configurations of these families have: {known}; without targets, or "
            "with --forward-only, they are not needed"
        )
    new = model.family == "falcon" and holds(model, ("new_decoder_architecture", False))
    if new and option(model, "num_ln_in_parallel_attn", None) in (None, 2):
        return replace(names, norms=("ln_attn", "ln_mlp"))
    one_norm = {"falcon": ("parallel_attn", True), "stablelm": ("use_parallel_residual", False)}
    if model.family in one_norm and holds(model, one_norm[model.family]):
        return replace(names, norms=(names.norms[0], names.norms[0]))
    return names


_LLAMA = Names(biases={"qkvo": ("attention_bias", False), "gud": ("mlp_bias", False)})
_ATTENTION = replace(_LLAMA, biases={"qkvo": ("attention_bias", False)})
_PLAIN = replace(_LLAMA, biases={})
_GEMMA = replace(_ATTENTION, tied=True)
_COHERE = replace(
    _GEMMA, norms=("input_layernorm", "input_layernorm"), scale=("logit_scale", 0.0625)
)
_SANDWICH = replace(_GEMMA, norms=("input_layernorm", "pre_feedforward_layernorm"))
_GLM = replace(_LLAMA, matrices=_SEPARATE | _GATE_UP, biases={"qkv": ("attention_bias", True)})
_GPT2 = Names(
    {"attn.c_attn": "qkv", "attn.c_proj": "o", "mlp.c_fc": "u", "mlp.c_proj": "d"},
    "transformer.h", "transformer.wte", "transformer.wpe", norms=("ln_1", "ln_2"),
    final_norm="transformer.ln_f", tied=True, biases={"qkvoud": True}, norm_biases=True,
    by_inputs=True,
)  # fmt: skip
_GPTJ = Names(
    {"attn.q_proj": "q", "attn.k_proj": "k", "attn.v_proj": "v", "attn.out_proj": "o",
     "mlp.fc_in": "u", "mlp.fc_out": "d"},
    "transformer.h", "transformer.wte", norms=("ln_1", "ln_1"), final_norm="transformer.ln_f",
    biases={"ud": True}, norm_biases=True, head_bias="lm_head.bias",
)  # fmt: skip
_BLOOM = Names(
    {"self_attention.query_key_value": "qkv", "self_attention.dense": "o",
     "mlp.dense_h_to_4h": "u", "mlp.dense_4h_to_h": "d"},
    "transformer.h", "transformer.word_embeddings",
    start_norm="transformer.word_embeddings_layernorm", final_norm="transformer.ln_f", tied=True,
    biases={"qkvoud": True}, norm_biases=True,
)  # fmt: skip


def _bert(name: str, head_bias: str, transform: tuple[str, str]) -> Names:
    embeddings = f"{name}.embeddings"
    return Names(
        {"attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v",
         "attention.output.dense": "o", "intermediate.dense": "u", "output.dense": "d"},
        f"{name}.encoder.layer", f"{embeddings}.word_embeddings",
        f"{embeddings}.position_embeddings", f"{embeddings}.token_type_embeddings",
        f"{embeddings}.LayerNorm", ("attention.output.LayerNorm", "output.LayerNorm"), "",
        tied=True, biases={"qkvoud": True, "h": True}, norm_biases=True, head_bias=head_bias,
        transform=transform,
    )  # fmt: skip


def _roberta(name: str) -> Names:
    names = _bert(name, "lm_head.bias", ("lm_head.dense", "lm_head.layer_norm"))
    return replace(names, activation=("", "gelu"))


# The library's module lists its head first, and so the embedding under the head's name.
_HEAD_FIRST = replace(_roberta("roberta"), embedding="lm_head.decoder")
_OF_BERT = (
    "cls.predictions.bias",
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
)

NAMES: dict[str, Names] = {
    "bert": _bert("bert", *_OF_BERT),
    "bloom": _BLOOM,
    "camembert": _HEAD_FIRST,
    "codegen": replace(
        _GPTJ, matrices={"attn.qkv_proj": "qkv", "attn.out_proj": "o", "mlp.fc_in": "u",
                         "mlp.fc_out": "d"},
    ),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "data2vec-text": _roberta("data2vec_text"),
    "distilbert": replace(
        _bert("distilbert", "vocab_projector.bias", ("vocab_transform", "vocab_layer_norm")),
        matrices={
            "attention.q_lin": "q", "attention.k_lin": "k", "attention.v_lin": "v",
            "attention.out_lin": "o", "ffn.lin1": "u", "ffn.lin2": "d",
        },
        layers="distilbert.transformer.layer", types="",
        norms=("sa_layer_norm", "output_layer_norm"), activation=("activation", "gelu"),
    ),
    "ernie": _bert("ernie", *_OF_BERT),
    "ernie4_5": replace(_LLAMA, tied=True, biases={"qkvogud": ("use_bias", False)}),
    "exaone4": _PLAIN,
    "falcon": replace(_BLOOM, start_norm="", biases={"qkvoud": ("bias", False)}),
    "gemma": _GEMMA,
    "gemma2": replace(_SANDWICH, cap=("final_logit_softcapping", 30.0)),
    "gemma3_text": replace(_SANDWICH, cap=("final_logit_softcapping", None)),
    "glm": _GLM,
    "glm4": replace(_GLM, branch_norms=("post_self_attn_layernorm", "post_mlp_layernorm")),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, by_inputs=False),
    "gpt_neox": Names(
        {"attention.query_key_value": "qkv", "attention.dense": "o", "mlp.dense_h_to_4h": "u",
         "mlp.dense_4h_to_h": "d"},
        "gpt_neox.layers", "gpt_neox.embed_in", final_norm="gpt_neox.final_layer_norm",
        biases={"qkvo": ("attention_bias", True), "ud": True}, norm_biases=True,
    ),
    "gpt-sw3": _GPT2,
    "gptj": _GPTJ,
    "granite": replace(_LLAMA, divisor=("logits_scaling", 1.0)),
    "helium": replace(
        _LLAMA, biases={"qkv": ("attention_bias", False), "gud": ("mlp_bias", False)}
    ),
    "llama": _LLAMA,
    "ministral": _PLAIN,
    "mistral": _PLAIN,
    "modernbert": Names(
        {"attn.Wqkv": "qkv", "attn.Wo": "o", "mlp.Wi": "gu", "mlp.Wo": "d"}, "model.layers",
        "model.embeddings.tok_embeddings", start_norm="model.embeddings.norm",
        norms=("attn_norm", "mlp_norm"), final_norm="model.final_norm", head="decoder", tied=True,
        biases={"qkvo": ("attention_bias", False), "gud": ("mlp_bias", False),
                "h": ("classifier_bias", False)},
        head_bias="decoder.bias", transform=("head.dense", "head.norm"),
        activation=("classifier_activation", "gelu"), norm_biases=("norm_bias", False),
        head_biased=("decoder_bias", True),
    ),
    "olmo": replace(_ATTENTION, gains=False),
    "olmo2": _ATTENTION,
    "olmo3": _ATTENTION,
    "opt": Names(
        {**_QKV, "self_attn.out_proj": "o", "fc1": "u", "fc2": "d"}, "model.decoder.layers",
        "model.decoder.embed_tokens", "model.decoder.embed_positions",
        norms=("self_attn_layer_norm", "final_layer_norm"),
        final_norm="model.decoder.final_layer_norm", tied=True,
        biases={"qkvoud": ("enable_bias", True)},
        norm_biases=("layer_norm_elementwise_affine", True),
        gains=("layer_norm_elementwise_affine", True),
    ),
    "phi": Names(
        {**_QKV, "self_attn.dense": "o", "mlp.fc1": "u", "mlp.fc2": "d"},
        norms=("input_layernorm", "input_layernorm"), final_norm="model.final_layernorm",
        biases={"qkvoud": True}, norm_biases=True, head_bias="lm_head.bias",
    ),
    "phi3": replace(
        _PLAIN, matrices={"self_attn.qkv_proj": "qkv", "self_attn.o_proj": "o", **_GATE_UP}
    ),
    "qwen2": replace(_PLAIN, biases={"qkv": True}),
    "qwen3": _ATTENTION,
    "roberta": _roberta("roberta"),
    "seed_oss": replace(
        _LLAMA,
        biases={"qkv": ("attention_bias", True), "o": ("attention_out_bias", False),
                "gud": ("mlp_bias", False)},
    ),
    "smollm3": replace(_LLAMA, tied=True),
    "stablelm": replace(_LLAMA, biases={"qkv": ("use_qkv_bias", False)}, norm_biases=True),
    "starcoder2": replace(
        _LLAMA, matrices={**_SEPARATE, "mlp.c_fc": "u", "mlp.c_proj": "d"}, tied=True,
        biases={"qkvoud": ("use_bias", True)}, norm_biases=True,
    ),
    "vaultgemma": replace(_SANDWICH, cap=("final_logit_softcapping", 30.0)),
    "xlm-roberta": _HEAD_FIRST,
}  # fmt: skip
"""Names by `model_type`."""
