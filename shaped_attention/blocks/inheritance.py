"""What a block does not inherit from a block whose mathematics it overrides: its limit.

The limit rests on the other methods. That of a class that overrides one of these is derived from
its branch, unless it declares one, as in ``limit = Parent.limit``.
"""

from __future__ import annotations

_NOT_MATHEMATICS = frozenset({
    "limit", "no_chain", "fixed", "overridden", "check", "specification", "attention_weights",
})  # fmt: skip
"""Attributes of blocks that may be overridden without consequences for the others."""


def withdraw_inherited(cls: type, base: type) -> None:
    """Derive the limit of a class whose mathematics is not that of its parent.

    `base` is the class of all blocks, on which nothing rests.
    """
    if "limit" in vars(cls) and vars(cls)["limit"] is None:
        cls.limit = f"{cls.__name__} declares that there is none"  # type: ignore[attr-defined]
    parent = next((x for x in cls.__mro__[1:] if x is not base and issubclass(x, base)), None)
    if parent is None:
        return
    # Classes without mathematics of their own, mixed in before the parent, override it too.
    ahead = cls.__mro__[: cls.__mro__.index(parent)]
    overridden = [
        x for kind in ahead for x in vars(kind) if _overrides_mathematics(kind, x, parent)
    ]
    if not overridden:
        return
    declared = {name for kind in ahead for name in vars(kind)}
    cls.overridden = tuple(dict.fromkeys((*parent.overridden, *overridden)))  # type: ignore[attr-defined]
    if "limit" not in declared:
        cls.limit = base.limit  # type: ignore[attr-defined]


def _overrides_mathematics(cls: type, name: str, parent: type) -> bool:
    """Return whether a class overrides a method or property that is part of the mathematics."""
    if name.startswith("__") or name in _NOT_MATHEMATICS:
        return False
    if name in vars(cls).get("__annotations__", {}):
        return False
    above = [vars(x)[name] for x in parent.__mro__ if name in vars(x)]
    return any(callable(x) or isinstance(x, property) for x in above)
