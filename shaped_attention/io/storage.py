"""Files that are written whole or not at all.

A draft is written next to its target, flushed to the disk and moved at the end, so an interrupted
run leaves the old target.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(path: str | Path) -> Iterator[Path]:
    """Yield a draft next to `path` for a file, and move it there if the block succeeds.

    Parent folders are created, and a file at `path` is replaced.

    Raises
    ------
    ValueError
        If the place cannot be written, or the block raises OSError, TypeError or ValueError.
    """
    target = Path(path)
    try:
        if target.parent.exists() and not target.parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
            draft = Path(folder) / target.name
            yield draft
            # Windows flushes only files that are open for writing.
            with draft.open("r+b") as file:
                os.fsync(file.fileno())
            draft.replace(target)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} cannot be written ({reason(error)})") from error


def check_writable(folder: str | Path, name: str) -> None:
    """Raise ValueError unless files can be written into `folder`, which is created if necessary.

    A long run calls it first, in order not to end in an error.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ValueError(f"{name}={str(folder)!r} cannot be written ({reason(error)})") from error


def reason(error: Exception) -> str:
    """Return the cause of an error in one line."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return next(iter(str(error).splitlines()), type(error).__name__)
