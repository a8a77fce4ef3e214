"""Text of LLVM to code of a CUDA device, a path in each thread, through the driver's own interface.

Llvmlite has LLVM's NVPTX target, so the text that runs on CPUs with one lane runs here too. The
driver turns PTX into code. Memory is torch's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import llvmlite.binding as llvm

from shaped_attention.compiler.llvm import Target
from shaped_attention.libraries import torch

DEVICE = Target("sm_80", "+ptx70")
"""The oldest devices that the code is for; the driver adapts it to newer ones."""

_THREADS = 64
"""Threads of a block: their values fill the registers."""

_NUMBER = """
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @kernel({parameters}, i64 %count) {{
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %n = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %start = mul i32 %b, %n
  %wide = add i32 %start, %t
  %number = zext i32 %wide to i64
  %in = icmp ult i64 %number, %count
  br i1 %in, label %inside, label %outside
inside:
  call void @thread(i64 %number, {parameters})
  br label %outside
outside:
  ret void
}}
"""
"""A kernel that calls the function `thread` with the number of the thread."""


def kernel(parameters: Sequence[tuple[str, str]]) -> str:
    """Return the text of a kernel that calls `thread` (number, parameters) in each thread."""
    return _NUMBER.format(parameters=", ".join(f"{kind} %{name}" for kind, name in parameters))


def ptx(text: str, target: Target = DEVICE) -> str:
    """Return the PTX of a text."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=target.cpu, features=target.features, opt=2
    )
    module = llvm.parse_assembly(f'target triple = "nvptx64-nvidia-cuda"\n{text}')
    module.data_layout = str(machine.target_data)
    return str(machine.emit_assembly(module))


def _checked(result: tuple[Any, ...]) -> Any:
    """Return what a function of the driver returns besides its status."""
    status, *values = result
    if int(status):
        raise RuntimeError(f"the CUDA driver reports {status.name}")
    return values[0] if values else None


class Kernel:
    """The function `kernel` of a text, on the current device."""

    def __init__(self, text: str, types: Sequence[Any]) -> None:
        from cuda.bindings import driver

        self._driver, self._types = driver, (*types, ctypes.c_int64)
        torch.cuda.current_stream()  # creates the context of the device if needed
        module = _checked(driver.cuModuleLoadData(ptx(text).encode() + b"\0"))
        self._function = _checked(driver.cuModuleGetFunction(module, b"kernel"))

    def __call__(self, *arguments: Any) -> None:
        """Start as many threads as the last argument says, on torch's stream."""
        blocks = -(-arguments[-1] // _THREADS)
        stream = torch.cuda.current_stream().cuda_stream
        given = (arguments, self._types)
        _checked(
            self._driver.cuLaunchKernel(
                self._function, blocks, 1, 1, _THREADS, 1, 1, 0, stream, given, 0
            )
        )


@cache
def available() -> bool:
    """Return whether the driver's interface is installed."""
    return find_spec("cuda") is not None and find_spec("cuda.bindings") is not None
