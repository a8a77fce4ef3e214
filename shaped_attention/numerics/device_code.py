"""Code for devices, where each thread has a path, or a pair of normals.

It is the text that CPUs run, with one lane. On a CPU the threads run one after the other, which
shows that the text is right where there is no device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.llvm import compiled, host
from shaped_attention.compiler.ptx import DEVICE, Kernel, kernel
from shaped_attention.compiler.random import keys, normal_pair, threefry
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.emission import OWN, TYPES, Emission, Parameters, typed
from shaped_attention.numerics.fixed_steps import STEP, write_steps
from shaped_attention.numerics.mover import Mover
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Depths
from shaped_attention.numerics.step import emitted

_MOST_ROWS = 4
"""Rows of an input up to which steps are unrolled: more values than registers would be spilled."""


def threads(
    e: Emitter, parameters: Parameters, body: Callable[[], None], on_device: bool
) -> tuple[str, list[Any]]:
    """Return the text of `kernel` (parameters, count), and the types of the parameters.

    `body` emits what the thread %number does; `kernel` does it for all numbers below the count.
    """
    with e.in_loops():
        e.function([("i64", "number"), *parameters], body, name="thread")

        def each() -> None:
            given = [(kind, f"%{name}") for kind, name in parameters]
            e.loop(0, "%count", 1, lambda k, _: e.call("thread", ("i64", k), *given))

        if not on_device:
            e.function([*parameters, ("i64", "count")], each, name="kernel")
    text = e.module() + (kernel(parameters) if on_device else "")
    return text, [TYPES[kind] for kind, _ in parameters]


def _loaded(text: str, types: list[Any], on_device: bool) -> Callable[..., None]:
    if on_device:
        return Kernel(text, types)
    return compiled(text, host()).function("kernel", *types, ctypes.c_int64)


class DeviceSteps:
    """Steps of equal length of paths on a device: `mover.Mover.advance`, a path in each thread.

    The device is that of the tensors, of the kind cuda, or cpu; the others are as for
    `mover.Mover`.
    """

    def __init__(
        self, programs: Sequence[Program], key: Callable[[Any], Any], depths: Depths, dtype: Any,
        factors: int, device: torch.device,
    ) -> None:  # fmt: skip
        self.dtype, self._device = np.dtype(dtype), device
        self._programs, self._factors = list(programs), factors
        code = Mover(programs, key, depths, dtype, factors)
        self._stride, arrays = code.stride, (code.table, code.keys.view(np.int64))
        self._table, self._keys = (torch.from_numpy(x).to(device) for x in arrays)
        self._run: dict[bool, Callable[..., None]] = {}

    def text(self, adding: bool, on_device: bool) -> tuple[str, list[Any]]:
        """Return the text of the kernel, and the types of its parameters."""
        real = "double" if self.dtype == np.float64 else "float"
        target = DEVICE if on_device else host()
        emission = Emission(self._programs, self.dtype, self._factors)
        e = emitted(
            self._programs[0],
            lambda rolled, limit: Emitter(
                real, 1, rolled=rolled, limit=limit, target=target, whole=True
            ),
            partial(write_steps, emission, adding=adding),
            _MOST_ROWS,
        )
        parameters = [*OWN[:2], *(x for x in STEP if x[1] != "blocks")]

        def body() -> None:
            places = [e.new(f"alloca [{max(1, size)} x {kind}], align 64") for kind, size in (
                (real, emission.rows), (real, e.most_work), ("i64", 1), ("double", 1), (real, 1),
                ("double", 1),
            )]  # fmt: skip
            own = {
                "state": e.at("%state", e.mul("%number", emission.size), real),
                "alive": e.at("%alive", "%number", "i8"),
                "stopped": e.at("%stopped", "%number", "double"),
                "first": e.add("%first", "%number"),
                "blocks": 1,
            }
            e.call(
                "run", ("ptr", "%table"), ("ptr", "%keys"), *(("ptr", x) for x in places),
                *((kind, own.get(name, f"%{name}")) for kind, name in STEP),
            )  # fmt: skip

        return threads(e, parameters, body, on_device)

    def advance(
        self, state: Tensor, alive: Tensor, stopped: Tensor, radius: float, dt: float, first: int,
        begin: int, end: int, adding: bool,
    ) -> None:  # fmt: skip
        """Take the paths through the steps begin, ..., end - 1.

        `state` (paths, size), `alive` and `stopped` (paths,) are changed in place.
        """
        if adding not in self._run:
            on_device = self._device.type == "cuda"
            self._run[adding] = _loaded(*self.text(adding, on_device), on_device)
        pointers = (x.data_ptr() for x in (self._table, self._keys, state, alive, stopped))
        self._run[adding](*pointers, radius, dt, first, begin, end, self._stride, len(alive))


@cache
def _fill(on_device: bool) -> Callable[..., None]:
    e = Emitter(lanes=1, target=DEVICE if on_device else host())

    def body() -> None:
        sample, pair = (e.new(f"{how} i64 %number, %pairs") for how in ("udiv", "urem"))
        path = e.new(f"load i64, ptr {e.at('%paths', sample, 'i64')}, align 8")
        both = normal_pair(e, *threefry(e, keys(e), str(e.add("%c0", pair)), path))
        for k, x in enumerate(both):
            e.write_row(x, "%out", e.add(e.mul("%number", 2), k))

    parameters = typed("out paths", "", "k0 k1 c0 pairs")
    return _loaded(*threads(e, parameters, body, on_device), on_device)


def fill_pairs(out: Tensor, key: NDArray[np.uint64], paths: Tensor, counter: int) -> None:
    """Write pairs of normals into `out` (samples, pairs, 2), float64, as `fills.fill_normals` does.

    The first pair has the first counter word `counter`; `paths` (samples,) are the second words.
    """
    samples, pairs, _ = out.shape
    k0, k1 = key.view(np.int64).tolist()
    _fill(out.device.type == "cuda")(
        out.data_ptr(), paths.data_ptr(), k0, k1, counter, pairs, samples * pairs
    )
