"""RoPE as configurations describe it, in old and new versions of the `transformers` library."""

from __future__ import annotations

from typing import Any

from shaped_attention.architectures.fields import Fields
from shaped_attention.blocks.rotations import rope_angles

_SCALINGS = {"default": (), "linear": ("factor",), "llama3": (
    "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
)}  # fmt: skip
_BASE = 10_000.0


def rope_of(
    fields: Fields, size: int, kind: str = "", *, base: float = _BASE, share: float = 1.0
) -> dict[str, Any]:
    """Return the fields `rope` and `rope_share` of attention with heads of a size.

    Parameters
    ----------
    fields
        The configuration: `rope_parameters`, or `rope_theta` and `rope_scaling`.
    size
        Head size d_h.
    kind
        Type of the layer, for configurations that have parameters for each type.
    base, share
        Base and rotated share if the configuration does not name them.
    """
    parameters = fields.get("rope_parameters") or {}
    for_kinds = bool(parameters) and all(isinstance(x, dict) for x in parameters.values())
    if for_kinds:
        parameters = parameters.get(kind) or {}
    scaling = {} if parameters else dict(fields.get("rope_scaling") or {})
    given = dict(parameters) or scaling
    name = "rope_parameters" if parameters else "rope_scaling"
    theta = given.pop("rope_theta", None) or fields.get("rope_theta", base)
    share = given.pop("partial_rotary_factor", None) or fields.get("partial_rotary_factor", share)
    old, new = given.pop("type", None), given.pop("rope_type", None)
    how = new or old or "default"
    if how not in _SCALINGS:
        raise ValueError(
            f"config has {name} of the type {how!r}, which is not covered; "
            f"{', '.join(map(repr, _SCALINGS))} are"
        )
    extra = {key for key, value in given.items() if value is not None} - set(_SCALINGS[how])
    extra -= {"original_max_position_embeddings"}
    if extra:
        raise ValueError(
            f"config has {name} with {', '.join(sorted(extra))}, which rope type {how!r} does "
            "not cover"
        )
    options = {key: given.get(key) for key in _SCALINGS[how]}
    if how != "default" and None in options.values():
        missing = next(key for key, value in options.items() if value is None)
        raise ValueError(f"config has {name} of the type {how!r} without {missing}")
    rotated = int(size * share)
    if rotated % 2 or rotated < 2:
        raise ValueError(
            f"config rotates {rotated} of {size} columns of a head; an even number is needed"
        )
    angles = rope_angles(theta, rotated, None if how == "default" else how, **options)
    return {"rope": angles, "rope_share": rotated / size}
