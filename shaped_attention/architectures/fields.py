"""Fields of a configuration: each is read, known to be without influence, or refused."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from shaped_attention.checks import argument_error, is_number

WITHOUT_INFLUENCE = frozenset({
    "_commit_hash", "_from_model_config", "_name_or_path", "_num_labels", "add_cross_attention",
    "architectures", "auto_map", "bad_words_ids", "base_model_prefix", "begin_suppress_tokens",
    "bf16", "bos_token", "cache_implementation", "chunk_size_feed_forward", "compression_config",
    "cross_attention_hidden_size", "custom_pipelines", "directionality", "diversity_penalty",
    "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token",
    "exponential_decay_length_penalty", "finetuning_task", "fp16", "fp32",
    "gradient_checkpointing", "id2label", "init_device", "is_decoder", "is_encoder_decoder",
    "is_llama_config", "label2id", "language", "length_penalty", "max_length", "max_seq_len",
    "max_seq_length", "max_sequence_length", "min_length", "model_max_length", "model_name",
    "model_type", "name", "name_or_path", "neftune_noise_alpha", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_labels", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_past", "output_scores", "prefix", "pretraining_tp",
    "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
    "return_dict_in_generate", "rope_interleaved", "sentence_transformers", "seq_length",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss",
    "tie_encoder_decoder", "tie_word_embeddings", "top_k", "top_p", "torch_dtype", "torchscript",
    "transformers.js_config", "transformers_version", "trust_remote_code", "typical_p",
    "use_bfloat16", "use_cache", "use_sdpa", "verbose", "xla_device", "z_loss_weight",
})  # fmt: skip
_HARMLESS = re.compile(
    r"drop(out(_prob)?)?$|^(summary|pooler|classifier|tokenizer|quantization)(_|$)|unsloth"
    r"|flash_att|_token_(id|index)$|^_?attn_impl|^use_fused"
)
"""Training, dropout (off), generation, storage and names; tied embeddings touch the logits only.
Interleaved pairs of RoPE have the law of any other pairing."""

_SYNONYMS = (
    ("hidden_size", "n_embd", "n_embed"), ("num_hidden_layers", "n_layer"),
    ("num_attention_heads", "n_head"), ("max_position_embeddings", "n_positions"),
    ("num_kv_heads", "n_head_kv"),
)  # fmt: skip
"""Names of one size, of which a configuration has one."""

_ALIKE = (
    *_SYNONYMS,
    ("activation_function", "hidden_act", "hidden_activation"),
    ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps", "rms_norm_eps"),
    ("initializer_range", "init_std"),
)
"""Names with one meaning, for suggestions."""


def field_error(name: str, requirement: str, value: object) -> ValueError:
    """Return the error of a field of a configuration that has a wrong value."""
    return argument_error(f"config.{name}", requirement, value)


def in_the_names_of(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes by the names that the fields have, such as n_layer for num_hidden_layers."""
    named = {}
    for name, value in changes.items():
        group = next((x for x in _SYNONYMS if name in x), ())
        known = [x for x in group if x in values and x not in changes]
        named[known[0] if known and name not in values else name] = value
    return named


class Fields:
    """The fields of a configuration, and a record of which were read.

    Methods raise ValueError, with the field, what it must be, and its value. Values that are not
    covered go to `refused`, so that one message names them all.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self._read: set[str] = set()
        self._harmless = {*WITHOUT_INFLUENCE, *filter(_HARMLESS.search, values)}
        self.refused: list[str] = []

    def complete(self, defaults: Mapping[str, Any]) -> None:
        """Add fields that are missing; those that are None remain so."""
        self.values = dict(defaults) | self.values

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field; `default` if it is missing or None."""
        self._read.add(name)
        value = self.values.get(name)
        return default if value is None else value

    def _required(self, name: str, default: Any, requirement: str) -> Any:
        """Return a field; raise ValueError, with the one probably misspelt, if it is missing."""
        value = self.get(name, default)
        if value is None:
            others = [x for x in self.values if x not in self._read | self._harmless]
            near = get_close_matches(name, others, n=1, cutoff=0.75)
            guess = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"config has no field {name}, which must be {requirement}{guess}")
        return value

    def number(self, name: str, default: float | None = None, *, zero: bool = False) -> float:
        """Return a positive number (or 0, if allowed)."""
        return positive(name, self._required(name, default, "a number"), zero)

    def count(self, *names: str, default: int | None = None, lowest: int = 1) -> int:
        """Return an integer, which may have one of several names.

        Two names with different values are refused.
        """
        self._read.update(names)
        present = {x: self.values[x] for x in names if self.values.get(x) is not None}
        name = self.known_as(*names)
        for other, value in present.items():
            if value != present[name]:
                raise field_error(other, f"equal to {name}={present[name]!r}", value)
        requirement = f"an integer >= {lowest}"
        count = self._required(name, default, requirement)
        if isinstance(count, bool) or not isinstance(count, int) or count < lowest:
            raise field_error(name, requirement, count)
        return count

    def known_as(self, *names: str) -> str:
        """Return the first of several names that the configuration uses, else the first of all."""
        return next((x for x in names if self.values.get(x) is not None), names[0])

    def flag(self, name: str, default: bool) -> bool:
        """Return True or False."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise field_error(name, "true or false", value)
        return value

    def items(self, name: str, default: list[Any]) -> list[Any]:
        """Return a list; `default` if it is empty."""
        value = self.get(name) or default
        if not isinstance(value, list | tuple):
            raise field_error(name, "a list", value)
        return list(value)

    def choice(self, name: str, default: Any, allowed: Collection[Any]) -> Any:
        """Return a value that is covered; the first of these in place of one that is refused."""
        value = self.get(name, default)
        if value not in tuple(allowed):
            what = f"{' or '.join(map(repr, allowed))} (other values are not covered)"
            self.refused.append(str(field_error(name, what, value)))
            return next(iter(allowed))
        return value

    def zero_at_start(self, *names: str) -> None:
        """Mark fields that add biases: these are zero at initialisation."""
        self._read.update(names)

    def no_influence(self, *names: str) -> None:
        """Mark fields that do not touch the tokens in this family."""
        self._harmless.update(names)

    def finish(self, changed: Collection[str] = ()) -> tuple[str, ...]:
        """Return the fields without influence, and unknown ones that are off, as "name=value".

        A field that was not read is refused if its value is not None, False or empty, or if it was
        changed, with ValueError.
        """
        left = {k: v for k, v in self.values.items() if k not in self._read and v is not None}
        unknown = {k: v for k, v in left.items() if k not in self._harmless}
        on = {k: v for k, v in left.items() if v not in (False, [], {}, "")}
        uncovered = {k: v for k, v in unknown.items() if k in on or k in changed}
        if uncovered:
            near = self._nearest(next(iter(uncovered)))
            guess = f" (did you mean {near!r}?)" if near else ""
            named = ", ".join(f"{name}={value!r:.60}" for name, value in uncovered.items())
            text = f"config has {named}, which the description of this family does not cover{guess}"
            if uncovered.keys() & set(changed):
                raise ValueError(text)
            options = " ".join(f"--ignore {name}" for name in uncovered)
            self.refused.append(f"{text}; {options} reads the rest")
        return tuple(f"{name}={value!r:.60}" for name, value in sorted((on | unknown).items()))

    def _nearest(self, name: str) -> str | None:
        """Return the field of this family that was probably meant, by meaning or by spelling."""
        group = next((x for x in _ALIKE if name in x), ())
        same = [x for x in group if x in self._read]
        own = self._read | self._harmless - WITHOUT_INFLUENCE
        return next(iter(same or get_close_matches(name, own, 1)), None)


def positive(name: str, value: Any, zero: bool = False) -> float:
    """Return a positive number (or 0, if allowed) that a configuration has under a name."""
    if not (is_number(value) and math.isfinite(value) and value >= 0.0 and (zero or value)):
        raise field_error(name, "finite and >= 0" if zero else "positive and finite", value)
    return float(value)
