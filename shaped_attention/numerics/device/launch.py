"""Compile the kernel of a layer for a CUDA device, and launch it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.device.source import (
    bytes_of_path,
    numbers_source,
    threads_of,
    warps_of,
)
from shaped_attention.numerics.tile_interpreter import Packed

_log = logging.getLogger(__name__)

_BLOCK = 128
"""Threads of a block whose paths have one thread each."""

_MOST_BLOCKS = 2**16
"""Blocks of a launch that makes numbers; a thread makes several beyond them."""

_GROUPS = 4096
"""Warps that run at a time if the buffers of their paths are in the device's main memory."""


class Kernel(Protocol):
    """A kernel `advance` (``kernels.cuh``), ready to be launched for a number of paths."""

    def __call__(self, rows: int, first: Sequence[Any], rest: Sequence[Any]) -> None:
        """Launch it with the arguments before and after its scratch memory."""


class CudaKernel:
    """The kernel on a CUDA device, compiled at run time by NVRTC, which torch's CUDA build has."""

    def __init__(self, source: str, packed: Packed, precision: str, device: torch.device) -> None:
        self.device, self.threads = device, threads_of(packed)
        warps = warps_of(packed, precision, _shared_bytes(device))
        self.paths = _BLOCK if self.threads == 1 else max(1, warps)
        self._kernel = compiled(f"#define SHARED {int(warps > 0)}\n{source}", "advance", device)
        self.shared = self._each = 0
        if self.threads > 1 and warps:
            self.shared = self.paths * bytes_of_path(packed, precision)
            with torch.cuda.device(device):
                self._kernel.set_shared_memory_config(self.shared)
        elif self.threads > 1:
            self._each = packed.rows + 1
        # As large as the largest launch needs, which may find the memory of the device full.
        self.scratch: Tensor = torch.empty(1, dtype=getattr(torch, precision), device=device)

    def __call__(self, rows: int, first: Sequence[Any], rest: Sequence[Any]) -> None:
        """Launch it, and wait until it has run."""
        blocks = -(-rows // self.paths)
        if self._each:
            blocks = min(blocks, _GROUPS)
            if self.scratch.numel() < blocks * self._each:
                self.scratch = self.scratch.new_empty(blocks * self._each)
        with torch.cuda.device(self.device):
            self._kernel(
                (blocks, 1, 1), (self.paths * self.threads, 1, 1), [*first, self.scratch, *rest],
                self.shared,
            )  # fmt: skip
            torch.cuda.synchronize()


def fill_normals(
    out: Tensor, key: NDArray[np.uint64], samples: Tensor, step: int, slot: int, first: int
) -> None:
    """Write normals of a slot (rows, count) on a device, from pair number `first` on.

    They are those of `shaped_attention.numerics.draws.Draws.normals_at`, in one launch.
    """
    precision = str(out.dtype).removeprefix("torch.")
    kernel = compiled(numbers_source(precision), "fill_normals", out.device)
    rows, count = out.shape
    blocks = min(-(-rows * ((count + 1) // 2) // _BLOCK), _MOST_BLOCKS)
    words = torch.from_numpy(key).to(out.device)
    places = [float(x) for x in (rows, count, step, slot, first)]
    with torch.cuda.device(out.device):
        kernel((max(1, blocks), 1, 1), (_BLOCK, 1, 1), [out, words, samples, *places])


@lru_cache(maxsize=64)
def compiled(source: str, name: str, device: torch.device) -> Any:
    """Return a kernel by its name; the source is compiled once for each device of a process."""
    with torch.cuda.device(device), _without_toolkit():
        return torch.cuda._compile_kernel(source, name)


@contextmanager
def _without_toolkit() -> Iterator[None]:
    """Let torch compile where CUDA's toolkit is not installed.

    It raises OSError if it does not know the folder of the toolkit's headers; kernels include none.
    """
    from torch.utils import cpp_extension  # slow, and only for this

    home = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = home or str(Path(cpp_extension.__file__).parents[1])
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = home


def _shared_bytes(device: torch.device) -> int:
    """Return the bytes of shared memory that a block may have: 64 KiB on devices of 2018."""
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", 48 * 1024))


@lru_cache(maxsize=64)
def can_compile(device: torch.device) -> bool:
    """Return whether this build of torch compiles kernels for a device at run time.

    torch has no public function for it. If it cannot, its operations run one by one, which the log
    says once.
    """
    if torch.version.cuda is None:
        return False
    kernel = getattr(getattr(torch.cuda, "_utils", None), "_CudaKernel", None)
    if not (hasattr(torch.cuda, "_compile_kernel") and hasattr(kernel, "set_shared_memory_config")):
        say_slow(f"torch {torch.__version__} does not compile kernels at run time (2.13 does)")
        return False
    try:
        # The smallest kernel: the compiler may be missing (OSError), or not know the device.
        compiled(numbers_source("float64"), "fill_normals", device)
    except (RuntimeError, OSError) as error:
        say_slow(f"kernels cannot be compiled for {device} ({error})")
        return False
    return True


@lru_cache(maxsize=64)
def say_slow(reason: str) -> None:
    """Log, once, why operations of torch run in place of a kernel."""
    _log.warning("%s; operations of torch run one by one", reason)
