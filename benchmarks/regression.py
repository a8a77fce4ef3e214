"""Time this tree against an earlier commit: ``python -m benchmarks.regression --against COMMIT``.

Both trees run in turns, each measurement in its own process on one thread, so that a disturbance
affects both sides; times are processor times, imports apart. A ratio is the median over the
rounds of the ratio within a round. Without `--against`, only ratios within this tree are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]

TIMER = """
import json, sys, tempfile, time, warnings
import torch
torch.set_num_threads(1)
import shaped_attention as sa
from shaped_attention.sweep import Sweep
warnings.simplefilter("ignore")
def attention(**o): return sa.ShapedAttention(gamma=0.35, tau0=1.0, **o)
mlp = sa.ShapedMLP(gamma=0.35)
causal = attention(heads=4, output_projection=True, mask="causal")
# Tokens, layer, width or method, steps, samples.
CASES = {
    "chain, m = 4": (4, attention(), 512, 200, 1024),
    "chain, m = 8": (8, attention(), 512, 100, 512),
    "chain, m = 16": (16, attention(), 512, 50, 128),
    "chain, m = 128": (128, attention(), 1024, 20, 8),
    "chain, 4 heads, W_O": (4, attention(heads=4, output_projection=True), 512, 100, 1024),
    "chain, 4 heads": (4, attention(heads=4), 512, 100, 1024),
    "chain, MLP": (4, mlp, 256, 25, 1024),
    "chain, causal, 4 heads, W_O, MLP": (4, [causal, mlp], 256, 25, 1024),
    "SDE, m = 4": (4, attention(), "torchsde", 75, 4096),
    "SDE, m = 8": (8, attention(), "torchsde", 100, 512),
    "SDE, m = 16": (16, attention(), "torchsde", 50, 128),
    "SDE, causal": (4, attention(mask="causal"), "torchsde", 75, 4096),
    "SDE, direct, m = 4": (4, attention(), "direct", 75, 4096),
    "SDE, direct, m = 128": (128, attention(), "direct", 10, 8),
    "clock, m = 4": (4, attention(), "clock", 75, 4096),
    "clock, m = 8": (8, attention(), "clock", 30, 1024),
    "clock, m = 128": (128, attention(), "clock", 5, 8),
}
def sweep(units):
    axes = {"gamma": [0.05 * k for k in range(1, 1 + units)]}
    fixed = {"layer": "attention", "tokens": 4, "rho": 0.2, "width": 64, "depth": 64, "tau0": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        grid = Sweep(fixed=fixed, axes=axes, samplers=("chain",), samples=80, block=16)
        sa.run_sweep(grid, folder + "/grid.sweep", progress=False)
def sampled(name, steps=None):
    m, layer, how, whole, samples = CASES[name]
    steps = steps or whole
    size = {"samples": samples, "progress": False, "keep": "observables"}
    v0 = sa.equicorrelated(m, 0.2)
    if isinstance(how, str):
        return sa.integrate_sde(layer, v0, horizon=0.01 * steps, step=0.01, method=how, **size)
    return sa.simulate_chain(layer, v0, width=how, depth=steps, **size)
times = {}
for name in json.loads(sys.argv[1]):
    if name.startswith("sweep"):
        count, begin, run = 100, lambda: sweep(1), lambda: sweep(20)
    else:
        count = CASES[name][3] * CASES[name][4]
        begin, run = (lambda name=name: sampled(name, 2)), (lambda name=name: sampled(name))
    begin()
    best = []
    for _ in range(3):
        began = time.process_time()
        run()
        best.append(time.process_time() - began)
    times[name] = min(best) / count
print(json.dumps(times))
"""

BOTH = {
    "chain, m = 4": 1.05,
    "chain, m = 8": 1.05,
    "chain, m = 16": 1.05,
    "chain, m = 128": 1.05,
    "chain, MLP": 1.05,
    "SDE, m = 4": 1.05,
    "SDE, m = 8": 1.05,
    "SDE, m = 16": 1.05,
    "SDE, direct, m = 4": 1.05,
    "SDE, direct, m = 128": 1.05,
    "clock, m = 4": 1.05,
    "clock, m = 8": 1.05,
    "clock, m = 128": 1.05,
    "sweep, a unit": 1.1,
}
"""Cases that are compared with the earlier commit, and the goals of the ratios."""

PROCESSES = {
    "import": ("-c", "import shaped_attention"),
    "--help": ("-m", "shaped_attention", "--help"),
}
"""What a new process does that is timed as a whole; it should not become slower."""

WITHIN = {
    "chain, 4 heads, W_O": ("chain, m = 4", 4.5),
    "chain, 4 heads": ("chain, m = 4", 5.0),
    "chain, causal, 4 heads, W_O, MLP": ("chain, MLP", 1.5),
    "SDE, causal": ("SDE, m = 4", 2.0),
}
"""Members of the family, the case of this tree that they are compared with, and the goal."""


def measure(tree: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Return seconds per step and sample (or unit, or process) of some cases of a tree."""

    def run(*arguments: str) -> str:
        # The tree comes first, whatever the environment has installed.
        environment = os.environ | {"PYTHONPATH": str(tree)}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tree, env=environment, check=True,
            capture_output=True, text=True,
        ).stdout  # fmt: skip

    times: dict[str, float] = json.loads(run("-c", TIMER, json.dumps(names)))
    for name, arguments in PROCESSES.items():
        best = []
        for _ in range(3):
            began = time.perf_counter()
            run(*arguments)
            best.append(time.perf_counter() - began)
        times[name] = min(best)
    return times


def report(name: str, ours: list[float], theirs: list[float], against: str, goal: float) -> None:
    """Print a row: microseconds, the median ratio and its range, and the goal."""
    ratios = np.array(ours) / np.array(theirs)
    print(
        f"{name:34s} {1e6 * np.median(ours):11.3f} µs  {np.median(ratios):7.3f} times {against} "
        f"({ratios.min():.2f} to {ratios.max():.2f}; goal {goal})"
    )


def main() -> None:
    """Measure, and print a row per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="earlier commit to compare with")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases that begin with TEXT")
    options = parser.parse_args()
    both = {name: goal for name, goal in BOTH.items() if name.startswith(options.only)}
    within = {} if options.only else WITHIN
    everything = (*both, *within)
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        if options.against:
            add = ["git", "worktree", "add", "--detach", str(old), options.against]
            subprocess.run(add, cwd=ROOT, check=True, capture_output=True)
        try:
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(measure(ROOT, everything))
                if options.against:
                    theirs.append(measure(old, tuple(both)))
        finally:
            if options.against:
                remove = ["git", "worktree", "remove", "--force", str(old)]
                subprocess.run(remove, cwd=ROOT, check=True)
    for name, goal in (both | dict.fromkeys(PROCESSES, 1.0)).items() if options.against else ():
        report(name, [x[name] for x in ours], [x[name] for x in theirs], options.against, goal)
    for name, (other, goal) in within.items():
        report(name, [x[name] for x in ours], [x[other] for x in ours], other, goal)


if __name__ == "__main__":
    main()
