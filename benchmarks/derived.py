"""Time derived chains against the same chains written by hand: ``python -m benchmarks.derived``.

The layers are those of `tests/test_derived_roots.py`, where both have the same paths. They run in
turns; a ratio is the median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

import shaped_attention as sa
from benchmarks.speed import STARTS, Task, Times
from tests.test_derived_roots import LAYERS

TOKENS, WIDTH, DEPTH = 4, 200, 100


def measured(rounds: int, samples: int, text: str) -> dict[str, float]:
    """Return, for each layer whose name contains the text, the ratio of the two times."""
    ratios = {}
    for name in [name for name in LAYERS if text in name]:
        runs = [
            partial(
                sa.simulate_chain, layer, STARTS[TOKENS], width=WIDTH, depth=DEPTH,
                samples=samples, progress=False,
            )
            for layer in LAYERS[name]
        ]  # fmt: skip
        times = Times([Task(str(k), 1.0, run) for k, run in enumerate(runs)], rounds).seconds
        ratios[name] = float(np.median(times["0"] / times["1"]))
        print(f"{name:50} {ratios[name]:5.2f}", flush=True)
    return ratios


def main() -> None:
    """Print the ratios of all layers, and their median and largest."""
    parser = argparse.ArgumentParser("python -m benchmarks.derived", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--only", default="", metavar="TEXT", help="layers with TEXT in the name")
    options = parser.parse_args()
    ratios = list(measured(options.rounds, options.samples, options.only).values())
    print(f"{len(ratios)} layers: median {np.median(ratios):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main()
