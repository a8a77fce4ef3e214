"""Time batch runs: what a unit costs besides its sampling, opening a file, a second worker.

`python -m benchmarks.sweeps` (some minutes; `--units 100000` for a large file). Bookkeeping is the
wall time of a run less the time that its units took, which their rows hold.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from shaped_attention.sweep import Sweep, open_sweep, run_sweep, sweep_status
from shaped_attention.sweep.file import SweepFile

SMALL = {"layer": "attention", "tokens": 2, "rho": 0.2, "width": 20, "depth": 2}
LARGE = {"layer": "attention", "tokens": 4, "rho": 0.2, "width": 300, "depth": 300}


def grid(fixed: dict[str, object], units: int, block: int) -> Sweep:
    """Return a sweep of the chain in 20 cells, with this number of units in all."""
    axes = {"gamma": [0.02 * k for k in range(1, 21)]}
    return Sweep(fixed, axes, samplers=("chain",), samples=units // 20 * block, block=block)


def run(sweep: Sweep, path: Path, workers: int = 1) -> tuple[float, float]:
    """Return the wall time of a run, and the sum of the times of its units."""
    began = time.perf_counter()
    run_sweep(sweep, path, workers=workers, progress=False)
    wall = time.perf_counter() - began
    with SweepFile(path) as file:
        return wall, sum(seconds for _, seconds, _ in file.units())


def timed(function: object, *arguments: object) -> float:
    """Return the median time of three calls."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        function(*arguments)  # type: ignore[operator]
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=10_000)
    units = parser.parse_args().units
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run(grid(SMALL, 20, 4), folder / "warm.sweep")
        path = folder / "small.sweep"
        wall, own = run(grid(SMALL, units, 4), path)
        print(
            f"{units} units of 4 samples: {wall:.1f} s, of which sampling {own:.1f} s; bookkeeping "
            f"{1e3 * (wall - own) / units:.3f} ms a unit; {path.stat().st_size / 2**20:.1f} MiB"
        )
        print(f"open_sweep: {timed(open_sweep, path):.2f} s")
        print(f"sweep_status: {timed(sweep_status, path):.2f} s")
        sweep = grid(LARGE, 200, 1024)
        walls = {1: 0.0, 2: 0.0}
        for workers in walls:
            run(grid(LARGE, 40, 32), folder / f"begin{workers}.sweep", workers)
            walls[workers] = statistics.median(
                run(sweep, folder / f"{workers}-{turn}.sweep", workers)[0] for turn in range(3)
            )
        print(
            f"200 units of 1024 samples, median of 3: this process, on all threads, {walls[1]:.1f} "
            f"s; two processes, with their start, {walls[2]:.1f} s, ratio {walls[1] / walls[2]:.2f}"
        )


if __name__ == "__main__":
    main()
