"""What differs from layer to layer: which tokens are seen, RoPE, the scale of the logits, norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from shaped_attention.architectures.fields import Fields, field_error

T = TypeVar("T")

FULL, SLIDING = "full_attention", "sliding_attention"


class Kind(NamedTuple):
    """What a layer has of its own.

    Type of its attention, whether it has RoPE, by what its logits are divided, and whether its
    attention has a norm.
    """

    attention: str = FULL
    rotated: bool = True
    divisor: int = 1
    normed: bool = True


Kinds = Callable[[Fields, int], list[Kind]]
"""Function of the fields and the depth that returns the kind of each layer."""


def types_of(fields: Fields, depth: int, default: list[str]) -> list[str]:
    """Return the type of each layer: `layer_types`, or a default of this length.

    Raises
    ------
    ValueError
        If there is no type for each layer, or a type is not covered.
    """
    types = fields.items("layer_types", default)
    _check_length("layer_types", types, depth)
    for kind in types:
        if kind not in (FULL, SLIDING):
            raise field_error("layer_types", f"a list with entries {FULL!r} or {SLIDING!r}", kind)
    return types


def _check_length(name: str, entries: list[T], depth: int) -> None:
    if len(entries) != depth:
        requirement = f"a list of {depth} entries, one for each layer, or None for the default"
        raise field_error(name, requirement, entries)


def mask_of(fields: Fields, attention: str) -> str | None:
    """Return the mask of a decoder's layer of some type."""
    return "causal" if attention == FULL else f"causal:{fields.count('sliding_window')}"


def all_full(fields: Fields, depth: int) -> list[Kind]:
    """Return layers without windows, for families that have none."""
    return [Kind()] * depth


def all_alike(fields: Fields, depth: int) -> list[Kind]:
    """Return layers that all have the window, if there is one."""
    return [Kind(_window_type(fields))] * depth


def listed(fields: Fields, depth: int) -> list[Kind]:
    """Return `layer_types`; without it, layers that are all alike."""
    return _kinds(types_of(fields, depth, [_window_type(fields)] * depth))


def last_windows(fields: Fields, depth: int) -> list[Kind]:
    """Return `layer_types`; without it, windows from `max_window_layers` on, if switched on."""
    used = fields.flag("use_sliding_window", False)
    first = fields.count("max_window_layers", lowest=0)
    window = _window_type(fields)
    types = types_of(fields, depth, [window if used and k >= first else FULL for k in range(depth)])
    if SLIDING in types and not used:
        raise field_error("use_sliding_window", f"true for layers of type {SLIDING!r}", used)
    return _kinds(types)


def one_full_in(name: str | None, period: int, *, rotated: bool = True) -> Kinds:
    """Return a function for `layer_types`; without it, each k-th layer sees all tokens.

    Parameters
    ----------
    name, period
        Field with k, if there is one, and its default.
    rotated
        Whether layers that see all tokens have RoPE.
    """

    def kinds(fields: Fields, depth: int) -> list[Kind]:
        every = fields.count(name, default=period) if name else period
        types = [FULL if (k + 1) % every == 0 else SLIDING for k in range(depth)]
        fields.get("sliding_window")
        return [Kind(x, rotated or x == SLIDING) for x in types_of(fields, depth, types)]

    return kinds


def first_full_in(fields: Fields, depth: int) -> list[Kind]:
    """Return the layers of ModernBERT, the first of which has no norm before attention."""
    every = fields.count("global_attn_every_n_layers", default=3)
    types = types_of(fields, depth, [SLIDING if k % every else FULL for k in range(depth)])
    return [Kind(kind, normed=k > 0) for k, kind in enumerate(types)]


def unrotated_by_list(fields: Fields, depth: int) -> list[Kind]:
    """Return the layers of SmolLM3, without RoPE where `no_rope_layers` is 0."""
    every = fields.count("no_rope_layer_interval", default=4)
    rotated = fields.items("no_rope_layers", [int((k + 1) % every != 0) for k in range(depth)])
    _check_length("no_rope_layers", rotated, depth)
    used = fields.flag("use_sliding_window", False)
    window = _window_type(fields) if used else FULL
    fields.no_influence("max_window_layers")
    types = types_of(fields, depth, [FULL if here else window for here in rotated])
    if SLIDING in types and window == FULL:
        what = f"true, and sliding_window an integer, for layers of type {SLIDING!r}"
        raise field_error("use_sliding_window", what, used)
    return [Kind(kind, bool(here)) for kind, here in zip(types, rotated, strict=True)]


def rotated_windows(fields: Fields, depth: int) -> list[Kind]:
    """Return layers with RoPE if they have a window; without windows, all have it."""
    if fields.get("sliding_window") is None:
        fields.no_influence("sliding_window_pattern")
        return _kinds(types_of(fields, depth, [FULL] * depth))
    if not fields.get("layer_types"):
        return one_full_in("sliding_window_pattern", 4, rotated=False)(fields, depth)
    fields.no_influence("sliding_window_pattern")
    return [Kind(kind, kind == SLIDING) for kind in types_of(fields, depth, [])]


def logits_by_number(fields: Fields, depth: int) -> list[Kind]:
    """Return the layers of GPT-2, where the logits of layer l may be divided by l."""
    by_number = fields.flag("scale_attn_by_inverse_layer_idx", False)
    return [Kind(divisor=k + 1 if by_number else 1) for k in range(depth)]


def shortest(values: list[T]) -> list[T]:
    """Return the shortest list that repeats to the given one."""
    count = len(values)
    for length in range(1, count + 1):
        if all(values[k] == values[k % length] for k in range(count)):
            return values[:length]
    return values


def _window_type(fields: Fields) -> str:
    return FULL if fields.get("sliding_window") is None else SLIDING


def _kinds(types: list[str]) -> list[Kind]:
    return [Kind(kind) for kind in types]
