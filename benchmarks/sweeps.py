"""Time batch runs: the standard grid, the cost of bookkeeping, and the gain of a second worker.

`python -m benchmarks.sweeps` (about ten minutes; one minute with `--quick`). The ratio is one of
medians of three.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from shaped_attention.sweep import InProcess, Processes, Sweep, run_sweep
from shaped_attention.sweep.engines import Engine
from shaped_attention.sweep.store import Store

FIXED = {"layer": "attention", "tokens": 4, "rho": 0.2, "width": 300, "depth": 300, "step": 0.01}


def grid(samples: int) -> Sweep:
    """Return the 6 x 6 grid of gamma and tau_0, chain and SDE."""
    axes = {
        "gamma": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
        "tau0": [0.5, 0.66, 0.87, 1.15, 1.52, 2.0],
    }
    return Sweep(fixed=FIXED, axes=axes, samples=samples)


def small_units(units: int, samples: int, keep: str = "observables") -> Sweep:
    """Return a sweep of `units` small units: blocks of a few samples of the chain, n = L = 300."""
    axes = {"gamma": [0.02 * k for k in range(1, 21)]}
    per_cell = units // 20
    return Sweep(
        fixed=FIXED | {"tau0": 1.0}, axes=axes, samplers=("chain",), samples=per_cell * samples,
        block=samples, keep=keep,
    )  # fmt: skip


def timed(sweep: Sweep, engine: Engine, folder: Path) -> tuple[float, float]:
    """Return the wall time of a run, and the sum of the times of its units."""
    began = time.perf_counter()
    run_sweep(sweep, folder, engine=engine, progress=False)
    wall = time.perf_counter() - began
    return wall, sum(Store(folder).finished().values())


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller runs")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        timed(small_units(20, 32), InProcess(), root / "warm")
        wall, _ = timed(grid(512 if quick else 4096), InProcess(), root / "grid")
        print(f"6 x 6 grid, n = L = 300, m = 4, chain and SDE: {wall:.1f} s")
        units = 1_000 if quick else 10_000
        for samples in (256, 1024):
            wall, own = timed(small_units(units, samples), InProcess(), root / f"small{samples}")
            print(
                f"{units} units of {samples} samples ({own / units * 1e3:.1f} ms each): "
                f"{wall:.1f} s, bookkeeping {(wall - own) / units * 1e3:.2f} ms per unit, "
                f"{100 * (wall - own) / wall:.1f} % of the time"
            )
        times: dict[int, list[float]] = {1: [], 2: []}
        engines = {workers: Processes(workers) for workers in times}
        sweep = small_units(200 if quick else 1_000, 4096)
        for workers, engine in engines.items():
            timed(small_units(40, 32), engine, root / f"begin{workers}")
        for turn in range(3):
            for workers, engine in engines.items():
                wall, _ = timed(sweep, engine, root / f"scaling{workers}-{turn}")
                times[workers].append(wall)
        for engine in engines.values():
            engine.close()
        one, two = (statistics.median(times[workers]) for workers in (1, 2))
        print(f"processes, median of 3: one {one:.1f} s, two {two:.1f} s, ratio {one / two:.2f}")


if __name__ == "__main__":
    main()
