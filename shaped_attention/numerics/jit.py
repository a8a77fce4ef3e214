"""Configuration of compilation, and where compiled kernels are kept.

Numba's cache detects a change of a kernel's own file, but not of the files whose functions it
inlines, and would run a mixture of old and new code. The folder is therefore named by a digest of
all sources, also inside `NUMBA_CACHE_DIR`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding
import llvmlite.ir as ir
from numba import extending, njit
from numba.core import config as _config
from numba.misc.appdirs import AppDirs

_log = logging.getLogger(__name__)

_settings: Any = _config

_VERSIONS_KEPT = 3
"""Versions of the sources whose kernels stay in the package's own folder."""


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Return Numba's compilation of a function, cached if a folder for it can be written."""
    folder = _folder()
    if folder is None:
        return njit(**options)(function)
    # Numba reads its setting when a function is decorated; other packages keep theirs.
    before, _settings.CACHE_DIR = _settings.CACHE_DIR, str(folder)
    try:
        dispatcher = njit(cache=True, **options)(function)
    finally:
        _settings.CACHE_DIR = before
    _survive_full_disks(dispatcher._cache)
    return dispatcher


@functools.cache
def _folder() -> Path | None:
    """Return the folder for kernels of these sources; None, with a warning, without one."""
    here = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(here.rglob("*.py")))
    name = f"kernels-{hashlib.sha256(sources).hexdigest()[:16]}"
    inside = here / "__pycache__"
    places = [inside, Path(AppDirs(appname="numba", appauthor=False).user_cache_dir)]
    if _settings.CACHE_DIR:
        places = [Path(_settings.CACHE_DIR)]
    for place in places:
        try:
            folder = place / name
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            reason = error
            continue
        if place == inside:
            _drop_old_versions(inside)
        return folder
    _log.warning(
        "kernels are compiled again in every process, since no folder for a cache can be written "
        "(%s); set NUMBA_CACHE_DIR to one that can",
        reason,
    )
    return None


def _drop_old_versions(place: Path) -> None:
    """Delete the kernels of all but the versions used last."""
    folders = sorted(place.glob("kernels-*/"), key=lambda path: path.stat().st_mtime)
    for old in folders[:-_VERSIONS_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _survive_full_disks(cache: Any) -> None:
    """Turn errors from writing a kernel into one warning."""
    save = cache.save_overload

    def save_or_warn(*arguments: Any) -> None:
        try:
            save(*arguments)
        except OSError as error:
            _warn_once(f"a compiled kernel cannot be cached ({error})")

    cache.save_overload = save_or_warn


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning("%s; it is compiled again in the next process", message)


def _has_wide_vectors() -> bool:
    """Return whether kernels are compiled for a processor with vectors of 512 bits."""
    features = vars(_config).get("CPU_FEATURES")
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    return "+avx512f" in features.split(",")


WIDE = _has_wide_vectors()


# Contraction (fused multiply-add) is the only relaxation: lanes never mix, so nothing needs to be
# reassociated, and the rounding of a path is the same wherever it is computed.
_FASTMATH = {"contract", "nsz"}

kernel = functools.partial(compiled, nogil=True, error_model="numpy", fastmath=_FASTMATH)
"""Compile a function; it releases the interpreter lock, so chunks run in parallel."""

unfused = functools.partial(compiled, nogil=True, error_model="numpy")
"""Compile a function that rounds products before they are added, as NumPy does."""

intrinsic: Any = extending.intrinsic
"""Make a function of values of LLVM; its first argument is given by Numba, not by a caller."""

scalar = functools.partial(compiled, inline="always", error_model="numpy", fastmath=_FASTMATH)
"""Compile a function of numbers that is inlined into the loop over lanes that calls it."""


@kernel
def piece(left):  # type: ignore[no-untyped-def]
    """Return the height or width of the next block when `left` rows or columns remain."""
    if left >= 4:
        return 4
    return 2 if left >= 2 else 1


def sizes(builder: Any, high: Any, wide: Any) -> Iterator[tuple[int, int]]:
    """Yield heights and widths of a block; what is built meanwhile runs only for that size."""
    for rows in (4, 2, 1):
        with builder.if_then(builder.icmp_signed("==", high, ir.Constant(high.type, rows))):
            for columns in (4, 2, 1):
                right = ir.Constant(wide.type, columns)
                with builder.if_then(builder.icmp_signed("==", wide, right)):
                    yield rows, columns
