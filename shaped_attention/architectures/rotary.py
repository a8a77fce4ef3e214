"""RoPE as configurations describe it, in old and new versions of the `transformers` library."""

from __future__ import annotations

from typing import Any

from shaped_attention.architectures.fields import Fields
from shaped_attention.architectures.layer_types import FULL
from shaped_attention.architectures.rope_scalings import positive, scaled_rope
from shaped_attention.blocks.rotations import rope_angles

_BASE = 10_000.0


def rope_of(
    fields: Fields,
    size: int,
    kind: str = "",
    *,
    base: float = _BASE,
    share: float = 1.0,
    partial: bool = False,
    by_type: bool = False,
) -> dict[str, Any]:
    """Return `rope`, `rope_share` and further fields of attention with heads of a size.

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
    partial
        Whether the family can rotate a part of a head.
    by_type
        Whether the family has parameters for each type of layers, also if they are not named.
    """
    name, given, nested = _parameters(fields, kind)
    old = given.get("type") or "default"
    if by_type and not nested and old != "default" and given.get("rope_type") is None:
        raise ValueError(
            f"config has {name} with type={old!r}, which the library ignores in families with "
            "parameters for each type of layers; rope_type is needed"
        )
    theta = _one_of(fields, name, given, "rope_theta", base)
    part = _one_of(fields, name, given, "partial_rotary_factor", share)
    if part > 1.0 or (part != 1.0 and not partial):
        needed = "at most 1" if partial else "1, for whole heads,"
        raise ValueError(f"config has partial_rotary_factor={part!r}; {needed} is needed")
    rotated = int(size * part)
    if rotated % 2 or rotated < 2:
        raise ValueError(
            f"config rotates {rotated} of {size} columns of a head (head_dim, "
            "partial_rotary_factor); an even number is needed"
        )
    scaled = scaled_rope(fields, name, given, theta, rotated, nested=nested or by_type)
    return {**scaled, "rope_share": rotated / size}


def rope_by_type(
    fields: Fields, size: int, kind: str, *, base: float, local_base: float
) -> dict[str, Any]:
    """Return the same for families whose sliding layers have a RoPE of their own.

    Without `rope_parameters` their base is `rope_local_base_freq`, and neither `rope_theta` nor
    `rope_scaling` applies to them, as in the library.
    """
    parameters = fields.get("rope_parameters")
    if parameters and not _for_kinds(parameters):
        raise ValueError(
            "config has rope_parameters without layer types; parameters for 'full_attention' and "
            "'sliding_attention' are needed"
        )
    local = fields.get("rope_local_base_freq", local_base)
    # Read even for sliding layers, so that the fields are checked in models of these alone.
    full = rope_of(fields, size, FULL, base=base, by_type=True)
    if kind == FULL:
        return full
    if parameters:
        return rope_of(fields, size, kind, base=local, by_type=True)
    return {"rope": rope_angles(positive("rope_local_base_freq", local), size), "rope_share": 1.0}


def _for_kinds(parameters: dict[str, Any]) -> bool:
    return any(isinstance(x, dict) for x in parameters.values())


def _parameters(fields: Fields, kind: str) -> tuple[str, dict[str, Any], bool]:
    """Return the field with a type's parameters, a copy of these, and whether it has types."""
    parameters, scaling = fields.get("rope_parameters") or {}, fields.get("rope_scaling") or {}
    for name, value in (("rope_parameters", parameters), ("rope_scaling", scaling)):
        if not isinstance(value, dict):
            raise ValueError(f"config has {name}={value!r}; an object with parameters is needed")
    if parameters and scaling:
        raise ValueError("config has both rope_parameters and rope_scaling; one is needed")
    if scaling:
        return "rope_scaling", dict(scaling), False
    nested = _for_kinds(parameters)
    if nested:
        parameters = parameters.get(kind) or {}
    return "rope_parameters", dict(parameters), nested


def _one_of(fields: Fields, name: str, given: dict[str, Any], key: str, default: float) -> float:
    """Return a value among the parameters or, in old versions, at the top level."""
    inner, outer = given.pop(key, None), fields.get(key)
    if inner is not None and outer is not None and inner != outer:
        raise ValueError(
            f"config has {key}={outer!r} and {name} with {key}={inner!r}; one of the two is needed"
        )
    value = inner if inner is not None else outer
    return positive(key, default if value is None else value)
