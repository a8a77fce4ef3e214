"""Files and folders that are written whole or not at all.

What the package writes is made next to its place, brought to the disk and moved there at the end,
so that an interrupted run leaves what was there before: `written` takes what a library writes to a
path, and its errors are for users; `write_durably` takes bytes, and its draft has a fixed name, so
that a process that is killed leaves nothing that the next does not write again.
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
    """A draft next to `path` to write a file or a folder to; moved to `path` if the block succeeds.

    Parent folders are made, and what stands at `path` is replaced; a folder replaces only a folder.

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
        raise ValueError(f"path={str(path)!r}: cannot be written ({reason(error)})") from error


def write_durably(target: Path, data: bytes) -> None:
    """Write a file in a folder that is there."""
    draft = target.with_name(f".{target.name}.draft")
    draft.write_bytes(data)
    _put_file(draft, target)


def sync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(folder: str | Path, name: str) -> None:
    """Raise ValueError unless files can be written into `folder`, which is made if need be.

    Called before a long run, so that it does not end in an error.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ValueError(f"{name}={str(folder)!r}: cannot be written ({reason(error)})") from error


def reason(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return next(iter(str(error).splitlines()), type(error).__name__)


def _put_file(draft: Path, target: Path) -> None:
    sync(draft)
    draft.replace(target)


def _put_folder(draft: Path, target: Path, aside: Path) -> None:
    """Move `draft` to `target`; what is there gives way, and comes back if that fails."""
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
