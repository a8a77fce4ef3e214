"""What the commands of the group `sweep` print alike, and how they report errors."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path

import click

from shaped_attention.commands.options import InputError
from shaped_attention.io.storage import reason
from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.store_records import StoreError, UnwritableError


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


@contextmanager
def reported() -> Iterator[None]:
    """Report errors as a sentence or a list of faults; exit status 2 for bad arguments, else 1."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (UnwritableError, BrokenExecutor) as error:
        raise click.ClickException(str(error)) from None
    except (ValueError, StoreError) as error:
        raise InputError(str(error)) from None
    except MemoryError:
        raise click.ClickException("there is not enough memory for this") from None
    except OSError as error:
        raise InputError(f"{error.filename or 'a file'}: {reason(error)}") from None


def size(count: int) -> str:
    """Return a number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} TB"
