"""Emission of a step: a program as code for vectors of paths.

Few tokens and operations are unrolled: values are registers, and what is known to be zero costs
nothing. Other programs are loops with a function for each operation and shape, which heads share
(both measured).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View
from shaped_attention.compiler.text import Real, TooLongError
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.operations.registry import Here, emit_node
from shaped_attention.numerics.program import Layout, Program, Slot

RANDOM = ("normal", "wishart")
"""Operations whose scalars are single numbers, not vectors."""

MOST_ROWS, MOST_OPERATIONS = 6, 4000
"""Rows of an input, and operations of a step, up to which it is unrolled."""


def emitted(
    program: Program, emitter: Callable[..., Emitter], write: Callable[[Emitter], None],
    most_rows: int = MOST_ROWS,
) -> Emitter:  # fmt: skip
    """Return the emitter after `write(e)`, which emits the steps unrolled if they are short.

    `emitter` makes one; its arguments are `rolled` and `limit`.
    """
    if max(rows for rows, _ in program.input_shapes) <= most_rows:
        try:
            e = emitter(rolled=False, limit=MOST_OPERATIONS)
            write(e)
        except TooLongError:
            pass
        else:
            return e
    e = emitter(rolled=True, limit=np.inf)
    write(e)
    return e


class StepEmission:
    """Emission of a program inside a function with %buf, %work, %numbers, %keys and %paths."""

    def __init__(self, e: Emitter, program: Program) -> None:
        self.e, self.program = e, program
        self.layout = Layout(program)

    def results(self) -> list[View]:
        """Emit all operations; return where the results are."""
        e = self.e
        if not e.rolled:
            self._know_zeros()
        for node in self.program.nodes:
            if node.kind in ("input", "constant"):
                continue
            if e.rolled:
                self._called(node)
            else:
                out, inputs = self.layout.view(node), [self.layout.view(x) for x in node.inputs]
                scalars = [self._scalar(node, slot) for slot in self.program.slots(node)]
                emit_node(e, Here(node, out, inputs, scalars, self._key(node)))
        return [self.layout.view(node) for node in self.program.results]

    def _know_zeros(self) -> None:
        """Let zeros of inputs that are lower triangular be known."""
        for node in self.program.inputs:
            if node.lower:
                view = self.layout.view(node)
                for i in range(node.shape[0]):
                    for j in range(i + 1, node.shape[1]):
                        view.store(self.e, 0.0, i, j)

    def _scalar(self, node: Node, slot: Slot) -> Real:
        if isinstance(slot, float):
            return slot
        return self._double(slot) if node.kind in RANDOM else self.e.number("%numbers", slot)

    def _double(self, place: int) -> str:
        return self.e.new(f"load double, ptr {self.e.at('%numbers', place, 'double')}, align 8")

    def _key(self, node: Node) -> tuple[str, str]:
        if node.address is None:
            return "", ""
        place = 2 * self.program.addresses.index(node.address)
        first, second = (
            self.e.new(f"load i64, ptr {self.e.at('%keys', place + k, 'i64')}, align 8")
            for k in range(2)
        )
        return first, second

    def _called(self, node: Node) -> None:
        """Emit an operation as a function, which all operations of the same text share."""
        e = self.e
        slots = self.program.slots(node)
        parameters, arguments = [("ptr", "out")], [("ptr", self._address(self.layout.view(node)))]
        inputs: list[View] = []
        for k, x in enumerate(node.inputs):
            view = self.layout.view(x)
            if x.data is not None:
                inputs.append(view)
                continue
            parameters.append(("ptr", f"a{k}"))
            arguments.append(("ptr", self._address(view)))
            inputs.append(View(f"%a{k}", 0, view.down))
        own = self.layout.view(node)
        if node.kind == "concatenate":
            column = 0
            for k, part in enumerate(node.inputs):
                # A part that is in its place is no input.
                if part.data is None and self.layout.view(part) == own.columns(column):
                    inputs[k] = View("%out", column, own.down)
                column += part.shape[1]
        parameters.append(("ptr", "work"))
        arguments.append(("ptr", "%work"))
        for k, slot in enumerate(slots):
            if isinstance(slot, int):
                parameters.append(("double", f"s{k}"))
                arguments.append(("double", self._double(slot)))
        if node.address is not None:
            parameters += [("i64", "k0"), ("i64", "k1"), ("ptr", "paths")]
            first, second = self._key(node)
            arguments += [("i64", first), ("i64", second), ("ptr", "%paths")]

        def body() -> None:
            scalars: list[Real] = []
            for k, slot in enumerate(slots):
                if isinstance(slot, float):
                    scalars.append(slot)
                elif node.kind in RANDOM:
                    scalars.append(f"%s{k}")
                else:
                    x = f"%s{k}"
                    if e.real == "float":
                        x = e.new(f"fptrunc double {x} to float")
                    scalars.append(e.splat(x))
            emit_node(e, Here(node, View("%out", 0, own.down), inputs, scalars))

        e.call(e.function(parameters, body), *arguments)

    def _address(self, view: View) -> str:
        return self.e.at(view.base, view.offset)
