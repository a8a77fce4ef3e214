"""Lists with an entry for each layer, when the depth of a configuration is changed."""

from __future__ import annotations

from typing import Any, TypeGuard

from shaped_attention.architectures.layer_types import shortest
from shaped_attention.architectures.stack import DEPTHS

_LISTS = ("layer_types", "no_rope_layers")
"""Fields with such lists in the families that are covered."""


def at_new_depth(
    values: dict[str, Any], changes: dict[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the lists of a configuration at a changed depth, and what was done, in words.

    A pattern that a list holds at least twice is continued or cut. Lists that are changed
    themselves, or do not have the old depth, are left as they are.

    Raises
    ------
    ValueError
        If a list does not repeat a pattern.
    """
    name = next((x for x in DEPTHS if x in changes), DEPTHS[0])
    old, new = values.get(name), changes.get(name)
    lists: dict[str, Any] = {}
    done: list[str] = []
    if not _is_depth(old) or not _is_depth(new) or old == new:
        return lists, ()
    for field in _LISTS:
        entries = values.get(field)
        if field in changes or not isinstance(entries, list) or len(entries) != old:
            continue
        pattern = shortest(entries)
        if 2 * len(pattern) > old:
            raise ValueError(
                f"config has {field} for {old} layers, which do not repeat a pattern, and "
                f"{name}={new}; {field} for {new} layers, or {field}=None (null) for the family's "
                "own, is needed"
            )
        lists[field] = [pattern[k % len(pattern)] for k in range(new)]
        verb = "continued" if new > old else "cut"
        done.append(f"{field} with period {len(pattern)} {verb} from {old} to {new} layers")
    return lists, tuple(done)


def _is_depth(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
