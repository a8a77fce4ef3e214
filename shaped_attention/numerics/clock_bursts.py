"""Emission of steps by the clock, in which each path has its own time and length of a step.

Paths are gathered into vectors, take a few steps, and are scattered again: the few near an
explosion, which take many steps, do not hold up the others.
"""

from __future__ import annotations

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.functions import exp
from shaped_attention.compiler.matrices import View, entries
from shaped_attention.compiler.text import Int
from shaped_attention.numerics.bookkeeping import load_mask, squares, stop_outside, store_words
from shaped_attention.numerics.emission import Emission, typed

BURST = typed(
    "active state left grid taken alive stopped largest slots stored", "radius dt shift near",
    "first target found count steps row",
)  # fmt: skip
"""Arguments of `Mover.burst`: arrays, numbers and integers."""


def write_burst(m: Emission, e: Emitter) -> None:
    """Emit `Mover.burst`; the programs are the speed, a step, and the variance rate of log |V|."""
    size, lanes = m.size, e.lanes

    def keep(results: list[View]) -> None:
        """Leave one number in %lane."""
        e.write_row(results[0].load(e, 0, 0), "%lane", 0)

    def replace(results: list[View]) -> None:
        """Take the step, unless it overflows; %lane has the mask of those that move."""
        shape = m.state_shapes[0]
        old = View("%buf", 0, shape[1])
        total = m.sum(e, shape, False, lambda i, j: results[0].load(e, i, j))
        mask = m.stop_overflowing(e, total, load_mask(e, "%moving"), "%moving", "%stops", "%times")
        entries(e, shape, lambda i, j: e.write_row(
            e.select(mask, results[0].load(e, i, j), old.load(e, i, j)), "%buf",
            old.row(e, i, j),
        ))  # fmt: skip

    speed = m.step(e, 0, keep, "lane")
    step = m.step(e, 1, replace, "moving", "stops", "times")
    spread = m.step(e, 2, keep, "lane")
    outside = m.outside(e)

    def body() -> None:
        fields = {name: e.new(f"alloca [{lanes} x i64], align 64") for name in (
            "left", "grid", "taken", "largest", "stops", "numbers",
        )}  # fmt: skip
        moving = e.new(f"alloca [{lanes} x i8], align 64")
        arrived_at = e.new(f"alloca [{lanes} x i8], align 64")
        e.loop(0, "%found", lanes, lambda start, _: block(start, fields, moving, arrived_at))

    def load(kind: str, base: str, i: Int) -> str:
        size = 1 if kind == "i8" else 8
        return e.new(f"load {kind}, ptr {e.at(base, i, kind)}, align {size}")

    def store(kind: str, x: str, base: str, i: Int) -> None:
        size = 1 if kind == "i8" else 8
        e.put(f"store {kind} {x}, ptr {e.at(base, i, kind)}, align {size}")

    def copy_state(p: Int, base: str, first: Int, out: bool) -> None:
        """Copy the state in lane p to a place in memory, or back."""

        def entry(j: Int, _: object) -> None:
            here, there = ("%buf", e.add(e.mul(j, lanes), p)), (base, e.add(first, j))
            source, target = (here, there) if out else (there, here)
            store("double", load("double", *source), *target)

        e.loop(0, size, 1, entry)

    arrays = (("left", "double"), ("grid", "i64"), ("taken", "i64"), ("largest", "double"))

    def block(start: Int, lane: dict[str, str], moving: str, arrived_at: str) -> None:
        here = e.least(e.new(f"sub i64 %found, {start}"), lanes)

        def gather(p: Int) -> None:
            last = e.least(p, e.new(f"sub i64 {here}, 1"))
            i = load("i64", "%active", e.add(start, last))
            store("i64", i, lane["numbers"], p)
            inside = e.new(f"icmp ult i64 {p}, {here}")
            store("i8", e.new(f"zext i1 {inside} to i8"), moving, p)
            store("double", "0x7FF0000000000000", lane["stops"], p)
            for name, kind in arrays:
                store(kind, load(kind, f"%{name}", i), lane[name], p)
            copy_state(p, "%state", e.mul(i, size), out=False)

        def scatter(p: Int) -> None:
            with e.when(e.new(f"icmp ult i64 {p}, {here}")):
                i = load("i64", lane["numbers"], p)
                for name, kind in arrays:
                    store(kind, load(kind, lane[name], p), f"%{name}", i)
                copy_state(p, "%state", e.mul(i, size), out=True)
                stop = load("double", lane["stops"], p)
                with e.when(e.new(f"fcmp une double {stop}, 0x7FF0000000000000")):
                    store("i8", "0", "%alive", i)
                    store("double", stop, "%stopped", i)

        e.lanes_loop(gather)
        e.loop(0, "%steps", 1, lambda _, __: one_step(lane, moving, arrived_at))
        e.lanes_loop(scatter)

    def one_step(lane: dict[str, str], moving: str, arrived_at: str) -> None:
        with e.when(e.some(load_mask(e, moving))):
            take_step(lane, moving, arrived_at)

    def take_step(lane: dict[str, str], moving: str, arrived_at: str) -> None:
        m.call_step(e, speed, 0, "%row", "%lane")
        found = e.load_row("%lane", 0)
        mask = load_mask(e, moving)
        with e.typed("double"):
            dt = e.splat("%dt")
            left, most = (e.load_as("double", lane[x]) for x in ("left", "largest"))
            most = e.select(e.both(mask, e.compare("ogt", found, most)), found, most)
            e.store_as("double", str(most), lane["largest"])
            pieces = e.floor(e.fadd(e.fdiv(e.fmul(left, e.fadd(1.0, found)), dt), 0.5))
            pieces = e.select(e.compare("ogt", pieces, 1.0), pieces, 1.0)
            length = e.fdiv(left, pieces)
            used = e.select(mask, length, 0.0)
            grid = e.load_as("i64", lane["grid"])
            at_grid = e.fmul(e.cast("sitofp", grid, "i64", "double"), dt)
            now = e.fadd(at_grid, e.fsub(dt, left))
            e.store_as("double", str(now), "%times")
        e.write_row(used, "%buf", size)
        taken = e.load_as("i64", lane["taken"])
        numbers = e.load_as("i64", lane["numbers"])
        store_words(e, e.new(f"add {e.of('i64')} {numbers}, {e.splat('%first', 'i64')}"), taken)
        m.call_step(e, step, 1, "%row", moving, lane["stops"], "%times")
        mask = load_mask(e, moving)
        one = e.new(f"zext {e.of('i1')} {mask} to {e.of('i64')}")
        e.store_as("i64", e.new(f"add {e.of('i64')} {taken}, {one}"), lane["taken"])
        with e.typed("double"):
            arrived = e.both(mask, e.compare("oeq", pieces, 1.0))
            step_of_grid = e.new(f"zext {e.of('i1')} {arrived} to {e.of('i64')}")
            grid = e.new(f"add {e.of('i64')} {grid}, {step_of_grid}")
            e.store_as("i64", grid, lane["grid"])
            rest = e.select(mask, e.fsub(left, length), left)
            e.store_as("double", str(e.select(arrived, dt, rest)), lane["left"])
            there = e.fmul(e.cast("sitofp", grid, "i64", "double"), dt)
            later = e.select(arrived, there, e.fadd(now, length))
            e.store_as("double", str(e.select(mask, later, now)), "%times")
        trace = squares(e, "%buf", size)
        radius = e.splat("%radius")
        close_to = e.fmul(e.splat("%near"), radius)
        close = e.both(mask, e.compare("oge", trace, close_to))
        with e.when(e.some(close)):
            m.call_step(e, spread, 2, "%row", "%lane")
            rate = e.load_row("%lane", 0)
            with e.typed("double"):
                deviation = e.sqrt(e.fmul(rate, length))
                power = exp(e, e.neg(e.fmul(e.splat("%shift"), deviation)))
                lowered = e.fmul(e.splat("%radius"), power)
            # A path must not depend on those that share its vector.
            near = e.compare("oge", trace, close_to)
            e.write_row(e.select(near, lowered, radius), "%radii", 0)
            stop_outside(e, outside, moving, lane["stops"])
        mask = load_mask(e, moving)
        stored = e.both(mask, arrived)
        with e.when(e.some(stored)):
            e.store_as("i8", e.new(f"zext {e.of('i1')} {stored} to {e.of('i8')}"), arrived_at)

            def keep_state(p: Int) -> None:
                with e.when(e.new(f"icmp ne i8 {load('i8', arrived_at, p)}, 0")):
                    slot = load("i64", "%slots", load("i64", lane["grid"], p))
                    with e.when(e.new(f"icmp sge i64 {slot}, 0")):
                        i = load("i64", lane["numbers"], p)
                        to = e.mul(e.add(e.mul(slot, "%count"), i), size)
                        copy_state(p, "%stored", to, out=True)

            e.lanes_loop(keep_state)
        behind = e.new(f"icmp slt {e.of('i64')} {grid}, {e.splat('%target', 'i64')}")
        left_over = e.both(mask, behind)
        e.store_as("i8", e.new(f"zext {e.of('i1')} {left_over} to {e.of('i8')}"), moving)

    m.function(e, BURST, body)
