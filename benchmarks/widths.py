"""Time networks, chain and SDE against the width: ``python -m benchmarks.widths --json FILE``.

Everything runs on one thread, and what counts is its processor time: other work on the machine
slows the clock on the wall more. Calls are made larger until one takes 0.3 s, so that what
a call costs whatever its size is shared by many layers. Of several rounds the median counts.
``figures/speed.py`` draws figures/speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Before NumPy and the package, which read them when they are loaded.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

import shaped_attention as sa
from benchmarks.speed import machine

GAMMA, TOKENS, STEP = 0.35, 4, 0.01
LAYERS: dict[str, Any] = {
    "attention": sa.ShapedAttention(GAMMA),
    "attention and MLP": [sa.ShapedAttention(GAMMA), sa.ShapedMLP(GAMMA)],
}
V0 = sa.equicorrelated(TOKENS, 0.2)
TILE = 64
"""Paths that compiled code takes at once: fewer take as long."""

LEAST = 0.3
"""Seconds of processor time of a call that is counted."""


def seconds(run: Callable[..., object], units: int, samples: int, rounds: int) -> list[float]:
    """Return the processor time per unit and sample, by round; `run` takes a number of samples.

    That number is doubled from `samples` on.
    """

    def timed(samples: int) -> float:
        start = time.process_time()
        run(samples=samples)
        return time.process_time() - start

    timed(samples)  # compiles
    while timed(samples) < LEAST:
        samples *= 2
    return [timed(samples) / (samples * units) for _ in range(rounds)]


def measure(widths: list[int], rounds: int) -> list[dict[str, Any]]:
    """Return the times of a layer of networks and chains, and of a step of the SDE."""
    rows = []
    for name, layer in LAYERS.items():
        shared: dict[str, Any] = {"progress": False, "radius": 1e9}
        steps = 16
        tasks: list[tuple[str, int | None, int, Callable[..., object]]] = [
            ("sde", None, steps, partial(sa.integrate_sde, layer, V0, horizon=steps * STEP,
                                         step=STEP, method="direct", **shared))
        ]  # fmt: skip
        for width in widths:
            for sampler, run, depth, more in (
                ("network", sa.simulate_network, 4 if width <= 1024 else 1, {"dtype": "float32"}),
                ("chain", sa.simulate_chain, 64, {}),
            ):
                call = partial(run, layer, V0, width=width, depth=depth, **more, **shared)
                tasks.append((sampler, width, depth, call))
        for sampler, of, units, call in tasks:
            low, middle, high = np.quantile(
                seconds(call, units, 1 if sampler == "network" else TILE, rounds), [0.0, 0.5, 1.0]
            ).tolist()
            rows.append({"sampler": sampler, "layer": name, "width": of, "seconds": middle,
                         "fastest": low, "slowest": high})  # fmt: skip
            print(f"{sampler:8} {name:18} {of or '':>6} {middle:.3g} s", flush=True)
    return rows


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write the numbers if `--json` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024, 2048, 4096]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to write the numbers to")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    content = {
        "machine": machine(), "threads": 1, "gamma": GAMMA, "tau0": 1.0, "tokens": TOKENS,
        "step": STEP, "rounds": options.rounds, "times": measure(options.widths, options.rounds),
    }  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
