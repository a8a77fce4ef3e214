"""Which tokens a token sees, and whether positions rotate its head, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from shaped_attention.architectures.fields import Fields

T = TypeVar("T")

FULL, SLIDING = "full_attention", "sliding_attention"


class Kind(NamedTuple):
    """Type of a layer's attention, and whether it has RoPE."""

    attention: str
    rotated: bool = True


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
    if len(types) != depth:
        raise ValueError(
            f"config has {len(types)} layer_types for {depth} layers; one for each, or "
            "layer_types=None for the family's own, is needed"
        )
    for kind in types:
        if kind not in (FULL, SLIDING):
            raise ValueError(
                f"config has a layer of the type {kind!r}, which is not covered; "
                f"{FULL!r} and {SLIDING!r} are"
            )
    return types


def mask_of(fields: Fields, attention: str) -> str | None:
    """Return the mask of a decoder's layer of some type."""
    return "causal" if attention == FULL else f"causal:{fields.count('sliding_window')}"


def all_full(fields: Fields, depth: int) -> list[Kind]:
    """Return layers without windows, for families that have none."""
    return [Kind(FULL)] * depth


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
        raise ValueError(
            f"config has layer_types with {SLIDING!r}, but use_sliding_window=False; true is needed"
        )
    return _kinds(types)


def one_full_in(name: str | None, period: int) -> Kinds:
    """Return a function for `layer_types`; without it, each k-th layer sees all tokens.

    Parameters
    ----------
    name, period
        Field with k, if there is one, and its default.
    """

    def kinds(fields: Fields, depth: int) -> list[Kind]:
        every = fields.count(name, default=period) if name else period
        types = [FULL if (k + 1) % every == 0 else SLIDING for k in range(depth)]
        fields.get("sliding_window")
        return _kinds(types_of(fields, depth, types))

    return kinds


def unrotated_by_list(fields: Fields, depth: int) -> list[Kind]:
    """Return the layers of SmolLM3, without RoPE where `no_rope_layers` is 0."""
    every = fields.count("no_rope_layer_interval", default=4)
    default = [int((k + 1) % every != 0) for k in range(depth)]
    listed = fields.items("no_rope_layers", default)
    if len(listed) != depth:
        raise ValueError(
            f"config has {len(listed)} no_rope_layers for {depth} layers; one for each is needed"
        )
    window = _window_type(fields) if fields.flag("use_sliding_window", False) else FULL
    fields.no_influence("max_window_layers")
    types = types_of(fields, depth, [FULL if rotated else window for rotated in listed])
    if SLIDING in types and window == FULL:
        raise ValueError(
            f"config has layer_types with {SLIDING!r}, but no sliding_window in use; "
            "use_sliding_window=True and a sliding_window are needed"
        )
    return [Kind(kind, bool(rotated)) for kind, rotated in zip(types, listed, strict=True)]


def rotated_windows(fields: Fields, depth: int) -> list[Kind]:
    """Return the layers of EXAONE 4, whose full layers have no RoPE if there are windows."""
    if fields.get("sliding_window") is None:
        fields.no_influence("sliding_window_pattern")
        return _kinds(types_of(fields, depth, [FULL] * depth))
    if fields.get("layer_types"):
        fields.no_influence("sliding_window_pattern")
        types = types_of(fields, depth, [])
    else:
        types = [kind.attention for kind in one_full_in("sliding_window_pattern", 4)(fields, depth)]
    return [Kind(kind, kind == SLIDING) for kind in types]


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
