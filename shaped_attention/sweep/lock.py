"""A lock on a file that ends with the process that holds it, whatever way it ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_ATTEMPTS = 4
"""A look whether the lock is held (`is_locked`) holds it for a moment."""


class LockedError(RuntimeError):
    """Another process holds the lock."""


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold the lock on a file, which is made.

    Raises
    ------
    LockedError
        If another process holds it.
    OSError
        If the file cannot be made or locked.
    """
    import fcntl

    with path.open("w") as lock, _not_inherited(lock):
        for attempt in reversed(range(_ATTEMPTS)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == 0:
                    raise LockedError(str(path)) from None
                time.sleep(0.05)
        try:
            yield
        finally:
            # Closing alone would not do while a forked process has the file open.
            fcntl.flock(lock, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file now."""
    import fcntl

    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


_held: list[IO[str]] = []


@contextmanager
def _not_inherited(lock: IO[str]) -> Iterator[None]:
    """Close the lock in processes forked from here, which would hold it after this one ended."""
    _held.append(lock)
    try:
        yield
    finally:
        _held.remove(lock)


def _close_inherited() -> None:
    for lock in _held:
        os.close(lock.fileno())
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
