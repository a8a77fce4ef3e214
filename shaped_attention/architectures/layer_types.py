"""Which tokens a token sees, layer by layer."""

from __future__ import annotations

from shaped_attention.architectures.fields import Fields

_TYPES = ("full_attention", "sliding_attention")


def types_of(fields: Fields, depth: int, default: list[str]) -> list[str]:
    """Return the type of each layer: `layer_types`, or a default of this length.

    Raises
    ------
    ValueError
        If there is no type for each layer, or a type is not covered.
    """
    types = fields.get("layer_types") or default
    if len(types) != depth:
        raise ValueError(
            f"config has {len(types)} layer_types for {depth} layers; one for each is needed"
        )
    for kind in types:
        if kind not in _TYPES:
            raise ValueError(
                f"config has a layer of the type {kind!r}, which is not covered; "
                f"{' and '.join(map(repr, _TYPES))} are"
            )
    return list(types)


def masks_of(fields: Fields, depth: int) -> list[str]:
    """Return the mask of each layer of a decoder, as short as the layers repeat themselves."""
    window = fields.get("sliding_window")
    switch = fields.get("use_sliding_window")
    first = fields.get("max_window_layers", 0)
    if window is None or switch is False:
        types_of(fields, depth, ["full_attention"] * depth)
        return ["causal"]
    begin = first if switch else 0
    default = ["full_attention" if k < begin else "sliding_attention" for k in range(depth)]
    types = types_of(fields, depth, default)
    masks = ["causal" if kind == "full_attention" else f"causal:{window}" for kind in types]
    return shortest(masks)


def shortest(values: list[str]) -> list[str]:
    """Return the shortest list that repeats to the given one."""
    count = len(values)
    for length in range(1, count + 1):
        if all(values[k] == values[k % length] for k in range(count)):
            return values[:length]
    return values
