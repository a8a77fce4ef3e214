"""Configurations: where they are read from, what is none, old and new names, what is shipped."""

from __future__ import annotations

import json

import pytest
import torch

import shaped_attention as sa
from shaped_attention.architectures.configurations import read_config
from shaped_attention.blocks.rotations import Rope
from tests.refusals import refused

LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}


def model(**changes):
    """Return the model of the small Llama with changed fields."""
    return sa.model_from_config(LLAMA, **changes)


def attention(known, layer=0):
    """Return the attention of a layer."""
    return known.layers()[layer][0].inner


def facts(known):
    """Return what defines the law."""
    return (known.width, known.depth, known.layers(), known.embedding, known.final_norm)


def test_dicts_objects_files_and_folders_give_the_same_model(tmp_path):
    """A folder may hold other files, such as weights."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "my-llama"
    folder.mkdir()
    for name in ("model-00001-of-00002.safetensors", "tokenizer.json", "generation_config.json"):
        (folder / name).write_text("{}")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    known = model()
    path = folder / "config.json"
    for source in (path, str(path), folder, str(folder), transformers.LlamaConfig(**LLAMA)):
        assert facts(sa.model_from_config(source)) == facts(known)
    assert str(sa.model_from_config(folder)) == "my-llama"
    assert str(sa.model_from_config(path)) == "my-llama"


SLIDING, FULL = "sliding_attention", "full_attention"
NO_RMS = {"rms_norm_eps": None, "num_key_value_heads": None}
OLD_AND_NEW = [
    ("llama",
     {"rope_theta": 5e5, "torch_dtype": "bfloat16",
      "rope_scaling": {"type": "linear", "factor": 4.0}},
     {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5},
      "dtype": "bfloat16"}),
    ("gemma3_text",
     {"sliding_window_pattern": 2, "rope_local_base_freq": 100.0, "rope_theta": 1e5,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
     {"layer_types": [SLIDING, FULL] * 2,
      "rope_parameters": {
          FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e5},
          SLIDING: {"rope_type": "default", "rope_theta": 100.0}}}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 3},
     {"use_sliding_window": True, "sliding_window": 3, "layer_types": [FULL] + [SLIDING] * 3}),
    ("modernbert",
     NO_RMS | {"global_rope_theta": 5000.0, "local_rope_theta": 100.0,
               "global_attn_every_n_layers": 2},
     NO_RMS | {"rope_parameters": {
         FULL: {"rope_type": "default", "rope_theta": 5000.0},
         SLIDING: {"rope_type": "default", "rope_theta": 100.0}},
      "layer_types": [FULL, SLIDING] * 2}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "old", "new"), OLD_AND_NEW)
def test_old_and_new_names_give_the_same_model(family, old, new):
    """The configuration with old names is also what the library makes of it."""
    transformers = pytest.importorskip("transformers")
    fields = {**LLAMA, "pad_token_id": None, "model_type": family}
    first, second = (sa.model_from_config({**fields, **x}) for x in (old, new))
    assert facts(first) == facts(second)
    config = transformers.AutoConfig.for_model(**{**fields, **old})
    assert facts(sa.model_from_config(config)) == facts(first)


def test_the_text_of_a_model_of_images():
    """Public Gemma 3 configurations have a text_config, with few fields."""
    text = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "head_dim": 16}
    around = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 32}}
    known = sa.model_from_config(around, num_hidden_layers=7)
    alone = sa.model_from_config({"model_type": "gemma3_text", **text}, num_hidden_layers=7)
    assert facts(known) == facts(alone)
    assert known.unused[0] == "gemma3: only text_config without vision_config"
    for family in ("mistral3", "llava"):
        assert facts(sa.model_from_config({"model_type": family, "text_config": LLAMA})) == facts(
            model()
        )


@pytest.mark.parametrize("name", sa.shipped_configurations())
def test_a_shipped_configuration(name):
    """The library reads the same sizes, and has no other fields that count."""
    known = sa.model_from_config(name)
    transformers = pytest.importorskip("transformers")
    fields, _ = read_config(name)
    config = transformers.AutoConfig.for_model(**fields)
    assert (known.depth, known.width) == (config.num_hidden_layers, config.hidden_size)
    assert facts(sa.model_from_config(config)) == facts(known)


def test_logits_by_the_number_of_the_layer_are_those_of_the_library():
    """GPT-2 with scale_attn_by_inverse_layer_idx divides those of layer l = 1, 2, ... by l."""
    from transformers import AutoModel, GPT2Config

    config = GPT2Config(
        n_embd=16, n_layer=3, n_head=2, vocab_size=8, scale_attn_by_inverse_layer_idx=True,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    known = sa.model_from_config(config)
    plain = attention(sa.model_from_config(config, scale_attn_by_inverse_layer_idx=False))
    with torch.random.fork_rng():
        scales = [module.attn.scaling for module in AutoModel.from_config(config).h]
    assert scales[0] != scales[1]
    for layer, scale in enumerate(scales):
        assert attention(known, layer).tau0 * scale * 8**0.5 == pytest.approx(plain.tau0)


@pytest.mark.parametrize(("family", "bases"), [("gemma3_text", (1e6, 1e4)), ("olmo3", (5e5, 5e5))])
def test_the_base_of_each_type_of_layers(family, bases):
    """The library's own, if parameters do not name them."""
    kinds = ["full_attention", "sliding_attention"]
    for named in ({}, {"rope_parameters": {kind: {"rope_type": "default"} for kind in kinds}}):
        known = sa.model_from_config(
            LLAMA, model_type=family, layer_types=kinds * 2, head_dim=16, sliding_window=3, **named
        )
        for layer, base in enumerate(bases):
            assert attention(known, layer).rope == Rope(base)


def test_masks_and_rotations_of_the_layers():
    """Qwen's windows begin at a layer, Gemma's alternate, SmolLM3 and EXAONE 4 leave out RoPE."""

    def masks(family, **fields):
        known = sa.model_from_config(
            LLAMA, model_type=family, pad_token_id=None, **{"sliding_window": 3} | fields
        )
        heads = [attention(known, k) for k in range(known.depth)]
        return [x.mask for x in heads], [x.rope is not None for x in heads]

    full, window = "causal", "causal:3"
    assert masks("mistral") == ([window] * 4, [True] * 4)
    assert masks("mistral", sliding_window=None) == ([full] * 4, [True] * 4)
    assert masks("qwen2", use_sliding_window=True, max_window_layers=3)[0] == [*[full] * 3, window]
    assert masks("qwen2", use_sliding_window=True, max_window_layers=0)[0] == [window] * 4
    assert masks("qwen2")[0] == [full] * 4
    assert masks("gemma2")[0] == [window, full] * 2
    assert masks("gemma3_text", num_hidden_layers=7)[0] == [*[window] * 5, full, window]
    assert masks("olmo3")[0] == [*[window] * 3, full]
    switched = {"use_sliding_window": True}
    assert masks("smollm3", **switched) == ([*[full] * 3, window], [*[True] * 3, False])
    assert masks("exaone4") == ([*[window] * 3, full], [*[True] * 3, False])
    assert masks("exaone4", sliding_window=None) == ([full] * 4, [True] * 4)
    both = {"use_bidirectional_attention": True, "sliding_window": 6}
    assert masks("gemma3_text", **both)[0] == ["local:4"] * 4


test_what_is_no_configuration = refused(
    (3, "config must be a configuration with to_dict, .*; got 3"),
    ("Llama-3.1-70B", r"choose one of bert-large, .*\(did you mean 'llama-3\.1-70b'\?\)"),
    by=sa.model_from_config,
)


def test_files_that_are_missing_or_invalid(tmp_path):
    file = tmp_path / "config.json"
    with pytest.raises(FileNotFoundError, match="is a folder without a config"):
        sa.model_from_config(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist; it must be"):
        sa.model_from_config(file)
    for content, message in (("{", "is not a JSON file"), ("[]", "does not contain an object")):
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            sa.model_from_config(file)
