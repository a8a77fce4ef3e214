"""Time the worked examples against the built-in blocks: ``python -m benchmarks.examples``.

The worked examples of `CONTRIBUTING.md` run in turns with the block of the package that does the
same work. A ratio is the median over the rounds of the ratio within a round; it may be at most
`MOST`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np

import shaped_attention as sa
from benchmarks.speed import STARTS, Task, Times
from tests.example_biased import BiasedAttention
from tests.example_gelu import GeluMLP
from tests.example_linear import Linear

MOST = 1.5
"""The largest ratio that counts as equally fast."""

TOKENS, WIDTH, DEPTH, STEP = 4, 200, 100, 0.01
BIAS = -0.5 * abs(np.subtract.outer(np.arange(TOKENS), np.arange(TOKENS)))


def pairs() -> list[tuple[str, str, sa.Block, sa.Block]]:
    """Return sampler, name, example, and the block of the package that it is compared with."""
    attention, biased = sa.ShapedAttention(0.35), BiasedAttention(0.35, 1.0, BIAS)
    # Both blocks form the term that raises the rank of V.
    masked = sa.ShapedAttention(0.35, mask=np.ones((TOKENS, TOKENS), dtype=bool))
    linear = Linear(sa.Schedule([(0.0, 0.2), (1.0, 0.5)]))
    return [
        ("chain", "GELU, against ReLU", GeluMLP(0.35), sa.ShapedMLP(0.35)),
        ("chain", "position bias, against attention", biased, attention),
        ("SDE", "position bias, against a mask", biased, masked),
        ("chain", "linear with a schedule, against attention", linear, attention),
        ("SDE", "linear with a schedule, against attention", linear, attention),
    ]


def measured(rounds: int, samples: int) -> dict[str, float]:
    """Return the ratio of each example's time to that of the block of the package."""
    found = {}
    for sampler, name, *both in pairs():
        tasks = [Task(str(k), 1.0, runner(x, sampler, samples)) for k, x in enumerate(both)]
        seconds = Times(tasks, rounds).seconds
        found[f"{sampler}: {name}"] = float(np.median(seconds["0"] / seconds["1"]))
    return found


def runner(block: sa.Block, sampler: str, samples: int) -> Callable[[], object]:
    """Return a function that runs a sampler on a block."""
    sizes = {"samples": samples, "progress": False}
    if sampler == "chain":
        return partial(
            sa.simulate_chain, block, STARTS[TOKENS], width=WIDTH, depth=DEPTH, **sizes
        )  # fmt: skip
    return partial(
        sa.integrate_sde, block, STARTS[TOKENS], horizon=1.0, step=STEP, method="torchsde", **sizes
    )


def main() -> None:
    """Print the ratios; fail if one is above `MOST`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=4096)
    arguments = parser.parse_args()
    ratios = measured(arguments.rounds, arguments.samples)
    for name, ratio in ratios.items():
        print(f"{name:60} {ratio:5.2f}")
    if max(ratios.values()) > MOST:
        raise SystemExit(f"above {MOST}")


if __name__ == "__main__":
    main()
