"""Files and folders that are written whole or not at all.

Everything the package writes goes through `written`: it is made next to its place and moved there
at the end, so that an interrupted run leaves what was there before.
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
                draft.replace(target)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r}: cannot be written ({reason(error)})") from error


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
