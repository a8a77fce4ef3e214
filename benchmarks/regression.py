"""Time this tree against an earlier commit: ``python -m benchmarks.regression --against COMMIT``.

Both trees run in turns, each measurement in its own process on one thread, so that a disturbance
affects both sides. A ratio is the median over the rounds of the ratio within a round. Without
`--against`, only ratios within this tree are printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]

TIMER = """
import json, sys, time
import torch
torch.set_num_threads(1)
import shaped_attention as sa
def attention(**o): return sa.ShapedAttention(gamma=0.35, tau0=1.0, **o)
mlp = sa.ShapedMLP(gamma=0.35)
causal = attention(heads=4, output_projection=True, mask="causal")
CASES = {
    "chain, m = 4": (4, attention(), 512, 200, 1024),
    "chain, m = 8": (8, attention(), 512, 100, 512),
    "chain, m = 16": (16, attention(), 512, 50, 128),
    "chain, 4 heads, W_O": (4, attention(heads=4, output_projection=True), 512, 100, 1024),
    "chain, 4 heads": (4, attention(heads=4), 512, 100, 1024),
    "chain, MLP": (4, mlp, 256, 25, 1024),
    "chain, causal, 4 heads, W_O, MLP": (4, [causal, mlp], 256, 25, 1024),
    "SDE, m = 4": (4, attention(), None, 200, 1024),
    "SDE, m = 8": (8, attention(), None, 100, 512),
    "SDE, m = 16": (16, attention(), None, 50, 128),
    "SDE, causal": (4, attention(mask="causal"), None, 100, 1024),
}
times = {}
for name in json.loads(sys.argv[1]):
    m, layer, width, steps, samples = CASES[name]
    v0 = sa.equicorrelated(m, 0.2)
    def run(steps=steps):
        if width is None:
            return sa.integrate_sde(
                layer, v0, horizon=0.01 * steps, step=0.01, samples=samples, progress=False,
                method="torchsde")
        return sa.simulate_chain(
            layer, v0, width=width, depth=steps, samples=samples, progress=False)
    run(2)
    best = []
    for _ in range(3):
        began = time.perf_counter()
        run()
        best.append(time.perf_counter() - began)
    times[name] = min(best) / steps / samples
print(json.dumps(times))
"""

BOTH = ("chain, m = 4", "chain, m = 8", "chain, m = 16", "SDE, m = 4", "SDE, m = 8", "SDE, m = 16")
WITHIN = {
    "chain, 4 heads, W_O": ("chain, m = 4", 4.5),
    "chain, 4 heads": ("chain, m = 4", 5.0),
    "chain, causal, 4 heads, W_O, MLP": ("chain, MLP", 1.5),
    "SDE, causal": ("SDE, m = 4", 2.0),
}
"""Members of the family, the case of this tree that they are compared with, and the goal."""


def measure(tree: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Return seconds per step and sample of some cases, from a separate process in a tree."""
    done = subprocess.run(
        [sys.executable, "-c", TIMER, json.dumps(names)],
        cwd=tree, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def report(name: str, ours: list[float], theirs: list[float], against: str, goal: float) -> None:
    """Print a row: microseconds, the median ratio and its range, and the goal."""
    ratios = np.array(ours) / np.array(theirs)
    print(
        f"{name:34s} {1e6 * np.median(ours):8.3f} µs  {np.median(ratios):6.2f} times {against} "
        f"({ratios.min():.2f} to {ratios.max():.2f}; goal {goal})"
    )


def main() -> None:
    """Measure, and print a row per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="earlier commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    everything = (*BOTH, "chain, MLP", *WITHIN)
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
                    theirs.append(measure(old, BOTH))
        finally:
            if options.against:
                remove = ["git", "worktree", "remove", "--force", str(old)]
                subprocess.run(remove, cwd=ROOT, check=True)
    for name in BOTH if options.against else ():
        pair = [x[name] for x in ours], [x[name] for x in theirs]
        report(name, *pair, options.against, 1.1)
    for name, (other, goal) in WITHIN.items():
        report(name, [x[name] for x in ours], [x[other] for x in ours], other, goal)


if __name__ == "__main__":
    main()
