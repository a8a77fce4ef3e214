"""All speed ratios, side by side in one run: ``python -m benchmarks.speed``.

What is compared runs in turns (A B C, C B A, ...) on all cores, so that a disturbance hits all
sides, and a ratio is the median over the rounds of the ratio within a round. Of several variants
of a baseline the one with the lowest median counts. A first round, which compiles, is not counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numba
import numpy as np
import torch
from numpy.typing import NDArray

import shaped_attention as sa
from benchmarks import textbook_sde

CORES = os.cpu_count() or 1
POOL = ThreadPoolExecutor(CORES)
GAMMA, TAU0, TOKENS, STEP, WIDTH = 0.35, 1.0, 4, 0.01, 512
ATTENTION = sa.ShapedAttention(gamma=GAMMA, tau0=TAU0)
MLP = sa.ShapedMLP(gamma=GAMMA, c_plus=0.0, c_minus=-1.0)
MLP_WIDTH = 200

# Random numbers per layer or step, a chi variable counted as one normal.
_BRANCH = TOKENS**2 + TOKENS * (TOKENS + 1) // 2
CHAIN_NUMBERS, SDE_NUMBERS, MLP_NUMBERS = 2 * _BRANCH, _BRANCH, MLP_WIDTH * TOKENS + _BRANCH


@dataclass(frozen=True)
class Task:
    """Something to time: one call of `run` does `units` units of work."""

    name: str
    units: float
    run: Callable[[], object]
    threads: int = CORES


@dataclass(frozen=True)
class Row:
    """A line of the table: seconds per unit, and a ratio with its range over the rounds."""

    what: str
    ours: float
    against: str = ""
    theirs: float | None = None
    ratio: tuple[float, ...] = ()
    goal: str = ""


class Times:
    """Seconds per unit of every task in every round, from running the tasks in turns."""

    def __init__(self, tasks: Sequence[Task], rounds: int) -> None:
        self.seconds: dict[str, NDArray[np.float64]] = {t.name: np.empty(rounds) for t in tasks}
        for i in range(-1, rounds):
            for task in tasks if i % 2 == 0 else reversed(tasks):
                torch.set_num_threads(task.threads)
                start = time.perf_counter()
                task.run()
                if i >= 0:
                    self.seconds[task.name][i] = (time.perf_counter() - start) / task.units
        torch.set_num_threads(CORES)

    def median(self, name: str) -> float:
        """Seconds per unit of one task."""
        return float(np.median(self.seconds[name]))

    def against(
        self, what: str, ours: str, prefix: str, goal: str = "", note: str = "", numbers: int = 0
    ) -> Row:
        """Compare a task with the fastest of those whose names start with `prefix`.

        The ratio is theirs / ours, or ours / (`numbers` of theirs) if theirs makes numbers.
        """
        name = min((n for n in self.seconds if n.startswith(prefix)), key=self.median)
        theirs = (numbers or 1) * self.seconds[name]
        ratios = self.seconds[ours] / theirs if numbers else theirs / self.seconds[ours]
        spread = tuple(float(f(ratios)) for f in (np.median, np.min, np.max))
        label = f"floor: {numbers} normals, {name}" if numbers else name + note
        return Row(what, self.median(ours), label, float(np.median(theirs)), spread, goal)


def start(tokens: int = TOKENS) -> NDArray[np.float64]:
    """The starting covariance of all runs."""
    return np.array(sa.equicorrelated(tokens=tokens, rho=0.2, scale=1.0))


def chain(name: str, layer: sa.Block, width: int, depth: int, samples: int, per: int) -> Task:
    """The package's chain; a unit is `per` layers of a sample."""
    run = partial(sa.simulate_chain, layer, start(), width=width, depth=depth, samples=samples)
    return Task(name, depth * samples / per, run)


def sde(name: str, tokens: int, steps: int, samples: int) -> Task:
    """The package's SDE; a unit is a step of a sample."""
    run = partial(sa.integrate_sde, ATTENTION, start(tokens), step=STEP, samples=samples)
    return Task(name, steps * samples, partial(run, horizon=steps * STEP))


def textbook(tokens: int, steps: int, batch: int, threads: int) -> Task:
    """The textbook's SDE; a unit is a step of a sample."""
    v0 = torch.from_numpy(start(tokens))
    run = partial(textbook_sde.simulate, v0, GAMMA, TAU0, steps * STEP, STEP, batch, seed=0)
    return Task(f"torchsde, batch {batch}, {threads} threads", steps * batch, run, threads)


def together(runs: Sequence[Callable[[], object]], times: int = 1) -> None:
    """Call all functions at once, each on a thread of its own, so many times."""
    list(POOL.map(lambda run: [run() for _ in range(times)], runs))


def plain_network(dtype: torch.dtype, depth: int, batch: int, batches: int, worker: int) -> None:
    """Explicit networks as one writes them in torch: fresh weights in every layer, batched."""
    generator = torch.Generator().manual_seed(worker)
    draw = partial(torch.randn, dtype=dtype, generator=generator)
    root = math.sqrt(WIDTH)
    for _ in range(batches):
        x = draw(batch, TOKENS, WIDTH)
        for _ in range(depth):
            queries, keys, values = (x @ draw(batch, WIDTH, WIDTH) / root for _ in range(3))
            mix = torch.softmax(queries @ keys.mT / (TAU0 * WIDTH), dim=-1) - 1.0 / TOKENS
            x = math.sqrt(1.0 - GAMMA**2) * x + GAMMA * (values + mix @ values)


def networks(depth: int, samples: int) -> list[Task]:
    """Explicit networks; a unit is a sample of WIDTH layers (a few are run)."""
    tasks, units, v0 = [], depth * samples / WIDTH, start()
    for dtype in ("float32", "float64"):
        ours = partial(sa.simulate_network, ATTENTION, v0, width=WIDTH, depth=depth, dtype=dtype)
        name = f"explicit simulate_network {dtype}"
        tasks.append(Task(name, units, partial(ours, samples=samples)))
        plain, name = partial(plain_network, getattr(torch, dtype), depth), f"plain torch {dtype}"
        run: Callable[[], object] = partial(plain, 16, samples // 16, 0)
        tasks.append(Task(f"explicit {name}, batch 16, {CORES} torch threads", units, run))
        # One sample at a time keeps its weights in the cache.
        run = partial(together, [partial(plain, 1, samples // CORES, i) for i in range(CORES)])
        name = f"explicit {name}, batch 1, {CORES} Python threads"
        tasks.append(Task(name, units, run, threads=1))
    return tasks


def normals(count: int) -> list[Task]:
    """Library generators filling one buffer per core; a unit is a normal number."""
    tasks = []
    for dtype, size in itertools.product(("float64", "float32"), (2**15, 2**20)):
        empty = partial(torch.empty, dtype=getattr(torch, dtype))
        fills: dict[str, list[Callable[[], object]]] = {"torch's": [empty(CORES * size).normal_]}
        for core, bits in itertools.product(range(CORES), ("SFC64", "PCG64", "Philox")):
            draw = np.random.Generator(getattr(np.random, bits)(core)).standard_normal
            fill = partial(draw, dtype=dtype, out=empty(size).numpy())
            fills.setdefault(f"numpy {bits}, Python", []).append(fill)
        for core in range(CORES):
            generator = torch.Generator().manual_seed(core)
            fills.setdefault("torch, Python", []).append(
                partial(empty(size).normal_, generator=generator)
            )
        repeats = max(1, count // size)
        for kind, runs in fills.items():
            run = partial(together, runs, repeats)
            name, threads = f"{dtype} {kind} threads, buffer {size}", CORES // len(runs)
            tasks.append(Task(name, CORES * repeats * size, run, threads))
    return tasks


def run_all(quick: bool) -> tuple[list[Row], dict[str, dict[str, float]]]:
    """All measurements: the rows of the table, and the median of everything that was timed."""
    rounds, scale = (3, 8) if quick else (7, 1)
    medians: dict[str, dict[str, float]] = {}

    def timed(title: str, tasks: list[Task], extra: int = 0) -> Times:
        times = Times(tasks, rounds + extra)
        medians[title] = {name: times.median(name) for name in times.seconds}
        return times

    rows, depth = [], 1 if quick else 4
    ours = chain("chain", ATTENTION, WIDTH, WIDTH, 8192 // scale, per=WIDTH)
    times = timed("chain and networks, per sample", [ours, *networks(depth, 32)])
    note, what = f" ({depth} layers, extrapolated)", f"chain, n = L = {WIDTH}, sample"
    for kind, goal in (("", ">= 3000"), (" simulate", ""), (" plain", "")):
        rows.append(times.against(what, "chain", f"explicit{kind}", goal, note))

    widths = [10**k for k in range(2, 7)]
    tasks = [chain(f"n = {n}", ATTENTION, n, 100, 8192 // scale, per=1) for n in widths]
    times = timed("chain, per layer and sample", tasks, extra=8)
    low, high = sorted((times.median(task.name), task.name) for task in tasks)[:: len(tasks) - 1]
    what, note = "chain, n = 10^2, ..., 10^6, layer", f"fastest ({low[1]}) and slowest ({high[1]})"
    rows.append(Row(what, low[0], note, high[0], (high[0] / low[0],), "<= 1.1"))

    batches = {4: (256, 1024, 4096), 8: (64, 256, 2048), 16: (16, 32, 64)}
    for (m, sizes), bound in zip(batches.items(), (8, 40, 200), strict=True):
        steps = 5 if quick else 20
        tasks = [textbook(m, steps, b, t) for b in sizes for t in sorted({1, CORES})]
        times = timed(f"SDE, m = {m}", [sde("ours", m, 20, 2**19 // m**2 // scale), *tasks])
        rows.append(times.against(f"SDE, m = {m}, step", "ours", "torchsde", f">= {bound}"))
    times = timed("SDE, m = 64", [sde("ours", 64, 20, 256 // scale)])
    rows.append(Row("SDE, m = 64, step", times.median("ours")))

    tasks = [
        chain("attention chain, layer", ATTENTION, WIDTH, 128, 8192 // scale, per=1),
        chain(f"MLP chain, n = {MLP_WIDTH}, layer", MLP, MLP_WIDTH, 16, 8192 // scale, per=1),
        sde(f"SDE, m = {TOKENS}, step", TOKENS, 100, 8192 // scale),
    ]
    times = timed("floors", [*tasks, *normals(2**21 // scale)])
    pairs = zip(tasks, (CHAIN_NUMBERS, MLP_NUMBERS, SDE_NUMBERS), strict=True)
    for (task, count), dtype in itertools.product(pairs, ("float64", "float32")):
        rows.append(times.against(task.name, task.name, dtype, numbers=count))
    return rows, medians


def machine() -> dict[str, str]:
    """What ran this, by public means."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    versions = {module.__name__: module.__version__ for module in (torch, np, numba)}
    return {"processor": (models or [platform.processor()])[0], "cores": str(CORES), **versions}


def formatted(seconds: float | None) -> str:
    """A time with three digits and its unit, or nothing."""
    if seconds is None:
        return ""
    power = min(3, max(0, -math.floor(math.log10(seconds) / 3)))
    return f"{seconds * 1000**power:.3g} {('s', 'ms', 'µs', 'ns')[power]}"


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| measured | time | ratio (range) | goal | against | its time |"]
    lines.append("| --- | ---: | ---: | ---: | --- | ---: |")
    for r in rows:
        ratio = " – ".join(f"{x:.3g}" for x in r.ratio[1:])
        ratio = f"{r.ratio[0]:.3g}" + (f" ({ratio})" if ratio else "") if r.ratio else ""
        cells = (r.what, formatted(r.ours), ratio, r.goal, r.against, formatted(r.theirs))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the numbers if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of half a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    options = parser.parse_args()
    rows, medians = run_all(options.quick)
    print(", ".join(f"{name}: {value}" for name, value in machine().items()))
    print(f"\n{table(rows)}")
    if options.json:
        content = {"machine": machine(), "rows": [asdict(r) for r in rows], "medians": medians}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
