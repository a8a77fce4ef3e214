"""Eager runs: the descriptions of blocks run directly in torch, for a debugger to step through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_eager: ContextVar[bool] = ContextVar("eager", default=False)


@contextmanager
def eager() -> Iterator[None]:
    """Run blocks as they are written: samplers called inside use torch, never compiled code.

    A debugger then stops inside `root`, `limit` or `step` of a block, once per layer, with tensors
    (samples, m, c) to inspect. The random numbers are the same, and the paths agree with those of
    compiled code to rounding. The setting applies to calls made in this thread; the chunks of such
    a call still run on several threads.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> with sa.eager():
    ...     result = sa.simulate_chain(
    ...         sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=8, depth=2, samples=3
    ...     )
    """
    token = _eager.set(True)
    try:
        yield
    finally:
        _eager.reset(token)


def is_eager() -> bool:
    """Return whether a call made now runs eagerly."""
    return _eager.get()
