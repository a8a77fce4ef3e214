"""Functions in the text of LLVM, whose values are vectors with a path in each lane.

The type of the numbers is a parameter: `real` is double or float, and with one lane a vector is a
single number, as a thread of a device has it. A value is the name of a register, or a number of
Python: numbers are folded, so that zeros of triangular matrices and factors of 1 cost nothing.

Code is emitted in one of two ways. *Rolled*, a loop is a loop and a matrix lies in memory.
*Unrolled*, a loop repeats its body, and the entries of matrices are registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from shaped_attention.compiler.llvm import Code, Target, compiled, host

Real: TypeAlias = str | float
"""Register of a vector, or a number that all lanes share."""
Int: TypeAlias = str | int
"""Register of an i64, or a number."""

_BITS = {"double": 64, "float": 32}
EPSILON = {"double": 2.0**-52, "float": 2.0**-23}


def hexadecimal(x: float) -> str:
    """Return a number in the text, as its bits."""
    return f"0x{int(np.float64(x).view(np.uint64)):016X}"


class TooLongError(Exception):
    """More operations than unrolled code may have."""


@dataclass
class _Function:
    """What belongs to the function that is being emitted."""

    lines: list[str] = field(default_factory=list)
    count: int = 0
    block: str = "entry"
    registers: dict[tuple[str, Int], Real] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    work: int = 0


class Text:
    """Text of a module, written one function after another.

    Parameters
    ----------
    real, lanes
        Type of the numbers, and lanes of a vector: by default those that fill a register.
    rolled
        Whether loops are loops.
    limit
        Number of operations after which `TooLongError` is raised.
    whole
        Whether the module has all functions, also those that modules share.
    """

    def __init__(
        self,
        real: str = "double",
        lanes: int | None = None,
        *,
        rolled: bool = True,
        limit: float = float("inf"),
        target: Target | None = None,
        whole: bool = False,
    ) -> None:
        self.target, self.whole = target or host(), whole
        self.common: dict[str, str] = {}
        self.real, self.rolled, self.limit = real, rolled, limit
        self.lanes = self.target.bits // _BITS[real] if lanes is None else lanes
        # Blocks of sums that fill the registers, of which there are 32 of 512 bits, else 16.
        self.high, self.wide = (4, 4) if self.target.bits == 512 else (2, 4)
        self.operations = 0
        self.most_work = 0
        self._here = _Function()
        self._functions: dict[str, str] = {}
        self._names: dict[tuple[object, ...], str] = {}
        self._constants: dict[str, str] = {}
        self._declared: dict[str, str] = {}

    # Types.

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return _BITS[self.real]

    @property
    def vector(self) -> str:
        """Type of a vector of numbers."""
        return self.of(self.real)

    def of(self, kind: str) -> str:
        """Return the type of a vector of elements of a kind, such as i64."""
        return kind if self.lanes == 1 else f"<{self.lanes} x {kind}>"

    @contextmanager
    def typed(self, real: str | None = None, lanes: int | None = None) -> Iterator[None]:
        """Emit with another type of numbers meanwhile."""
        before = self.real, self.lanes
        self.real, self.lanes = real or self.real, lanes or self.lanes
        try:
            yield
        finally:
            self.real, self.lanes = before

    @contextmanager
    def in_loops(self) -> Iterator[None]:
        """Emit rolled code meanwhile; values in registers are not seen there."""
        before, self.rolled = self.rolled, True
        try:
            yield
        finally:
            self.rolled = before

    # Text.

    def put(self, line: str) -> None:
        """Append an instruction without a value."""
        self._here.lines.append("  " + line)

    def new(self, expression: str) -> str:
        """Append an instruction and return the register of its value."""
        self._here.count += 1
        name = f"%t{self._here.count}"
        self._here.lines.append(f"  {name} = {expression}")
        return name

    def label(self) -> str:
        """Return a new label."""
        self._here.count += 1
        return f"l{self._here.count}"

    def start(self, label: str) -> None:
        """Begin a block."""
        self._here.lines.append(f"{label}:")
        self._here.block = label

    @property
    def block(self) -> str:
        """Label of the block that is being emitted."""
        return self._here.block

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, Real | Int]) -> str:
        """Call an intrinsic of LLVM, declared on first use."""
        types = ", ".join(kind for kind, _ in arguments)
        self._declared[name] = f"declare {result} @{name}({types})"
        given = ", ".join(f"{kind} {value}" for kind, value in arguments)
        return self.new(f"call {result} @{name}({given})")

    def function(
        self,
        parameters: Sequence[tuple[str, str]],
        body: Callable[[], str | None],
        key: tuple[object, ...] = (),
        result: str = "void",
        name: str | None = None,
    ) -> str:
        """Emit a function, unless one with this key or this text is there; return its name.

        `body` emits its instructions and returns its value. A function with a name can be called
        from outside.
        """
        known = self._names.get(key) if key else None
        if known is not None:
            return known
        before, self._here = self._here, _Function()
        value = body()
        self.put(f"ret {result} {value}" if value is not None else "ret void")
        text = "\n".join(["entry:", *self._here.lines])
        self.most_work = max(self.most_work, self._here.work)
        self._here = before
        given = ", ".join(f"{kind} %{x}" for kind, x in parameters)
        whole = f"({given}) #0 {{\n{text}\n}}"
        label = name or self._functions.setdefault(result + whole, f"f{len(self._functions)}")
        linkage = "" if name else "internal "
        self._declared[f"define {label}"] = f"define {linkage}{result} @{label}{whole}"
        if key:
            self._names[key] = label
        return label

    def shared(
        self, name: str, parameters: Sequence[tuple[str, str]], body: Callable[[Text], None]
    ) -> str:
        """Return a function that modules share, so that it is compiled once; `body(e)` emits it."""
        label = f"{name}_{self.real}_{self.lanes}_{self.target.label}"
        if self.whole:
            return self.function(parameters, lambda: body(self), (label,))
        if label not in self.common:
            other = type(self)(self.real, self.lanes, target=self.target)
            other.function(parameters, lambda: body(other), name=label)
            self.common[label] = other.module()
            kinds = ", ".join(kind for kind, _ in parameters)
            self._declared[label] = f"declare void @{label}({kinds})"
        return label

    def call(self, name: str, *arguments: tuple[str, Real | Int]) -> None:
        """Call a function without a value."""
        self.put(f"call void @{name}({', '.join(f'{kind} {x}' for kind, x in arguments)})")

    def constant(self, kind: str, entries: Sequence[str]) -> str:
        """Return the address of constant entries."""
        body = f"[{len(entries)} x {kind}] [{', '.join(f'{kind} {x}' for x in entries)}], align 64"
        return self._constants.setdefault(body, f"@c{len(self._constants)}")

    def module(self) -> str:
        """Return the whole text."""
        wide = f'"prefer-vector-width"="{self.target.bits}"'
        legal = f'"min-legal-vector-width"="{self.target.bits}"'
        constants = [f"{x} = internal constant {body}" for body, x in self._constants.items()]
        attributes = f"attributes #0 = {{ nounwind noinline {wide} {legal} }}"
        return "\n".join([*constants, *self._declared.values(), attributes])

    def compiled(self) -> Code:
        """Return the code of the module in this process."""
        return compiled(self.module(), self.target, self.common)

    # Integers.

    def add(self, a: Int, b: Int) -> Int:
        """Return a + b."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0:
            return b
        return a if b == 0 else self.new(f"add i64 {a}, {b}")

    def mul(self, a: Int, b: Int) -> Int:
        """Return a b."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 1:
            return b
        if b == 1:
            return a
        return 0 if a == 0 or b == 0 else self.new(f"mul i64 {a}, {b}")

    def least(self, a: Int, b: Int) -> Int:
        """Return the smaller of two numbers that are not negative."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("llvm.umin.i64", "i64", ("i64", a), ("i64", b))

    def most(self, a: Int, b: Int) -> Int:
        """Return the larger of two numbers that are not negative."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.intrinsic("llvm.umax.i64", "i64", ("i64", a), ("i64", b))

    # Operands.

    def literal(self, x: float) -> str:
        """Return a number of Python in the text, rounded to the type in use."""
        return hexadecimal(float(np.float32(x)) if self.real == "float" else x)

    def value(self, x: Real) -> str:
        """Return a vector as an operand."""
        if isinstance(x, str):
            return x
        text = self.literal(x)
        return text if self.lanes == 1 else f"splat ({self.real} {text})"

    def word(self, x: int, bits: int | None = None) -> str:
        """Return a vector of equal integers as an operand."""
        kind = f"i{bits or self.bits}"
        return str(x) if self.lanes == 1 else f"splat ({kind} {x})"

    # Loops.

    def loop(
        self,
        first: Int,
        end: Int,
        step: int,
        body: Callable[[Int, Sequence[Real]], Sequence[Real] | None],
        sums: Sequence[Real] = (),
        may_be_empty: bool = False,
    ) -> list[Real]:
        """Run `body(i, sums)` for i = first, first + step, ... < end; it returns the new sums."""
        known = isinstance(first, int) and isinstance(end, int)
        if known and (not self.rolled or end - first <= step):  # type: ignore[operator]
            values: Sequence[Real] = sums
            for number in range(first, end, step):  # type: ignore[arg-type]
                values = body(number, values) or ()
            return list(values)
        before, head, after = self.block, self.label(), self.label()
        if may_be_empty:
            some = self.new(f"icmp ult i64 {first}, {end}")
            self.put(f"br i1 {some}, label %{head}, label %{after}")
        else:
            self.put(f"br label %{head}")
        self.start(head)
        lines = self._here.lines
        place = len(lines)
        i = self.new("phi")
        phis = [self.new("phi") for _ in sums]
        new = list(body(i, phis) or ())
        following = self.new(f"add nuw nsw i64 {i}, {step}")
        more = self.new(f"icmp ult i64 {following}, {end}")
        latch = self.block
        self.put(f"br i1 {more}, label %{head}, label %{after}")
        lines[place] = f"  {i} = phi i64 [{first}, %{before}], [{following}, %{latch}]"
        for k, (phi, a, b) in enumerate(zip(phis, sums, new, strict=True)):
            pair = f"[{self.value(a)}, %{before}], [{self.value(b)}, %{latch}]"
            lines[place + 1 + k] = f"  {phi} = phi {self.vector} {pair}"
        self.start(after)
        if may_be_empty and sums:
            return [
                self.new(
                    f"phi {self.vector} [{self.value(a)}, %{before}], [{self.value(b)}, %{latch}]"
                )
                for a, b in zip(sums, new, strict=True)
            ]
        return new

    def pieces(
        self, count: int, size: int, body: Callable[[Int, int], None], first: Int = 0
    ) -> None:
        """Run `body(i, size)` for blocks of that size, and smaller ones for the rest.

        The first block begins at `first`, which is the end of a block.
        """
        main = count - count % size
        if isinstance(first, str) or first < main:
            self.loop(first, main, size, lambda i, _: body(i, size), may_be_empty=first != 0)
            first = main
        while first < count:
            here = 2 if count - first >= 2 and size > 2 else 1
            body(first, here)
            first += here

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Emit instructions that run only if an i1 is true."""
        inside, after = self.label(), self.label()
        self.put(f"br i1 {condition}, label %{inside}, label %{after}")
        self.start(inside)
        yield
        self.put(f"br label %{after}")
        self.start(after)

    def lanes_loop(self, body: Callable[[Int], None]) -> None:
        """Run `body(p)` for each lane, one after the other."""
        with self.in_loops():
            self.loop(0, self.lanes, 1, lambda p, _: body(p))
