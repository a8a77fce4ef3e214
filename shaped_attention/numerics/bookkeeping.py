"""Bookkeeping of vectors of paths, emitted: which move, where they stop, their counters and times.

The functions work on registers and on places in memory that all steps have: %buf with the state in
its first rows, %paths with the second counter words, %times and %radii.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Int, Real


def load_mask(e: Emitter, address: str) -> str:
    """Return which lanes a vector of bytes allows."""
    x = e.load_as("i8", address)
    return e.new(f"icmp ne {e.of('i8')} {x}, {e.word(0, 8)}")


def store_words(e: Emitter, samples: str, steps: str) -> None:
    """Store the second counter words of the paths: sample and step."""
    high = e.new(f"shl {e.of('i64')} {samples}, {e.word(32, 64)}")
    e.store_as("i64", e.new(f"or {e.of('i64')} {high}, {steps}"), "%paths")


def count_paths(e: Emitter, first: Int, step: Int) -> None:
    """Store the second counter words of consecutive paths in a step."""
    samples = e.new(f"add {e.of('i64')} {e.splat(str(first), 'i64')}, {e.lane_numbers()}")
    store_words(e, samples, e.splat(str(step), "i64"))


def store_time(e: Emitter, step: Int) -> None:
    """Store the time of a step of equal length."""
    number = e.new(f"sitofp i64 {step} to double")
    time = e.splat(e.new(f"fmul double {number}, %dt"), "double")
    e.store_as("double", time, "%times")


def store_radius(e: Emitter) -> None:
    """Store the same radius for all lanes."""
    x = "%radius" if e.real == "double" else e.new("fptrunc double %radius to float")
    e.write_row(e.splat(x), "%radii", 0)


def stop_outside(e: Emitter, outside: str, alive: str, stopped: str) -> None:
    """Stop the moving lanes outside their radii, at their times."""
    places = (alive, stopped, "%buf", "%radii", "%times")
    e.call(outside, *(("ptr", x) for x in places))


def copy_rows(e: Emitter, a: str, b: str, rows: int) -> None:
    """Copy rows from a to b."""
    e.loop(0, rows, 1, lambda i, _: e.write_row(e.load_row(a, i), b, i))


def squares(e: Emitter, base: str, rows: int) -> Real:
    """Emit the sum of squares of rows, as four sums."""
    most = rows - rows % 4

    def four(i: Int, sums: Sequence[Real]) -> list[Real]:
        values = [e.load_row(base, e.add(i, k)) for k in range(4)]
        return [e.fma(x, x, total) for x, total in zip(values, sums, strict=True)]

    a, b, c, d = e.loop(0, most, 4, four, [0.0] * 4)
    for i in range(most, rows):
        x = e.load_row(base, i)
        a = e.fma(x, x, a)
    return e.fadd(e.fadd(a, b), e.fadd(c, d))


def one_of(e: Emitter, number: Int, calls: Sequence[Callable[[], None]]) -> None:
    """Emit the call whose place is `number` modulo their count."""
    if len(calls) == 1:
        calls[0]()
        return
    which = e.new(f"urem i64 {number}, {len(calls)}")
    labels, after = [e.label() for _ in calls], e.label()
    cases = " ".join(f"i64 {k}, label %{label}" for k, label in enumerate(labels))
    e.put(f"switch i64 {which}, label %{after} [ {cases} ]")
    for label, call in zip(labels, calls, strict=True):
        e.start(label)
        call()
        e.put(f"br label %{after}")
    e.start(after)


def stop(e: Emitter, alive: str, stopped: str, times: str, mask: str) -> None:
    """Stop the lanes of a mask at their times."""

    def body() -> None:
        def lane(p: Int) -> None:
            with e.when(e.bit("%mask", p)):
                e.put(f"store i8 0, ptr {e.at('%alive', p, 'i8')}, align 1")
                time = e.new(f"load double, ptr {e.at('%times', p, 'double')}, align 8")
                e.put(f"store double {time}, ptr {e.at('%stopped', p, 'double')}, align 8")

        e.lanes_loop(lane)

    parameters = [("ptr", "alive"), ("ptr", "stopped"), ("ptr", "times"), (f"i{e.lanes}", "mask")]
    with e.in_loops():
        function = e.function(parameters, body, ("stop", e.lanes))
    given = alive, stopped, times, e.bits_of(mask)
    e.call(function, *((kind, x) for (kind, _), x in zip(parameters, given, strict=True)))
