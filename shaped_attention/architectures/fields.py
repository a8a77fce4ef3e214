"""Fields of a configuration: each is read, known to be without influence, or refused."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from shaped_attention.checks import argument_error, is_number

WITHOUT_INFLUENCE = frozenset({
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path",
    "add_cross_attention", "architectures", "attention_dropout", "attention_probs_dropout_prob",
    "attn_implementation", "attn_pdrop", "auto_map", "bad_words_ids", "begin_suppress_tokens",
    "bos_token_id", "cache_implementation", "chunk_size_feed_forward", "classifier_dropout",
    "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample",
    "dropout", "dtype", "early_stopping", "embd_pdrop", "embedding_dropout",
    "encoder_no_repeat_ngram_size", "eos_token_id", "exponential_decay_length_penalty",
    "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing",
    "hidden_dropout", "hidden_dropout_prob", "id2label", "is_decoder", "is_encoder_decoder",
    "label2id", "layerdrop",
    "length_penalty", "max_length", "min_length", "model_type", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_scores", "prefix", "pretraining_tp", "problem_type",
    "remove_invalid_values", "repetition_penalty", "resid_pdrop",
    "residual_dropout", "return_dict", "return_dict_in_generate", "sep_token_id", "suppress_tokens",
    "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
    "tie_word_embeddings", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript",
    "transformers_version", "typical_p", "use_bfloat16", "use_cache",
})  # fmt: skip
"""Training, dropout (off), generation and storage; tied embeddings touch the logits only."""

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

    Methods raise ValueError, with the field, what it must be, and its value.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self._read: set[str] = set()
        self._harmless = set(WITHOUT_INFLUENCE)

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
        """Return a value that is covered."""
        value = self.get(name, default)
        if value not in tuple(allowed):
            covered = " or ".join(map(repr, allowed))
            raise field_error(name, f"{covered} (other values are not covered)", value)
        return value

    def zero_at_start(self, *names: str) -> None:
        """Mark fields that add biases: these are zero at initialisation."""
        self._read.update(names)

    def no_influence(self, *names: str) -> None:
        """Mark fields that do not touch the tokens in this family."""
        self._harmless.update(names)

    def finish(self, changed: Collection[str] = ()) -> tuple[str, ...]:
        """Return the fields without influence, and unknown ones that are off, as "name=value".

        Raises
        ------
        ValueError
            If a field was not read although it was changed, or its value is not None, False or
            empty.
        """
        left = {k: v for k, v in self.values.items() if k not in self._read and v is not None}
        unknown = {k: v for k, v in left.items() if k not in self._harmless}
        on = {k: v for k, v in left.items() if v not in (False, [], {}, "")}
        uncovered = {k: v for k, v in unknown.items() if k in on or k in changed}
        if uncovered:
            near = self._nearest(next(iter(uncovered)))
            guess = f" (did you mean {near!r}?)" if near else ""
            named = ", ".join(f"{name}={value!r:.60}" for name, value in uncovered.items())
            raise ValueError(
                f"config has {named}, which the description of this family does not cover{guess}"
            )
        return tuple(f"{name}={value!r:.60}" for name, value in sorted((on | unknown).items()))

    def _nearest(self, name: str) -> str | None:
        """Return the field of this family that was probably meant, by meaning or by spelling."""
        group = next((x for x in _ALIKE if name in x), ())
        same = [x for x in group if x in self._read]
        return next(iter(same or get_close_matches(name, self._read | self._harmless, 1)), None)


def positive(name: str, value: Any, zero: bool = False) -> float:
    """Return a positive number (or 0, if allowed) that a configuration has under a name."""
    if not (is_number(value) and math.isfinite(value) and value >= 0.0 and (zero or value)):
        raise field_error(name, "finite and >= 0" if zero else "positive and finite", value)
    return float(value)
