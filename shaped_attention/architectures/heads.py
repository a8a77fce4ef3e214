"""Numbers and size of attention heads."""

from __future__ import annotations

from typing import NamedTuple

from shaped_attention.architectures.fields import Fields


class Heads(NamedTuple):
    """Number of heads of queries, of keys (and values), and columns of a head."""

    queries: int
    keys: int
    size: int


def heads_of(fields: Fields, width: int) -> Heads:
    """Return the heads of `num_attention_heads`, `num_key_value_heads` and `head_dim`.

    Raises
    ------
    ValueError
        If heads of keys and values cannot be shared equally, or there is no `head_dim` and the
        heads do not divide the width.
    """
    count = fields.count("num_attention_heads")
    kv_count = fields.count("num_key_value_heads", default=count)
    if count % kv_count:
        raise ValueError(
            f"config has num_attention_heads={count}, not a multiple of "
            f"num_key_value_heads={kv_count}; a multiple is needed"
        )
    if fields.get("head_dim") is None and width % count:
        raise ValueError(
            f"config has hidden_size={width}, not a multiple of num_attention_heads={count}, and "
            "no head_dim; a multiple, or head_dim, is needed"
        )
    return Heads(count, kv_count, fields.count("head_dim", default=width // count))
