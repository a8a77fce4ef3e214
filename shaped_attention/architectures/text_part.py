"""The text model inside configurations of models that also read images or sound."""

from __future__ import annotations

from typing import Any

WRAPPERS = ("gemma3", "llava", "llava_next", "mistral3")
"""Models whose text goes through the model of `text_config` alone, without other changes."""


def text_part(values: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields of the text model, and what is left out, in words.

    Raises
    ------
    ValueError
        If the model around `text_config` may change it, or `text_config` is not an object with a
        `model_type`.
    """
    inner, family = values.get("text_config"), values.get("model_type")
    if inner is None and family not in WRAPPERS:
        return values, ()
    inner = {} if inner is None and family == "gemma3" else inner
    if not isinstance(inner, dict):
        raise ValueError(
            f"config has model_type={family!r} and text_config={inner!r}; an object with the "
            "fields of the text model is needed"
        )
    if family not in WRAPPERS:
        raise ValueError(
            f"config has model_type={family!r} around a text_config, which is not covered; its "
            "text_config, as a configuration of its own, is needed"
        )
    # Old files of Gemma 3 leave out what is the library's default.
    inner = {"model_type": "gemma3_text"} | inner if family == "gemma3" else dict(inner)
    left = [name for name in values if name.endswith("_config") and name != "text_config"]
    rest = f" without {', '.join(sorted(left))}" if left else ""
    return inner, (f"{family}: text_config alone{rest}",)
