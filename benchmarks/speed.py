"""Measure all speed ratios in one run: ``python -m benchmarks.speed``.

Compared tasks run in turns (A B C, C B A, ...) on all cores, so that a disturbance affects all
sides. A ratio is the median over the rounds of the ratio within a round. Of several variants of a
baseline the one with the lowest median counts. A first round, which compiles, is not counted.
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
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite
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
STARTS = {m: sa.equicorrelated(tokens=m, rho=0.2, scale=1.0) for m in (4, 8, 16, 64)}

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
    """Seconds per unit of every task in every round, measured in turns."""

    def __init__(self, tasks: Sequence[Task], rounds: int) -> None:
        self.seconds: dict[str, NDArray[np.float64]] = {t.name: np.empty(rounds) for t in tasks}
        for i in range(-1, rounds):
            for task in tasks if i % 2 == 0 else reversed(tasks):
                torch.set_num_threads(task.threads)
                start = time.perf_counter()
                with warnings.catch_warnings():
                    # One of thousands of paths of the textbook's length may leave the radius.
                    warnings.filterwarnings("ignore", message=".* reached the radius with a fixed")
                    task.run()
                if i >= 0:
                    self.seconds[task.name][i] = (time.perf_counter() - start) / task.units
        torch.set_num_threads(CORES)

    def median(self, name: str) -> float:
        """Return the median seconds per unit of one task."""
        return float(np.median(self.seconds[name]))

    def against(
        self, what: str, ours: str, prefix: str, goal: str = "", note: str = "", numbers: int = 0
    ) -> Row:
        """Compare with the fastest task `prefix`...: its time / ours, or ours / `numbers` of it."""
        name = min((n for n in self.seconds if n.startswith(prefix)), key=self.median)
        theirs = (numbers or 1) * self.seconds[name]
        ratios = self.seconds[ours] / theirs if numbers else theirs / self.seconds[ours]
        spread = tuple(float(f(ratios)) for f in (np.median, np.min, np.max))
        label = f"floor: {numbers} normals, {name}" if numbers else name + note
        return Row(what, self.median(ours), label, float(np.median(theirs)), spread, goal)


def chain(name: str, layer: sa.Block, width: int, depth: int, samples: int, per: int) -> Task:
    """Return the task of the package's chain; a unit is `per` layers of a sample."""
    run = partial(sa.simulate_chain, layer, STARTS[TOKENS], width=width, depth=depth)
    return Task(name, depth * samples / per, partial(run, samples=samples))


def sde(name: str, tokens: int, steps: int, samples: int, method: str = "torchsde") -> Task:
    """Return the task of the package's SDE; a unit is a step of a sample."""
    run = partial(
        sa.integrate_sde, ATTENTION, STARTS[tokens], step=STEP, samples=samples, method=method
    )
    return Task(name, steps * samples, partial(run, horizon=steps * STEP))


def together(runs: Sequence[Callable[[], object]], times: int = 1) -> None:
    """Call all functions at once, each `times` times on its own thread."""
    list(POOL.map(lambda run: [run() for _ in range(times)], runs))


def plain_network(dtype: torch.dtype, depth: int, batch: int, batches: int, worker: int) -> None:
    """Run explicit networks as one writes them in torch: fresh weights in every layer, batched."""
    generator = torch.Generator().manual_seed(worker)
    draw = partial(torch.randn, dtype=dtype, generator=generator)
    for _ in range(batches):
        x = draw(batch, TOKENS, WIDTH)
        for _ in range(depth):
            queries, keys, values = (x @ draw(batch, WIDTH, WIDTH) / WIDTH**0.5 for _ in range(3))
            mix = torch.softmax(queries @ keys.mT / (TAU0 * WIDTH), dim=-1) - 1.0 / TOKENS
            x = math.sqrt(1.0 - GAMMA**2) * x + GAMMA * (values + mix @ values)


def networks(depth: int, samples: int) -> list[Task]:
    """Return the tasks of explicit networks; a unit is a sample of WIDTH layers (few are run)."""
    tasks, units = [], depth * samples / WIDTH
    ours = partial(sa.simulate_network, ATTENTION, STARTS[TOKENS], width=WIDTH, depth=depth)
    for dtype in ("float32", "float64"):
        run: Callable[[], object] = partial(ours, samples=samples, dtype=dtype)
        tasks.append(Task(f"explicit simulate_network {dtype}", units, run))
        plain, name = partial(plain_network, getattr(torch, dtype), depth), "explicit plain torch"
        run = partial(plain, 16, samples // 16, 0)
        tasks.append(Task(f"{name} {dtype}, batch 16, {CORES} torch threads", units, run))
        # One sample at a time keeps its weights in the cache.
        run = partial(together, [partial(plain, 1, samples // CORES, i) for i in range(CORES)])
        tasks.append(Task(f"{name} {dtype}, batch 1, {CORES} Python threads", units, run, 1))
    return tasks


def normals(count: int) -> list[Task]:
    """Return tasks in which library generators fill one buffer per core; a unit is a normal."""
    tasks = []
    for dtype, size in itertools.product(("float64", "float32"), (2**15, 2**20)):
        empty = partial(torch.empty, dtype=getattr(torch, dtype))
        fills: dict[str, list[Callable[[], Any]]] = {"torch's": [empty(CORES * size).normal_]}
        for core, bits in itertools.product(range(CORES), ("SFC64", "PCG64", "Philox")):
            draw = np.random.Generator(getattr(np.random, bits)(core)).standard_normal
            fill: Callable[[], Any] = partial(draw, dtype=dtype, out=empty(size).numpy())
            fills.setdefault(f"numpy {bits}, Python", []).append(fill)
        for core in range(CORES):
            fill = partial(empty(size).normal_, generator=torch.Generator().manual_seed(core))
            fills.setdefault("torch, Python", []).append(fill)
        repeats = max(1, count // size)
        for kind, runs in fills.items():
            run = partial(together, runs, repeats)
            name, threads = f"{dtype} {kind} threads, buffer {size}", CORES // len(runs)
            tasks.append(Task(name, CORES * repeats * size, run, threads))
    return tasks


def run_all(quick: bool) -> tuple[list[Row], dict[str, Times]]:
    """Run all measurements; return the rows of the table, and everything that was timed."""
    rounds, scale, depth, steps = (3, 8, 1, 5) if quick else (5, 1, 4, 50)
    rows, done = [], {}

    def timed(title: str, tasks: list[Task], extra: int = 0) -> Times:
        done[title] = Times(tasks, rounds + extra)
        return done[title]

    ours = chain("chain", ATTENTION, WIDTH, WIDTH, 8192 // scale, per=WIDTH)
    times = timed("chain and networks, per sample", [ours, *networks(depth, 16 * CORES)])
    note, what = f" ({depth} layers, extrapolated)", f"chain, n = L = {WIDTH}, sample"
    for kind, aim in (("", ">= 3000"), (" plain", "")):
        rows.append(times.against(what, "chain", f"explicit{kind}", aim, note))

    tasks = [chain(f"n = {10**k}", ATTENTION, 10**k, 100, 8192 // scale, 1) for k in range(2, 7)]
    times = timed("chain, per layer and sample", tasks, extra=8)
    low, high = sorted((times.median(task.name), task.name) for task in tasks)[:: len(tasks) - 1]
    what, note = "chain, n = 10^2, ..., 10^6, layer", f"fastest ({low[1]}) and slowest ({high[1]})"
    rows.append(Row(what, low[0], note, high[0], (high[0] / low[0],), "<= 1.1"))

    for m, goal, sizes in (4, 8, (256, 1024, 4096)), (8, 40, (64, 256, 2048)), (16, 200, (16, 64)):
        book = partial(textbook_sde.simulate, torch.tensor(STARTS[m]), GAMMA, TAU0, steps * STEP)
        tasks = [
            Task(f"torchsde, batch {b}, {t} threads", steps * b, partial(book, STEP, b, seed=0), t)
            for b, t in itertools.product(sizes, sorted({1, CORES}))
        ]
        samples = 2**19 // m**2 // scale
        ours = [sde(name, m, steps, samples, name) for name in ("torchsde", "direct")]
        times = timed(f"SDE, m = {m}", [*ours, *tasks])
        rows.append(times.against(f"SDE, m = {m}, step", "torchsde", "torchsde, ", f">= {goal}"))
        rows.append(times.against(f"SDE, m = {m}, step, direct", "direct", "torchsde, ", ""))
    times = timed("SDE, m = 64", [sde("ours", 64, steps, 256 // scale)])
    rows.append(Row("SDE, m = 64, step", times.median("ours")))

    size, what = 8192 // scale, f"MLP chain, n = {MLP_WIDTH}, layer"
    numbers = {
        chain("attention chain, layer", ATTENTION, WIDTH, 128, size, per=1): CHAIN_NUMBERS,
        chain(what, MLP, MLP_WIDTH, 16, size, per=1): MLP_NUMBERS,
        sde(f"SDE, m = {TOKENS}, step", TOKENS, 100, size): SDE_NUMBERS,
    }
    times = timed("floors", [*numbers, *normals(2**21 // scale)])
    for (task, count), dtype in itertools.product(numbers.items(), ("float64", "float32")):
        rows.append(times.against(task.name, task.name, dtype, numbers=count))
    return rows, done


def machine() -> dict[str, str]:
    """Return the processor, the number of cores and the versions of libraries."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    versions = {module.__name__: module.__version__ for module in (torch, np, llvmlite)}
    return {"processor": (models or [platform.processor()])[0], "cores": str(CORES), **versions}


def table(rows: Sequence[Row]) -> str:
    """Return the rows in Markdown."""

    def duration(seconds: float) -> str:
        power = min(3, max(0, -math.floor(math.log10(seconds) / 3)))
        return f"{seconds * 1000**power:.3g} {('s', 'ms', 'µs', 'ns')[power]}"

    head = "| measured | time | ratio (range) | goal | against | its time |"
    lines = [head, "| --- | ---: | ---: | ---: | --- | ---: |"]
    for r in rows:
        ratio, *ends = [f"{x:.3g}" for x in r.ratio] or [""]
        ratio += f" ({ends[0]} – {ends[1]})" if ends else ""
        theirs = duration(r.theirs) if r.theirs else ""
        cells = (r.what, duration(r.ours), ratio, r.goal, r.against, theirs)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write the numbers if `--json` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="smoke run of half a minute, without ratios"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to write all numbers to")
    options = parser.parse_args()
    rows, done = run_all(options.quick)
    if options.quick:
        print("A smoke run: its samples are too few for ratios, which are left out.\n")
        rows = [replace(row, ratio=(), goal="") for row in rows]
    print(", ".join(f"{k}: {v}" for k, v in machine().items()), table(rows), sep="\n\n")
    if options.json:
        medians = {k: {name: t.median(name) for name in t.seconds} for k, t in done.items()}
        content = {"machine": machine(), "rows": [asdict(r) for r in rows], "medians": medians}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
