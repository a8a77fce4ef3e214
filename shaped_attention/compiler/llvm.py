"""Text of LLVM to code in this process, once for each text."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from typing import Any

import llvmlite.binding as llvm

_LEVEL = 2
"""Level of code generation. Passes over the text gain less than they cost (measured)."""

_lock = threading.Lock()
_programs: dict[tuple[Target, bytes], Code] = {}
_shared: dict[str, Code] = {}


@dataclass(frozen=True)
class Target:
    """A processor: its name and features as LLVM has them."""

    cpu: str
    features: str

    def has(self, feature: str) -> bool:
        """Return whether the processor has a feature such as 'fma'."""
        return f"+{feature}" in self.features.split(",")

    @cached_property
    def label(self) -> str:
        """A name for functions of this processor."""
        return blake2b(f"{self.cpu} {self.features}".encode(), digest_size=4).hexdigest()

    @cached_property
    def bits(self) -> int:
        """Bits of its widest vectors."""
        return 512 if self.has("avx512f") else 256 if self.has("avx2") else 128

    @cached_property
    def fused(self) -> bool:
        """Whether it multiplies and adds in one instruction; x86 says so, others all do."""
        return self.has("fma") or not self.has("sse2")


@cache
def host() -> Target:
    """Return the processor of this process, or a smaller one: SHAPED_ATTENTION_CPU=name:features.

    Code for the smaller one runs here as it would there.
    """
    asked = os.environ.get("SHAPED_ATTENTION_CPU")
    if asked:
        name, _, features = asked.partition(":")
        return Target(name, features)
    return Target(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


class Code:
    """Functions in memory, by name; they release the interpreter lock while they run."""

    def __init__(self, text: str, target: Target) -> None:
        module = llvm.parse_assembly(text)
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=_LEVEL, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def function(self, name: str, *types: Any) -> Callable[..., None]:
        """Return a function without a result, of arguments of these types of ctypes."""
        return ctypes.CFUNCTYPE(None, *types)(self.address(name))

    def address(self, name: str) -> int:
        """Return the address of a function."""
        return int(self._engine.get_function_address(name))


@cache
def _ready() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def compiled(text: str, target: Target, common: Mapping[str, str] | None = None) -> Code:
    """Return the code of a text, which is kept for as long as the process runs.

    `common` has the texts of functions that other modules use too, by name.
    """
    with _lock:
        _ready()
        for name, shared in (common or {}).items():
            if name not in _shared:
                _shared[name] = Code(shared, target)
                llvm.add_symbol(name, _shared[name].address(name))
        key = target, blake2b(text.encode()).digest()
        if key not in _programs:
            _programs[key] = Code(text, target)
        return _programs[key]
