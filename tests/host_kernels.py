"""Kernels of a CUDA device, run on the host: the same source, with its threads in turn.

A path has one thread or 32. Those of the device run in step at each `together`; here they are
threads of the host that meet at a barrier.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.device.source import numbers_source
from shaped_attention.numerics.tile_interpreter import Packed
from shaped_attention.samplers import steppers
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers.tiles_on_device import DeviceStepper, can_run
from shaped_attention.samplers.task import Task

COMPILER = shutil.which("g++") or shutil.which("clang++")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a compiler of C++")

_BEFORE = r"""
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
#include <barrier>
using std::acos; using std::erfc; using std::exp; using std::fabs; using std::floor;
using std::log; using std::log1p; using std::sqrt; using std::tanh;
#if THREADS == 1
static inline void together() {}
static inline double group_sum(double value, int) { return value; }
#else
static std::barrier meeting(THREADS);
static double partial[THREADS];
static inline void together() { meeting.arrive_and_wait(); }
static inline double group_sum(double value, int lane) {
  partial[lane] = value;
  together();
  double total = 0;
  for (int k = 0; k < THREADS; ++k) total += partial[k];
  together();
  return total;
}
#endif
"""

_AFTER = r"""
template <class... Arguments>
static void launched(Arguments... arguments) {
  // Not a number: what a path reads without having written it must not pass.
  std::vector<real> memory(BUFFER_ROWS, real(NAN));
  std::vector<std::thread> threads;
  for (int lane = 0; lane < THREADS; ++lane)
    threads.emplace_back([&, lane] { advance(arguments..., memory.data(), lane); });
  for (auto& thread : threads) thread.join();
}
"""

_SIGNATURES = {
    False: "real* a, unsigned char* b, double* c, const unsigned char* d, const real* e, "
    "const u64* f, real* g, double h, double i, double j, double k, int l, int m, double n, "
    "double o",
    True: "real* a, unsigned char* b, double* c, const unsigned char* d, const real* e, "
    "const u64* f, real* g, double h, double i, double j, double k, int l, int m, double n, "
    "double* o, double* p, long long* q, long long* r, const long long* s, real* t, int u, "
    "double v, double w",
}


class HostKernel:
    """A kernel `advance` that was compiled for the host."""

    launches: ClassVar[list[int]] = []
    """Rows of all launches."""

    def __init__(self, source: str, packed: Packed, precision: str, device: torch.device) -> None:
        assert device.type == "cpu"
        clock = "#define CLOCK" in source
        names = "abcdefghijklmnopqrstuvw"[: 23 if clock else 15]
        call = f'extern "C" void run({_SIGNATURES[clock]}) {{ launched({", ".join(names)}); }}'
        defines, rest = source.split("typedef unsigned long long u64;", 1)
        whole = [defines, _BEFORE, "typedef unsigned long long u64;", rest, _AFTER, call]
        self._run = _library("\n".join(whole)).run
        self.scratch = torch.empty(1)

    def __call__(self, rows: int, first: Sequence[Any], rest: Sequence[Any]) -> None:
        """Run it."""
        self.launches.append(rows)
        arguments: list[Any] = []
        for value in [*first, self.scratch, *rest]:
            if isinstance(value, Tensor):
                assert value.is_contiguous()
                arguments.append(ctypes.c_void_p(value.data_ptr()))
            else:
                arguments.append(
                    (ctypes.c_int if isinstance(value, int) else ctypes.c_double)(value)
                )
        self._run(*arguments)


_FILL = """
extern "C" void run(
    real* a, const u64* b, const long long* c, double d, double e, double f, double g, double h) {
  fill_normals(a, b, c, d, e, f, g, h);
}
"""


def numbers_on_host(precision: str, kernel: str | None = None, call: str = _FILL) -> ctypes.CDLL:
    """Compile `fill_normals`, or another kernel that draws, for the host."""
    defines, rest = numbers_source(precision, kernel).split("typedef unsigned long long u64;", 1)
    return _library("\n".join([defines, _BEFORE, "typedef unsigned long long u64;", rest, call]))


@cache
def _library(source: str) -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix=hashlib.sha1(source.encode()).hexdigest()[:8]))
    (folder / "kernel.cpp").write_text(source)
    assert COMPILER is not None
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-Wall", "-Werror"]
    unused = ["-Wno-unused-function", "-Wno-unused-variable"]
    command = [COMPILER, *options, *unused, "kernel.cpp", "-o", "kernel.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(folder / "kernel.so"))


def stepper_of(spec: Specification, task: Task) -> DeviceStepper | None:
    """Return the stepper of a CUDA device with its kernel on the host, for runs that it takes."""
    if not can_run(spec, task):
        return None
    return DeviceStepper(task, torch.device("cpu"), spec.precision, HostKernel)


@contextmanager
def in_place_of_tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let samplers take their steps by the kernel wherever it can."""
    with monkeypatch.context() as patch:
        others = steppers._modules()
        patch.setattr(steppers, "_modules", lambda: [__name__, *others])
        yield
