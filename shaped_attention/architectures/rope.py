"""RoPE as configurations describe it, in old and new versions of the `transformers` library.

A scaling for long contexts changes the angles and, for some, multiplies cosines and sines by an
attention factor, so that the rotated part of the logits has its square:

- YaRN (Peng et al., arXiv 2309.00071) divides small angles by a factor, keeps large ones, and has
  the attention factor 0.1 log(factor) + 1 unless the configuration names another;
- LongRoPE (Ding et al., arXiv 2402.13753) divides each angle by its own number, from one list up to
  the original number of tokens and from another beyond, with sqrt(1 + log(factor) / log(N));
- "dynamic" changes the base with the number of tokens beyond `max_position_embeddings`; such
  sequences are refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shaped_attention.architectures.fields import Fields, field_error, positive
from shaped_attention.architectures.layer_types import FULL
from shaped_attention.blocks.rotations import Rope, rope_angles

_ORIGINAL = "original_max_position_embeddings"
_LISTS = ("short_factor", "long_factor")

_PARAMETERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL), ()),
    "yarn": (
        ("factor", _ORIGINAL),
        ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": ((*_LISTS, _ORIGINAL), ("factor", "attention_factor")),
    "dynamic": (("factor",), ()),
}
"""Parameters of each type that must be named, and those that may be."""


class _Named(NamedTuple):
    """Parameters of RoPE: the field they are in, a copy, and whether layers of a type have theirs.

    For types the library reads neither the original number of tokens at the top level nor
    `truncate`.
    """

    field: str
    values: dict[str, Any]
    nested: bool


def rope_of(
    fields: Fields,
    size: int,
    kind: str = "",
    *,
    base: float = 10_000.0,
    share: float | None = None,
    by_type: bool = False,
) -> Rope:
    """Return the rotation of heads of a size.

    Parameters
    ----------
    fields
        The configuration: `rope_parameters`, or `rope_theta` and `rope_scaling`.
    size
        Head size d_h.
    kind
        Type of the layer, for configurations that have parameters for each type.
    base, share
        Base and rotated share if the configuration does not name them; a share of None stands for
        whole heads, of which the family cannot rotate a part.
    by_type
        Whether the family has parameters for each type of layers, also if they are not named.
    """
    named = _parameters(fields, kind)
    old = named.values.get("type") or "default"
    if by_type and not named.nested and old != "default" and named.values.get("rope_type") is None:
        raise ValueError(
            f"config.{named.field} gives its type {old!r} under the key type, which the library "
            "ignores in families with parameters for each type of layer; these read rope_type"
        )
    theta = _one_of(fields, named, "rope_theta", base)
    part = _one_of(fields, named, "partial_rotary_factor", 1.0 if share is None else share)
    if part > 1.0 or (part != 1.0 and share is None):
        allowed = "1, so that whole heads are rotated" if share is None else "in (0, 1]"
        raise field_error("partial_rotary_factor", allowed, part)
    rotated = int(size * part)
    if rotated % 2 or rotated < 2:
        what = f"such that an even number of the {size} columns of a head is rotated"
        raise field_error("head_dim, partial_rotary_factor", what, rotated)
    named = named._replace(nested=named.nested or by_type)
    return replace(_scaled(fields, named, theta, rotated), share=rotated / size)


def rope_by_type(fields: Fields, size: int, kind: str, *, base: float, local_base: float) -> Rope:
    """Return the same for families whose sliding layers have their own RoPE.

    Without `rope_parameters` their base is `rope_local_base_freq`, and neither `rope_theta` nor
    `rope_scaling` applies to them, as in the library.
    """
    parameters = fields.get("rope_parameters")
    if parameters and not _for_kinds(parameters):
        what = "an object with the parameters of 'full_attention' and 'sliding_attention'"
        raise field_error("rope_parameters", what, parameters)
    local = fields.get("rope_local_base_freq", local_base)
    # Read even for sliding layers, so that the fields are checked in models with these only.
    full = rope_of(fields, size, FULL, base=base, by_type=True)
    if kind == FULL:
        return full
    if parameters:
        return rope_of(fields, size, kind, base=local, by_type=True)
    return Rope(positive("rope_local_base_freq", local))


def _for_kinds(parameters: dict[str, Any]) -> bool:
    return any(isinstance(x, dict) for x in parameters.values())


def _parameters(fields: Fields, kind: str) -> _Named:
    """Return the parameters of a type of layers."""
    parameters, scaling = fields.get("rope_parameters") or {}, fields.get("rope_scaling") or {}
    for name, value in (("rope_parameters", parameters), ("rope_scaling", scaling)):
        if not isinstance(value, dict):
            raise field_error(name, "an object with parameters", value)
    if parameters and scaling:
        raise ValueError(
            "config has both rope_parameters and rope_scaling, which cannot be used together"
        )
    if scaling:
        return _Named("rope_scaling", dict(scaling), nested=False)
    nested = _for_kinds(parameters)
    parameters = (parameters.get(kind) or {}) if nested else parameters
    return _Named("rope_parameters", dict(parameters), nested)


def _one_of(fields: Fields, named: _Named, key: str, default: float) -> float:
    """Return a value among the parameters or, in old versions, at the top level."""
    value = _agreeing(fields, named, key)
    return positive(key, default if value is None else value)


def _agreeing(fields: Fields, named: _Named, key: str, *, top: bool = True) -> Any:
    """Return a value among the parameters, which it leaves, or at the top level."""
    inner, outer = named.values.pop(key, None), fields.get(key) if top else None
    if inner is not None and outer is not None and inner != outer:
        raise field_error(
            f"{named.field}.{key}", f"config.{key}={outer!r}, if both are given", inner
        )
    return outer if inner is None else inner


def _scaled(fields: Fields, named: _Named, base: float, size: int) -> Rope:
    """Return the rotation of `size` columns with any scaling of its angles."""
    old, new = named.values.pop("type", None), named.values.pop("rope_type", None)
    how = new or old or "default"
    if how not in _PARAMETERS:
        covered = f"one of {', '.join(map(repr, _PARAMETERS))} (others are not covered)"
        raise field_error(f"{named.field}.rope_type", covered, how)
    if how in ("llama3", "yarn", "longrope"):
        original = _agreeing(fields, named, _ORIGINAL, top=not named.nested)
        named.values[_ORIGINAL] = original or fields.get("max_position_embeddings")
    options = _checked(named, how)
    if how == "yarn":
        if named.nested and not options.get("truncate", True):
            what = "true in parameters for a type of layer, where the library assumes it"
            raise field_error(f"{named.field}.truncate", what, value=False)
        return _yarn(base, size, options)
    if how == "longrope":
        if "factor" not in options:
            longest = fields.count("max_position_embeddings")
            options["factor"] = longest / options[_ORIGINAL]
        return _longrope(base, size, options)
    if how == "dynamic":
        longest = fields.count("max_position_embeddings")
        return Rope(base, original_max_position_embeddings=longest)
    if how == "llama3":
        return Rope(angles=rope_angles(base, size, how, **options))
    return Rope(base, factor=options.get("factor", 1.0))


def _checked(named: _Named, how: str) -> dict[str, Any]:
    """Return the parameters of a scaling, without those that are None."""
    needed, optional = _PARAMETERS[how]
    options = {key: value for key, value in named.values.items() if value is not None}
    if extra := options.keys() - {*needed, *optional, _ORIGINAL}:
        raise ValueError(
            f"config.{named.field} has {', '.join(sorted(extra))}, which rope type {how!r} does "
            "not cover"
        )
    options = {key: value for key, value in options.items() if key in (*needed, *optional)}
    for key in needed:
        if key not in options:
            what = "a list" if key in _LISTS else "a number"
            raise field_error(f"{named.field}.{key}", f"{what} for the rope type {how!r}", None)
    for key, value in options.items():
        if key == "truncate":
            if not isinstance(value, bool):
                raise field_error(f"{named.field}.truncate", "true or false", value)
        elif key not in _LISTS:
            positive(f"{named.field}.{key}", value)
    return options


def _yarn(base: float, size: int, options: dict[str, Any]) -> Rope:
    """Return YaRN: angles with fewer than `beta_slow` turns are divided by the factor."""
    if base <= 1.0:
        raise field_error("rope_theta", "above 1 for YaRN", base)
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
    return Rope(angles=angles, attention_factor=float(attention))


def _growth(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(base: float, size: int, options: dict[str, Any]) -> Rope:
    """Return LongRoPE, with angles for few and for many tokens."""
    factor, longest = options["factor"], options[_ORIGINAL]
    if not isinstance(longest, int) or longest < 2:
        raise field_error(_ORIGINAL, "an integer >= 2", longest)
    attention = options.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1.0 + math.log(factor) / math.log(longest)) if factor > 1.0 else 1.0
    short, long = (rope_angles(base, size) / _divisors(x, options[x], size // 2) for x in _LISTS)
    return Rope(
        angles=short, long_angles=long, attention_factor=float(attention),
        original_max_position_embeddings=longest,
    )  # fmt: skip


def _divisors(name: str, values: Any, count: int) -> NDArray[np.float64]:
    """Return a list of positive numbers, one for each angle."""
    if not isinstance(values, list) or len(values) != count:
        raise field_error(name, f"a list of {count} numbers", values)
    return np.array([positive(name, x) for x in values])
