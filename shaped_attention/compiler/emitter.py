"""Arithmetic on vectors, and their memory: the words in which all code is emitted."""

from __future__ import annotations

from shaped_attention.compiler.text import Int, Real, Text, TooLongError


class Emitter(Text):
    """Text of a module, with vectors of numbers."""

    # Vectors.

    def _two(self, name: str, a: Real, b: Real) -> str:
        self._operation()
        return self.new(f"{name} nsz {self.vector} {self.value(a)}, {self.value(b)}")

    def _operation(self) -> None:
        self.operations += 1
        if not self.rolled and self.operations > self.limit:
            raise TooLongError

    def fadd(self, a: Real, b: Real) -> Real:
        """Return a + b."""
        if a == 0.0:
            return b
        return a if b == 0.0 else self._two("fadd", a, b)

    def fsub(self, a: Real, b: Real) -> Real:
        """Return a - b."""
        return a if b == 0.0 else self._two("fsub", a, b)

    def fmul(self, a: Real, b: Real) -> Real:
        """Return a b."""
        if a == 0.0 or b == 0.0:
            return 0.0
        if a == 1.0:
            return b
        return a if b == 1.0 else self._two("fmul", a, b)

    def fdiv(self, a: Real, b: Real) -> Real:
        """Return a / b."""
        return self._two("fdiv", a, b)

    def neg(self, a: Real) -> Real:
        """Return -a."""
        return -a if isinstance(a, float) else self.new(f"fneg {self.vector} {a}")

    def fma(self, a: Real, b: Real, c: Real) -> Real:
        """Return a b + c, rounded once where the processor can."""
        if a == 0.0 or b == 0.0:
            return c
        if c == 0.0:
            return self.fmul(a, b)
        if a == 1.0:
            return self.fadd(b, c)
        if b == 1.0:
            return self.fadd(a, c)
        if not self.target.fused:
            return self.fadd(self.fmul(a, b), c)
        self._operation()
        return self._intrinsic("fma", a, b, c)

    def _intrinsic(self, name: str, *values: Real) -> str:
        suffix = f"f{self.bits}" if self.lanes == 1 else f"v{self.lanes}f{self.bits}"
        given = [(self.vector, self.value(x)) for x in values]
        return self.intrinsic(f"llvm.{name}.{suffix}", self.vector, *given)

    def sqrt(self, a: Real) -> Real:
        """Return the square root."""
        self._operation()
        return self._intrinsic("sqrt", a)

    def absolute(self, a: Real) -> Real:
        """Return |a|."""
        return abs(a) if isinstance(a, float) else self._intrinsic("fabs", a)

    def floor(self, a: Real) -> Real:
        """Return the largest integer that is not larger."""
        return self._intrinsic("floor", a)

    def compare(self, how: str, a: Real, b: Real) -> str:
        """Return a mask; `how` is LLVM's, such as ogt."""
        return self.new(f"fcmp {how} {self.vector} {self.value(a)}, {self.value(b)}")

    def select(self, mask: str, a: Real, b: Real) -> str:
        """Return a where the mask is true, and b elsewhere."""
        return self.new(
            f"select {self.of('i1')} {mask}, {self.vector} {self.value(a)}, "
            f"{self.vector} {self.value(b)}"
        )

    def larger(self, a: Real, b: Real) -> Real:
        """Return the larger of two numbers, b if one is not a number."""
        self._operation()
        return self.select(self.compare("ogt", a, b), a, b)

    def sign(self, x: Real) -> Real:
        """Return 1, 0 or -1, or what is not a number."""
        below = self.select(self.compare("olt", x, 0.0), -1.0, x)
        return self.select(self.compare("ogt", x, 0.0), 1.0, below)

    def both(self, a: str, b: str) -> str:
        """Return where both masks are true."""
        return self.new(f"and {self.of('i1')} {a}, {b}")

    def no(self, a: str) -> str:
        """Return where a mask is false."""
        true = "true" if self.lanes == 1 else "splat (i1 true)"
        return self.new(f"xor {self.of('i1')} {a}, {true}")

    def bits_of(self, mask: str) -> str:
        """Return a mask as an integer with a bit for each lane."""
        if self.lanes == 1:
            return mask
        return self.new(f"bitcast {self.of('i1')} {mask} to i{self.lanes}")

    def bit(self, bits: str, lane: Int) -> str:
        """Return one of these bits as an i1."""
        if self.lanes == 1:
            return bits
        place = self.new(f"trunc i64 {lane} to i{self.lanes}")
        shifted = self.new(f"lshr i{self.lanes} {bits}, {place}")
        return self.new(f"trunc i{self.lanes} {shifted} to i1")

    def some(self, mask: str) -> str:
        """Return an i1: whether the mask is true anywhere."""
        return (
            mask if self.lanes == 1 else self.new(f"icmp ne i{self.lanes} {self.bits_of(mask)}, 0")
        )

    def cast(self, how: str, x: Real | str, before: str, after: str) -> str:
        """Convert between types of elements, such as 'bitcast' from double to i64."""
        return self.new(f"{how} {self.of(before)} {x} to {self.of(after)}")

    def to_bits(self, x: Real) -> str:
        """Return the bits of numbers."""
        return self.cast("bitcast", self.value(x), self.real, f"i{self.bits}")

    def from_bits(self, x: str) -> str:
        """Return the numbers with these bits."""
        return self.cast("bitcast", x, f"i{self.bits}", self.real)

    def splat(self, x: str, kind: str | None = None) -> str:
        """Return a vector of equal elements."""
        kind = kind or self.real
        if self.lanes == 1:
            return x
        one = self.new(f"insertelement {self.of(kind)} poison, {kind} {x}, i64 0")
        return self.new(
            f"shufflevector {self.of(kind)} {one}, {self.of(kind)} poison, "
            f"<{self.lanes} x i32> zeroinitializer"
        )

    def total(self, x: Real) -> Real:
        """Return the sum of all lanes, as a single number."""
        if self.lanes == 1:
            return x
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f{self.bits}"
        zero = (self.real, self.literal(0.0))
        return self.intrinsic(name, self.real, zero, (self.vector, self.value(x)))

    def lane_numbers(self) -> str:
        """Return the vector 0, 1, ... of integers."""
        numbers = ", ".join(f"i64 {k}" for k in range(self.lanes))
        return "0" if self.lanes == 1 else f"<{numbers}>"

    def load_as(self, kind: str, address: str) -> str:
        """Load a vector of elements of a kind, such as i64."""
        size = {"i8": 1}.get(kind, 8)
        return self.new(f"load {self.of(kind)}, ptr {address}, align {size}")

    def store_as(self, kind: str, x: str, address: str) -> None:
        """Store a vector of elements of a kind."""
        size = {"i8": 1}.get(kind, 8)
        self.put(f"store {self.of(kind)} {x}, ptr {address}, align {size}")

    # Memory.

    def at(self, base: str, index: Int, kind: str | None = None) -> str:
        """Return the address of an element, by default of a vector of numbers."""
        if index == 0:
            return base
        return self.new(f"getelementptr inbounds {kind or self.vector}, ptr {base}, i64 {index}")

    def load_row(self, base: str, row: Int) -> Real:
        """Return a row of memory, one lane for each path."""
        if not self.rolled and (base, row) in self._here.registers:
            return self._here.registers[base, row]
        x = self.new(f"load {self.vector}, ptr {self.at(base, row)}, align {self.bits // 8}")
        if not self.rolled:
            self._here.registers[base, row] = x
        return x

    def store_row(self, x: Real, base: str, row: Int) -> None:
        """Write a row of memory; unrolled, it stays in a register."""
        if self.rolled:
            self.write_row(x, base, row)
        else:
            self._here.registers[base, row] = x

    def write_row(self, x: Real, base: str, row: Int) -> None:
        """Write a row of memory in any case."""
        self.put(
            f"store {self.vector} {self.value(x)}, ptr {self.at(base, row)}, align {self.bits // 8}"
        )

    def forget(self, base: str, first: int, count: int) -> None:
        """Let registers go whose rows a function has written."""
        for row in range(first, first + count):
            self._here.registers.pop((base, row), None)

    def number(self, base: str, index: Int) -> str:
        """Return a double in memory as a vector of the type in use."""
        known = f"{base} {index} {self.vector} {self._here.block}"
        if known not in self._here.numbers:
            x = self.new(f"load double, ptr {self.at(base, index, 'double')}, align 8")
            x = x if self.real == "double" else self.new(f"fptrunc double {x} to float")
            self._here.numbers[known] = self.splat(x)
        return self._here.numbers[known]

    def take(self, rows: int) -> int:
        """Return the first of new rows of the memory that the function has for its work."""
        self._here.work += rows
        return self._here.work - rows
