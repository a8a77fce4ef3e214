"""Checks of the fields of attention."""

from __future__ import annotations

from typing import Any

from shaped_attention.blocks.parameters import check_parameter, extremes
from shaped_attention.checks import (
    check_count,
    check_finite,
    check_fraction,
    check_nonnegative,
    check_positive,
    check_width,
)

_LARGEST_TAU0 = 1e100
_SWITCHES = ("output_projection", "identity", "centring", "scaled_temperature")


def check_sizes(block: Any) -> None:
    """Raise ValueError unless the numbers of heads and of their columns fit each other."""
    check_count("heads", block.heads)
    for name in _SWITCHES:
        if not isinstance(getattr(block, name), bool):
            raise ValueError(f"{name}={getattr(block, name)!r}: True or False is needed")
    for name in ("key_size", "head_size"):
        if getattr(block, name) is not None:
            check_width(name, getattr(block, name))
    if block.kv_heads is not None:
        check_count("kv_heads", block.kv_heads)
        if block.heads % block.kv_heads:
            raise ValueError(
                f"kv_heads={block.kv_heads!r}: a number that divides heads={block.heads} is needed"
            )
    for name in ("kv_heads", "head_size"):
        value = getattr(block, name)
        if value is not None and not block.output_projection:
            raise ValueError(f"{name}={value!r}: output_projection=True is needed with it")
    if block.value_ratio is not None:
        check_positive("value_ratio", block.value_ratio)
        if block.head_size is None:
            raise ValueError(f"value_ratio={block.value_ratio!r}: head_size is needed with it")


def check_numbers(block: Any) -> None:
    """Raise ValueError unless all numbers are in their ranges."""
    check_parameter("tau0", block.tau0, check_positive)
    for tau0 in extremes(block.tau0):
        if not 1.0 / _LARGEST_TAU0 <= tau0 <= _LARGEST_TAU0:
            raise ValueError(
                f"tau0={tau0!r}: a number from {1.0 / _LARGEST_TAU0:g} to {_LARGEST_TAU0:g} "
                "is needed (beyond, its square overflows)"
            )
    for name in ("query_bias", "key_bias"):
        value = getattr(block, name)
        check_finite(name, value)
        if not 0.0 <= value <= _LARGEST_TAU0:
            raise ValueError(f"{name}={value!r}: a variance from 0 to {_LARGEST_TAU0:g} is needed")
    check_fraction("rope_share", block.rope_share)
    if block.rope is None and block.rope_share != 1.0:
        raise ValueError(f"rope_share={block.rope_share!r}: rope is needed with it")
    check_positive("rope_factor", block.rope_factor)
    if block.rope is None and block.rope_factor != 1.0:
        raise ValueError(f"rope_factor={block.rope_factor!r}: rope is needed with it")
    if block.rope_tokens is not None:
        check_count("rope_tokens", block.rope_tokens)
        if block.rope is None:
            raise ValueError(f"rope_tokens={block.rope_tokens!r}: rope is needed with it")
    elif block.rope_long is not None:
        raise ValueError("rope_tokens=None: a number of tokens is needed with rope_long")
    if not (isinstance(block.qk_norm, bool) or block.qk_norm in ("head", "all")):
        raise ValueError(f"qk_norm={block.qk_norm!r}: False, True, 'head' or 'all' is needed")
    check_nonnegative("qk_norm_eps", block.qk_norm_eps)
    if block.qk_norm_eps > 0.0 and not block.qk_norm:
        raise ValueError(f"qk_norm_eps={block.qk_norm_eps!r}: qk_norm is needed with it")
    if block.softcap is not None:
        check_positive("softcap", block.softcap)
