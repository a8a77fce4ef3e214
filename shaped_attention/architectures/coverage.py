"""Which families are covered, under which other names, and what is refused, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from textwrap import fill
from typing import Any

from shaped_attention.architectures.families import FAMILIES
from shaped_attention.architectures.family import Family
from shaped_attention.architectures.rope import rope_of

_LLAMA, _BERT, _ROBERTA = FAMILIES["llama"], FAMILIES["bert"], FAMILIES["roberta"]
_OF_LLAMA3 = {"head_dim": 128, "rms_norm_eps": 1e-5}

# Embeddings, layers and `_init_weights` of these have the law of the other family, by the library's
# source (5.23) and by `tests/test_public_configurations.py`, which compares models with their law.
# ERNIE's task embeddings (use_task_id) are refused; DistilBERT is a BERT without types of tokens.
# InternLM2 is not in the library: modeling_internlm2.py has Llama's layers and `_init_weights`.
ALIASES: dict[str, Family] = {
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA,
    "distilbert": replace(
        _BERT, typed=False, eps=1e-12, only={**_BERT.only, "sinusoidal_pos_embds": (False,)},
        unused=("qa_dropout", "seq_classif_dropout", "tie_weights_"),
    ),
    "ernie": replace(_BERT, unused=("task_type_vocab_size",)),
    "ernie4_5": replace(
        _LLAMA, defaults={**_OF_LLAMA3, "num_key_value_heads": 2, "pad_token_id": 0},
        rope=partial(rope_of, base=500_000.0), biases=("use_bias",),
    ),
    "gpt-sw3": FAMILIES["gpt2"],
    "internlm2": replace(_LLAMA, biases=("bias",)),
    "internlm3": replace(
        _LLAMA, defaults={**_OF_LLAMA3, "num_key_value_heads": 2, "pad_token_id": 2},
        biases=(*_LLAMA.biases, "bias", "qkv_bias"),
    ),
    "xlm-roberta": _ROBERTA,
}  # fmt: skip
"""Families that are others under their own names, with the fields that only they have."""

READ: Mapping[str, Family] = FAMILIES | ALIASES
APPROXIMATE = {"modernbert": "truncated normal weights; Gaussian ones have their variance"}

POINTER = "; record_covariances measures any torch module"


_OBSTACLES = (
    ("an encoder-decoder",
     "bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt led longt5 m2m_100 "
     "marian mbart mt5 mvp nllb-moe pegasus pegasus_x plbart prophetnet seamless_m4t "
     "speech_to_text speecht5 switch_transformers t5 t5gemma t5gemma2 udop umt5 whisper",
     "is_encoder_decoder"),
    ("a mixture of experts",
     "dbrx deepseek_v2 deepseek_v3 dots1 gpt_oss jamba llama4 llama4_text longcat_flash minimax "
     "minimax_m2 mixtral qwen3_next",
     "num_experts num_local_experts n_routed_experts moe_intermediate_size moe_num_experts moe"),
    ("state-space layers",
     "bamba falcon_h1 falcon_mamba granitemoehybrid jamba mamba mamba2 nemotron_h zamba zamba2",
     "mamba_d_state mamba_d_ssm ssm_state_size ssm_cfg state_size"),
    ("recurrent or linear attention",
     "kimi_linear minimax olmo_hybrid qwen3_5 qwen3_5_text qwen3_next recurrent_gemma rwkv xlstm",
     "linear_num_key_heads linear_attn_config lru_width"),
    ("latent attention",
     "deepseek_v2 deepseek_v3 deepseek_v32 kimi_linear longcat_flash minicpm3 youtu",
     "kv_lora_rank q_lora_rank"),
    ("attention sinks", "gpt_oss mimo_v2_flash", "attention_sink use_attention_sinks"),
    ("disentangled attention", "deberta deberta-v2", "pos_att_type"),
    ("cross-attention", "mllama mllama_text_model", "cross_attention_layers"),
)  # fmt: skip
"""What is not covered: in words, the families that have it, and the fields that show it."""

OBSTACLE_FIELDS = frozenset(" ".join(fields for _, _, fields in _OBSTACLES).split())


def obstacles(values: Mapping[str, Any]) -> list[str]:
    """Return why an architecture is not covered: one sentence with all reasons, or none."""
    family = str(values.get("model_type"))
    found = []
    for what, families, fields in _OBSTACLES:
        name = next((x for x in fields.split() if values.get(x)), None)
        if name or family in families.split() or ("experts" in what and "moe" in family):
            value = values.get(name) if name else True
            found.append(what if value is True else f"{what} with {name}={value!r:.60}")
    if not found:
        return []
    reasons = ", ".join(found[:-1]) + " and " * (len(found) > 1) + found[-1]
    only = "only single stacks of dense layers are covered"
    return [f"config has model_type={family!r}, {reasons}; {only}"]


def coverage() -> str:
    """Return the families that are covered, approximated and refused, in words."""
    exact = sorted(READ.keys() - APPROXIMATE.keys())
    lines = [f"exact: {', '.join(exact)}"]
    lines += [f"approximated: {name} ({how})" for name, how in APPROXIMATE.items()]
    for what, families, _ in _OBSTACLES:
        named = ", any with moe in its name" if "experts" in what else ""
        lines.append(f"refused, {what}: {', '.join(families.split())}{named}")
    lines.append("refused, since not known: all others")
    return "\n".join(fill(line, 110, subsequent_indent="  ") for line in lines)
