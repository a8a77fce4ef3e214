"""Sizes of memory: what an argument says, what is free, and whether something fits."""

from __future__ import annotations

import math
import os
import re

import numpy as np

from shaped_attention.checks import argument_error, is_number

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(rf"(\d+\.?\d*(?:e[+-]?\d\d?)?) ?({'|'.join(_UNITS)})")


def bytes_of(memory: int | str | None) -> int:
    """Return the bytes that an argument `memory` stands for; None is half of what is free.

    Examples
    --------
    >>> bytes_of("1.5 GiB")
    1610612736
    """
    if memory is None:
        return free_memory() // 2
    if isinstance(memory, str) and memory.strip().isdecimal():
        memory = int(memory)
    found = _SIZE.fullmatch(memory.strip()) if isinstance(memory, str) else None
    size = math.ceil(float(found[1]) * _UNITS[found[2]]) if found else memory
    if not (is_number(size) and isinstance(size, int | np.integer) and size >= 1):
        needed = f"a number of bytes >= 1, or a size in {', '.join(_UNITS)}"
        raise argument_error("memory", needed, memory)
    return int(size)


def free_memory() -> int:
    """Return the bytes of this machine's memory that are free.

    Where they are not known, all of it; where that is not known either, 8 GiB.
    """
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 2**10
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # as on Windows
        return 2**33


def check_fits(name: str, count: int, bytes_of_one: float, helps: str) -> None:
    """Raise ValueError if `count` things take more memory than half of what is free.

    The argument `name` is their number, and `helps` says what needs less.
    """
    if count * bytes_of_one > (memory := bytes_of(None)):
        most = f"at most {int(memory // bytes_of_one)} in {shown_bytes(memory)} of memory ({helps})"
        raise argument_error(name, most, count)


def shown_bytes(size: float) -> str:
    """Return a size as `bytes_of` reads it."""
    return f"{size / 2**30:.3g} GiB"
