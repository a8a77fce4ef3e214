"""Eager runs: the descriptions of blocks in torch as they are, for a debugger to step through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_eager: ContextVar[bool] = ContextVar("eager", default=False)


@contextmanager
def eager() -> Iterator[None]:
    """Run blocks as they are written: samplers called inside use torch, never compiled code.

    A debugger then stops inside `root`, `limit` or `step` of a block, once in each layer, with
    tensors (samples, m, c) that can be looked at. The random numbers are the same and the paths
    agree with those of compiled code to rounding. It holds for calls made in this thread; the
    chunks of such a call are run on threads as always.

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
    """Return whether a call made now is to run eagerly."""
    return _eager.get()
