"""The log of a command on the error stream, next to its progress bar."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

_PACKAGE = "shaped_attention"


class _Lines(logging.Handler):
    """Writes lines above the progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except Exception:  # as in all handlers of the standard library
            self.handleError(record)


@contextmanager
def logged(part: str, verbose: bool, quiet: bool) -> Iterator[None]:
    """Write what the package logs: warnings, with `verbose` all, with `quiet` errors only.

    If the error stream is not a terminal and shows no bar, the lines that `part` of the package
    logs about its progress are written too.
    """
    package, informed = logging.getLogger(_PACKAGE), logging.getLogger(f"{_PACKAGE}.{part}")
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    told = level if verbose or quiet or sys.stderr.isatty() else logging.INFO
    handler = _Lines()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    before = package.level, informed.level
    package.addHandler(handler)
    package.setLevel(level)
    informed.setLevel(told)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(before[0])
        informed.setLevel(before[1])
