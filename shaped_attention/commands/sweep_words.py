"""What the commands of the group `sweep` share: words, the report of errors, and the log."""

from __future__ import annotations

import logging
import math
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from shaped_attention.sweep.specification import Sweep


def shape_of(sweep: Sweep) -> str:
    """Return the axes of a sweep with their lengths."""
    return " x ".join(f"{name} ({len(axis)})" for name, axis in sweep.axes.items()) or "one cell"


def units_of(sweep: Sweep) -> int:
    """Return the number of units of all cells, samplers and blocks."""
    return math.prod(sweep.shape) * len(sweep.samplers) * sweep.blocks


def resuming(sweep: Sweep, store: Path) -> str:
    """Return the command that continues a store, with the modules that it needs."""
    modules = sorted({layer.partition(":")[0] for layer in sweep.layers if ":" in layer})
    trusted = [f"--trust {module}" for module in modules]
    return " ".join(["shaped-attention sweep resume", shlex.quote(str(store)), *trusted])


def size(count: int) -> str:
    """Return a number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} TB"


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
