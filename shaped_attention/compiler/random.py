"""Random numbers as functions of integers, emitted: Threefry's words, normals, chi variables.

`numerics.fills` says which number is where. In double precision two normals come from a pair of
words, and in single precision four. The two sequences differ but have the same law.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.functions import log, sincos_turns
from shaped_attention.compiler.text import Int, Real, Text

PARITY = 0x1BD11BDAA9FC1A22
ROTATIONS = ((16, 42, 12, 31), (16, 32, 24, 21))
"""Rotations of the rounds in alternating groups of four."""

ATTEMPT_SHIFT = 20
"""Bits of the pair index that count chi variables; the bits above count attempts."""

SLOT_SHIFT = 40

_TOGETHER = 4
"""Blocks of words that are made at once: each is a long chain, and processors run several."""


def _signed(word: int) -> int:
    word &= 0xFFFFFFFFFFFFFFFF
    return word - (1 << 64) if word >> 63 else word


def _sum(e: Emitter, a: str, b: str) -> str:
    return e.new(f"add {e.of('i64')} {a}, {b}")


def keys(e: Emitter) -> list[str]:
    """Return the three key words as vectors, from the registers %k0 and %k1."""
    third = e.new("xor i64 %k0, %k1")
    third = e.new(f"xor i64 {third}, {_signed(PARITY)}")
    return [e.splat(x, "i64") for x in ("%k0", "%k1", third)]


def threefry(e: Emitter, key: Sequence[str], c0: str, c1: str) -> tuple[str, str]:
    """Emit the two output words of Threefry-2x64-20 for three key words and two counter words."""
    kind = e.of("i64")
    suffix = "i64" if e.lanes == 1 else f"v{e.lanes}i64"
    x0, x1 = _sum(e, c0, key[0]), _sum(e, c1, key[1])
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x0 = _sum(e, x0, x1)
            turned = e.intrinsic(
                f"llvm.fshl.{suffix}", kind, (kind, x1), (kind, x1), (kind, e.word(bits, 64))
            )
            x1 = e.new(f"xor {kind} {turned}, {x0}")
        x0 = _sum(e, x0, key[(group + 1) % 3])
        x1 = _sum(e, _sum(e, x1, key[(group + 2) % 3]), e.word(group + 1, 64))
    return x0, x1


def uniform(e: Emitter, word: str) -> Real:
    """Emit a number in (0, 1] from the upper 52 bits of a word."""
    kind = e.of("i64")
    upper = e.new(f"lshr {kind} {word}, {e.word(12, 64)}")
    one = e.new(f"or {kind} {upper}, {e.word(0x3FF0000000000000, 64)}")
    return e.fsub(2.0, e.cast("bitcast", one, "i64", "double"))


def _polar(e: Emitter, u: Real, turns: Real) -> tuple[Real, Real]:
    radius = e.sqrt(e.fmul(-2.0, log(e, u)))
    sine, cosine = sincos_turns(e, turns)
    return e.fmul(radius, cosine), e.fmul(radius, sine)


def normal_pair(e: Emitter, x0: str, x1: str) -> tuple[Real, Real]:
    """Emit two independent standard normals in double precision (Box and Muller)."""
    return _polar(e, uniform(e, x0), e.fsub(1.0, uniform(e, x1)))


def _single(e: Emitter, word: str, bits: int, first: float) -> Real:
    """Emit (first + upper bits of a half word) 2^-bits in single precision."""
    kind = e.of("i32")
    upper = e.new(f"lshr {kind} {word}, {e.word(32 - bits, 32)}")
    return e.fmul(e.fadd(e.cast("sitofp", upper, "i32", "float"), first), 2.0**-bits)


def per_block(e: Emitter) -> int:
    """Return how many normals a block of two words gives."""
    return 4 if e.real == "float" else 2


def _normals_of(e: Emitter, x0: str, x1: str) -> list[Real]:
    if e.real == "double":
        return list(normal_pair(e, x0, x1))
    normals: list[Real] = []
    for word in (x0, x1):
        high = e.new(f"lshr {e.of('i64')} {word}, {e.word(32, 64)}")
        low, top = (e.cast("trunc", x, "i64", "i32") for x in (word, high))
        normals += _polar(e, _single(e, low, 31, 1.0), _single(e, top, 24, 0.0))
    return normals


def normals_function(e: Emitter) -> str:
    """Return the function (out, blocks, scale, k0, k1, paths, c0) that fills rows with normals.

    Block b has the first counter word c0 + b; `paths` are the second ones, one for each lane.
    """

    def body(e: Text) -> None:
        assert isinstance(e, Emitter)
        each, key = per_block(e), keys(e)
        c1 = e.load_as("i64", "%paths")
        scale = e.splat("%scale", "double")
        if e.real == "float":
            scale = e.cast("fptrunc", scale, "double", "float")

        def blocks(b: Int, count: int) -> None:
            words = []
            for k in range(count):
                c0 = e.splat(str(e.add(e.add("%c0", b), k)), "i64")
                words.append(threefry(e, key, c0, c1))
            for k, (x0, x1) in enumerate(words):
                row = e.mul(e.add(b, k), each)
                for i, x in enumerate(_normals_of(e, x0, x1)):
                    e.write_row(e.fmul(scale, x), "%out", e.add(row, i))

        with e.in_loops():
            most = e.new("and i64 %blocks, -4")
            e.loop(0, most, _TOGETHER, lambda b, _: blocks(b, _TOGETHER), may_be_empty=True)
            e.loop(most, "%blocks", 1, lambda b, _: blocks(b, 1), may_be_empty=True)

    parameters = [("ptr", "out"), ("i64", "blocks"), ("double", "scale"), *_KEYED]
    return e.shared("normals", parameters, body)


_KEYED = [("i64", "k0"), ("i64", "k1"), ("ptr", "paths"), ("i64", "c0")]


def _proposal(e: Emitter, normal: Real, dof: Real) -> tuple[Real, Real]:
    """Emit the Marsaglia-Tsang proposal (cube, d) for a gamma variable of shape dof / 2 >= 1."""
    d = e.fsub(e.fmul(0.5, dof), 1.0 / 3.0)
    root = e.fadd(1.0, e.fdiv(normal, e.fmul(3.0, e.sqrt(d))))
    return e.fmul(e.fmul(root, root), root), d


def _accepted(e: Emitter, normal: Real, word: str, cube: Real, d: Real) -> str:
    """Emit whether the proposal is accepted: log u < x^2/2 + d (1 - v + log v), v > 0."""
    positive = e.compare("ogt", cube, 0.0)
    safe = e.select(positive, cube, 1.0)
    bound = e.fmul(d, e.fadd(e.fsub(1.0, safe), log(e, safe)))
    bound = e.fadd(e.fmul(e.fmul(0.5, normal), normal), bound)
    return e.both(positive, e.compare("olt", log(e, uniform(e, word)), bound))


def _again_function(e: Emitter) -> str:
    """Return the function (dof, j, k0, k1, path, c0): the first accepted proposal after the zeroth.

    It works on one path; dof is that of variable j.
    """

    def body() -> str:
        head, end = e.label(), e.label()
        key = keys(e)
        odd = e.new("and i64 %j, 1")
        second = e.new(f"icmp ne i64 {odd}, 0")
        pair = e.add("%c0", e.new(f"sub i64 %j, {odd}"))
        begin = e.block
        e.put(f"br label %{head}")
        e.start(head)
        following = f"%{e.label()}"
        attempt = e.new(f"phi i64 [1, %{begin}], [{following}, %{head}]")
        here = e.add(pair, e.new(f"shl i64 {attempt}, {ATTEMPT_SHIFT}"))
        a, b = normal_pair(e, *threefry(e, key, str(here), "%path"))
        w0, w1 = threefry(e, key, str(e.add(here, 1)), "%path")
        normal = e.new(f"select i1 {second}, double {b}, double {a}")
        word = e.new(f"select i1 {second}, i64 {w1}, i64 {w0}")
        cube, d = _proposal(e, normal, "%dof")
        good = _accepted(e, normal, word, cube, d)
        e.put(f"{following} = add i64 {attempt}, 1")
        e.put(f"br i1 {good}, label %{end}, label %{head}")
        e.start(end)
        return str(e.sqrt(e.fmul(e.fmul(2.0, d), cube)))

    parameters = [("double", "dof"), ("i64", "j"), ("i64", "k0"), ("i64", "k1"), ("i64", "path"),
                  ("i64", "c0")]  # fmt: skip
    with e.typed("double", 1), e.in_loops():
        return e.function(parameters, body, ("chi again",), "double")


def chi_function(e: Emitter) -> str:
    """Return the function (out, rows, dof, k0, k1, paths, c0) that fills rows with chi variables.

    Row j has dof - j >= 2 degrees of freedom. The rejection method of Marsaglia and Tsang (ACM TOMS
    26, 2000) is exact; every attempt has its own counter. Two rows share a pair of normals and a
    pair of uniforms. Both types have the numbers of double precision.
    """
    parameters = [("ptr", "out"), ("i64", "rows"), ("double", "dof"), *_KEYED]
    return e.shared("chi", parameters, _chi)


def _chi(e: Text) -> None:
    assert isinstance(e, Emitter)
    again = _again_function(e)
    real, lanes = e.real, e.lanes

    def rejected(row: Int, dof: str, j: Int, mask: str) -> None:
        """Try again, one path after the other."""
        bits = e.bits_of(mask)
        with e.when(e.some(mask)):

            def path(p: Int) -> None:
                with e.when(e.bit(bits, p)):
                    word = e.new(f"load i64, ptr {e.at('%paths', p, 'i64')}, align 8")
                    x = e.new(
                        f"call double @{again}(double {dof}, i64 {j}, i64 %k0, i64 %k1, "
                        f"i64 {word}, i64 %c0)"
                    )
                    if real == "float":
                        x = e.new(f"fptrunc double {x} to float")
                    to = e.at("%out", e.add(e.mul(row, lanes), p), real)
                    e.put(f"store {real} {x}, ptr {to}, align 4")

            e.lanes_loop(path)

    key = keys(e)
    c1 = e.load_as("i64", "%paths")

    def pair(j: Int, _: object) -> None:
        with e.typed("double"):
            words = [
                threefry(e, key, e.splat(str(e.add(e.add("%c0", j), k)), "i64"), c1)
                for k in range(2)
            ]
            normals = normal_pair(e, *words[0])
            values = []
            for k in range(2):
                number = e.new(f"uitofp i64 {e.add(j, k)} to double")
                dof = e.new(f"fsub double %dof, {number}")
                cube, d = _proposal(e, normals[k], e.splat(dof))
                good = _accepted(e, normals[k], words[1][k], cube, d)
                values.append((dof, e.sqrt(e.fmul(e.fmul(2.0, d), cube)), e.no(good)))

        def write(k: int) -> None:
            dof, x, bad = values[k]
            x = x if real == "double" else e.cast("fptrunc", x, "double", "float")
            e.write_row(x, "%out", e.add(j, k))
            rejected(e.add(j, k), dof, e.add(j, k), bad)

        write(0)
        # The second of an odd number is not used; its degrees only have to be enough.
        with e.when(e.new(f"icmp ult i64 {e.add(j, 1)}, %rows")):
            write(1)

    with e.in_loops():
        e.loop(0, "%rows", 2, pair)
