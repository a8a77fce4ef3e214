"""Scalings of RoPE for long contexts, as configurations name them.

A scaling changes the angles and, for some, multiplies cosines and sines by an attention factor, so
that the rotated part of the logits has its square:

- YaRN (Peng et al., arXiv 2309.00071) divides small angles by a factor, keeps large ones, and has
  the attention factor 0.1 log(factor) + 1 unless the configuration names another;
- LongRoPE (Ding et al., arXiv 2402.13753) divides each angle by a number of its own, from one list
  up to the original number of tokens and from another beyond, with sqrt(1 + log(factor) / log(N));
- "dynamic" changes the base with the number of tokens beyond `max_position_embeddings`; such
  sequences are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.architectures.fields import Fields
from shaped_attention.blocks.rotations import rope_angles
from shaped_attention.checks import is_number

_ORIGINAL = "original_max_position_embeddings"

_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
    "yarn": ("factor", _ORIGINAL),
    "longrope": ("short_factor", "long_factor", _ORIGINAL),
    "dynamic": ("factor",),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("factor", "attention_factor"),
}
_WITH_ORIGINAL = ("llama3", "yarn", "longrope")


def positive(name: str, value: Any) -> float:
    """Return a positive number that a configuration has under a name."""
    if not (is_number(value) and math.isfinite(value) and value > 0.0):
        raise ValueError(f"config has {name}={value!r}; a positive number is needed")
    return float(value)


def scaled_rope(
    fields: Fields, name: str, given: dict[str, Any], base: float, size: int, *, nested: bool
) -> dict[str, Any]:
    """Return fields of attention: `rope` and, where it is scaled so, its factor and tokens.

    Parameters
    ----------
    fields
        The configuration.
    name, given
        Field with the parameters of the scaling, and these.
    base, size
        Base of the angles, and number of rotated columns.
    nested
        Whether each type of layers has parameters of its own. The library then reads neither the
        original number of tokens from the top level nor `truncate`.
    """
    old, new = given.pop("type", None), given.pop("rope_type", None)
    how = new or old or "default"
    if how not in _NEEDED:
        raise ValueError(
            f"config has {name} of the type {how!r}, which is not covered; "
            f"{', '.join(map(repr, _NEEDED))} are"
        )
    if how in _WITH_ORIGINAL:
        given[_ORIGINAL] = _original(fields, name, given, nested)
    options = _checked(name, how, given)
    if how == "yarn":
        if nested and not options.get("truncate", True):
            raise ValueError(
                f"config has {name} with truncate=False for a type of layers, where the library "
                "takes it for true; true is needed"
            )
        return _yarn(base, size, options)
    if how == "longrope":
        if "factor" not in options:
            longest = fields.count("max_position_embeddings")
            options["factor"] = longest / options[_ORIGINAL]
        return _longrope(base, size, options)
    if how == "dynamic":
        return {
            "rope": rope_angles(base, size),
            "rope_tokens": fields.count("max_position_embeddings"),
        }
    return {"rope": rope_angles(base, size, None if how == "default" else how, **options)}


def _original(fields: Fields, name: str, given: dict[str, Any], nested: bool) -> Any:
    """Return the original number of tokens, among the parameters or at the top level."""
    inner, outer = given.get(_ORIGINAL), None if nested else fields.get(_ORIGINAL)
    if inner is not None and outer is not None and inner != outer:
        raise ValueError(
            f"config has {_ORIGINAL}={outer!r} and {name} with {_ORIGINAL}={inner!r}; one of the "
            "two is needed"
        )
    return inner or outer or fields.get("max_position_embeddings")


def _checked(name: str, how: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a scaling that are given."""
    options = {key: value for key, value in given.items() if value is not None}
    known = {*_NEEDED[how], *_OPTIONAL.get(how, ())}
    extra = options.keys() - known - {_ORIGINAL}
    if extra:
        raise ValueError(
            f"config has {name} with {', '.join(sorted(extra))}, which rope type {how!r} does "
            "not cover"
        )
    options = {key: value for key, value in options.items() if key in known}
    missing = [key for key in _NEEDED[how] if key not in options]
    if missing:
        needed = "a list" if missing[0] in ("short_factor", "long_factor") else "a number"
        raise ValueError(
            f"config has {name} of the type {how!r} without {missing[0]}; {needed} is needed"
        )
    for key, value in options.items():
        if key == "truncate":
            if not isinstance(value, bool):
                raise ValueError(f"config has truncate={value!r}; true or false is needed")
        elif key not in ("short_factor", "long_factor"):
            positive(key, value)
    return options


def _yarn(base: float, size: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return YaRN: angles with fewer than `beta_slow` turns are divided by the factor."""
    if base <= 1.0:
        raise ValueError(f"config has rope_theta={base!r}; a number above 1 is needed for YaRN")
    factor, longest = options["factor"], options[_ORIGINAL]
    turns = (options.get("beta_fast", 32.0), options.get("beta_slow", 1.0))
    low, high = (
        size * math.log(longest / (2.0 * math.pi * x)) / (2.0 * math.log(base)) for x in turns
    )
    if options.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, size - 1.0)
    high += 0.001 if low == high else 0.0  # as in the library
    divided = np.clip((np.arange(size // 2) - low) / (high - low), 0.0, 1.0)
    angles = rope_angles(base, size) * (1.0 - divided + divided / factor)
    attention = options.get("attention_factor")
    if attention is None:
        attention = _growth(factor, 1.0)
        if "mscale" in options and "mscale_all_dim" in options:
            attention = _growth(factor, options["mscale"])
            attention /= _growth(factor, options["mscale_all_dim"])
    return {"rope": angles, "rope_factor": float(attention)}


def _growth(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(base: float, size: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return LongRoPE, with angles for few and for many tokens."""
    factor, longest = options["factor"], options[_ORIGINAL]
    if not isinstance(longest, int) or longest < 2:
        raise ValueError(f"config has {_ORIGINAL}={longest!r}; a whole number >= 2 is needed")
    attention = options.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1.0 + math.log(factor) / math.log(longest)) if factor > 1.0 else 1.0
    plain = rope_angles(base, size)
    return {
        "rope": plain / _divisors("short_factor", options["short_factor"], size // 2),
        "rope_long": plain / _divisors("long_factor", options["long_factor"], size // 2),
        "rope_tokens": longest,
        "rope_factor": float(attention),
    }


def _divisors(name: str, values: Any, count: int) -> NDArray[np.float64]:
    """Return a list of positive numbers, one for each angle."""
    if not isinstance(values, list) or len(values) != count:
        given = f"{len(values)} numbers" if isinstance(values, list) else repr(values)
        raise ValueError(f"config has {name} with {given}; a list of {count} numbers is needed")
    return np.array([positive(name, x) for x in values])
