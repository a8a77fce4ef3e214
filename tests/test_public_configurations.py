"""Configurations that people have: sizes and unusual fields of public files.

They are answered, or refused with all that is not covered.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.architectures.coverage import ALIASES, READ
from shaped_attention.commands.main import main
from tests.reality import IDS, OLD, SMALL, WIDE, check_law
from tests.refusals import refused


def sizes(kind: str, width: int, depth: int, heads: int, hidden: int, words: int, **more: Any):
    """Return fields by their usual names; without a model_type if the kind is empty."""
    return ({"model_type": kind} if kind else {}) | {
        "hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": heads,
        "intermediate_size": hidden, "vocab_size": words,
    } | more  # fmt: skip


LLAMA2 = {"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-6}
NANO = {"n_layer": 6, "n_head": 8, "n_embd": 512, "dropout": 0.1}
GPT2 = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024, "vocab_size": 50257}
BERT = {"directionality": "bidi", "pooler_fc_size": 768, "type_vocab_size": 2}
ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 1}

ANSWERED: dict[str, tuple[str, dict[str, Any]]] = {
    "nanoGPT, characters": ("gpt2", NANO | {"block_size": 256, "bias": False, "vocab_size": 65}),
    "Llama 2 30M, Meta": ("llama", {
        "dim": 256, "n_layers": 8, "n_heads": 16, "n_kv_heads": 16, "vocab_size": 50000,
        "norm_eps": 1e-5, "multiple_of": 128}),
    "InternLM2 1.8B": ("internlm2", sizes(
        "internlm2", 2048, 24, 16, 8192, 92544, bias=False, num_key_value_heads=8, pad_token_id=2)),
    "TinyLlama, nanotron": ("llama", sizes(
        "", 2048, 22, 32, 5632, 32000, is_llama_config=True, rope_interleaved=True)),
    "Gemma 3 12B, unsloth": ("gemma3_text", {
        "model_type": "gemma3", "unsloth_fixed": True, "vision_config": {"patch_size": 14},
        "text_config": sizes("gemma3_text", 3840, 48, 16, 15360, 262208, sliding_window=1024)}),
    "XLM-R large, answers": ("xlm-roberta", sizes(
        "xlm-roberta", 1024, 24, 16, 4096, 250002, language="english", name="XLM-R", **ROBERTA)),
    "bert_config.json": (
        "bert", sizes("", 768, 12, 12, 3072, 21128, max_position_embeddings=512, **BERT)),
    "DistilBERT, SST-2": ("distilbert", {
        "model_type": "distilbert", "dim": 768, "hidden_dim": 3072, "n_heads": 12, "n_layers": 6,
        "vocab_size": 30522, "activation": "gelu", "max_position_embeddings": 512,
        "sinusoidal_pos_embds": False, "tie_weights_": True, "transformers.js_config": {}}),
}  # fmt: skip

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "Jamba mini": (
        sizes("jamba", 4096, 32, 32, 14336, 65536, mamba_d_state=16, num_experts=16),
        "a mixture of experts with num_experts=16 and state-space layers with mamba_d_state=16"),
    "Qwen3.5 9B": (
        {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}},
        "a text_config, which is not covered; .*'qwen3_5_text', recurrent or linear attention"),
    "Llama 3.2 1B, Meta": (LLAMA2 | {"vocab_size": 128256, "use_scaled_rope": True},
                           "use_scaled_rope=True, .*; --ignore use_scaled_rope reads the rest"),
    "Qwen2.5 7B 1M": (
        sizes("qwen2", 3584, 28, 28, 18944, 152064, num_key_value_heads=4, hidden_act="mish",
              dual_chunk_attention_config={"chunk_size": 9}),
        "config.hidden_act must be .* got 'mish'; config has dual_chunk_attention_config="),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERED)
def test_answered(name):
    """What does not touch the tokens is listed; a record of the model holds the same model."""
    family, fields = ANSWERED[name]
    known = sa.model_from_config(fields)
    assert known.family == family
    assert sa.model_from_config(known.config) == known
    unused = {entry.split("=")[0] for entry in known.unused}
    assert {"is_llama_config", "language"} & fields.keys() <= unused


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_every_obstacle(name):
    fields, message = REFUSED[name]
    with pytest.raises(ValueError, match=f"{message}.*measures any torch module$"):
        sa.model_from_config(fields)


def test_files_of_other_formats_have_the_law_of_their_twins():
    """Hidden units of Llama 2 7B and 70B; nanoGPT has exact GELU."""
    usual = sizes("llama", 4096, 32, 32, 11008, 32000, rms_norm_eps=1e-6)
    known = sa.model_from_config(LLAMA2 | {"vocab_size": -1}, vocab_size=32000)
    assert known == sa.model_from_config(usual)
    large = {"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64,
             "n_kv_heads": 8, "n_layers": 2, "norm_eps": 1e-5, "vocab_size": 32000}  # fmt: skip
    usual = sizes("llama", 8192, 80, 64, 28672, 32000, num_key_value_heads=8, rms_norm_eps=1e-5)
    assert sa.model_from_config(large, n_layers=80) == sa.model_from_config(usual)
    known = sa.model_from_config(NANO)
    assert known.adapted[0].endswith("defaults block_size=1024 and vocab_size=50304")
    usual = {"model_type": "gpt2", "vocab_size": 50304, "activation_function": "gelu"}
    assert known == sa.model_from_config(GPT2 | NANO | usual)


test_the_message_says_what_is_missing = refused(
    (LLAMA2 | {"vocab_size": -1}, r"config.vocab_size must be given, .*=32000\); got -1"),
    ({"dim": 8, "n_heads": 2}, "no field model_type, and lacks n_layers of Meta's params"),
    ({"hidden_size": 8}, "no field model_type; --set model_type=FAMILY names the family"),
    by=sa.model_from_config,
)


def test_a_field_is_ignored_on_request(tmp_path):
    fields = sizes("llama", 64, 2, 4, 96, 64, clip_qkv=8.0, alpha=2.0)
    message = "has clip_qkv=8.0, alpha=2.0, .*; --ignore clip_qkv --ignore alpha reads the rest"
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(fields)
    known = sa.model_from_config(fields, ignore=("clip_qkv", "alpha"))
    assert known == sa.model_from_config(sizes("llama", 64, 2, 4, 96, 64))
    with pytest.raises(ValueError, match="ignore must be a list of names of fields; got 'alpha'"):
        sa.model_from_config(fields, ignore="alpha")
    (tmp_path / "config.json").write_text(json.dumps(fields))
    words = ["model", str(tmp_path), "--ignore", "clip_qkv", "--ignore", "alpha", "--describe"]
    result = CliRunner().invoke(main, words)
    assert "adapted: clip_qkv=8.0 ignored, as asked for" in result.output


DISTILBERT = {"dim": 64, "n_layers": 4, "n_heads": 4, "hidden_dim": 160, "vocab_size": 64}


@pytest.mark.validation
@pytest.mark.parametrize("family", sorted(ALIASES.keys() - {"internlm2"}))
def test_models_of_the_library_have_the_law_of_the_other_family(family):
    """InternLM2 is not in the library."""
    from transformers import AutoConfig

    own = {"distilbert": DISTILBERT, "gpt-sw3": OLD}.get(family, WIDE) | {"pad_token_id": IDS[0]}
    if READ[family].norm == "rms":
        own = SMALL | {"head_dim": 16}
    check_law(AutoConfig.for_model(family, **own, initializer_range=0.15))
