"""Progress bars on the error stream, and durations in words."""

from __future__ import annotations

from collections.abc import Iterable
from shutil import get_terminal_size
from typing import Any, TypeVar, overload

from tqdm import tqdm

T = TypeVar("T")


@overload
def progress_bar(label: str, progress: bool | None, parts: Iterable[T]) -> tqdm[T]: ...


@overload
def progress_bar(label: str, progress: bool | None, **options: Any) -> tqdm[int]: ...


def progress_bar(
    label: str, progress: bool | None, parts: Iterable[Any] = (), **options: Any
) -> tqdm[Any]:
    """Return a bar that counts `parts` during iteration, or the steps given to its `update`.

    Parameters
    ----------
    label
        Text in front of the bar.
    progress
        Whether to show it; None shows it if the error stream is a terminal.
    parts
        Objects to iterate over.
    options
        Options of tqdm, such as `total` and `unit`.
    """
    hidden = None if progress is None else not progress
    # A terminal without a size has no room for a bar; this is its size or 80 columns.
    columns = get_terminal_size().columns
    return tqdm(parts, label, disable=hidden, ncols=columns, **options)


def duration(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    if seconds < 6000:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"
