"""Files and folders that are written whole or not at all.

A draft is written next to its target, flushed to the disk and moved at the end, so an interrupted
run leaves the old target. `written` is for a library that writes to a path, and its errors are for
users. `write_durably` is for bytes; its draft has a fixed name, so the next process overwrites what
a killed one leaves.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written(path: str | Path) -> Iterator[Path]:
    """Yield a draft next to `path` for a file or a folder, and move it there if the block succeeds.

    Parent folders are created, and what is at `path` is replaced; a folder replaces only a folder.

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
            if draft.is_dir():
                _put_folder(draft, target, aside=Path(f"{folder}-old"))
            else:
                _put_file(draft, target)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} cannot be written ({reason(error)})") from error


def write_durably(target: Path, data: bytes) -> None:
    """Write a file in an existing folder."""
    draft = target.with_name(f".{target.name}.draft")
    draft.write_bytes(data)
    _put_file(draft, target)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk.

    Windows flushes only files, and those only if they are open for writing.
    """
    posix = hasattr(os, "O_DIRECTORY")
    if not posix and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if posix else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path) -> None:
    """Flush all files in a folder to the disk, by one call for all disks where it exists."""
    if hasattr(os, "sync"):
        os.sync()
        return
    for file in folder.rglob("*"):
        sync(file)


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


def _put_file(draft: Path, target: Path) -> None:
    sync(draft)
    draft.replace(target)


def _put_folder(draft: Path, target: Path, aside: Path) -> None:
    """Move `draft` to `target`, whose old content is restored if that fails."""
    if not os.path.lexists(target):
        draft.rename(target)
        return
    if not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    target.rename(aside)
    try:
        draft.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    if aside.is_symlink():
        aside.unlink()
    else:
        shutil.rmtree(aside, ignore_errors=True)
