"""The flow on the sphere against token-space Euler in float64, and its cost by dimension.

`python -m benchmarks.sphere` (two minutes): N = 32, beta = 4, t up to 30. At d = 1024 against Euler
with step 0.1, whose 300 steps are timed over 30; then the flow alone, start included, from d = 32
to 10^6. Medians of three, in turns.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from shaped_attention.sphere import SphereAttention, sphere_flow, uniform_start

SAMPLES, TOKENS, DIMENSION, STEPS = 256, 32, 1024, 30
DIMENSIONS = (32, 1024, 32_768, 1_000_000)
TIMES = np.linspace(0.0, 30.0, 61).tolist()


def euler(tokens: torch.Tensor, attention: SphereAttention, steps: int) -> torch.Tensor:
    """Explicit steps of 0.1 in R^d, put back on the sphere."""
    for _ in range(steps):
        tokens = tokens + 0.1 * attention.field(tokens)
        tokens = tokens / tokens.norm(dim=-1, keepdim=True)
    return tokens


def seconds_of_flow(dimension: int) -> float:
    """Seconds a realisation, with its start."""
    began = time.perf_counter()
    start = uniform_start(TOKENS, dimension, SAMPLES)
    sphere_flow(
        SphereAttention(4.0), start, TIMES, observe=lambda v: v[:, 0, 1], tolerance=1e-3
    )  # fmt: skip
    return (time.perf_counter() - began) / SAMPLES


def seconds_of_euler() -> float:
    """Seconds a realisation of all 300 steps."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, TOKENS, DIMENSION, dtype=torch.float64, generator=generator)
    x = x / x.norm(dim=-1, keepdim=True)
    began = time.perf_counter()
    euler(x, SphereAttention(4.0), STEPS)
    return (time.perf_counter() - began) / len(x) * 300 / STEPS


def main() -> None:
    """Measure and print."""
    seconds_of_flow(DIMENSION)  # compiles
    pairs = [(seconds_of_flow(DIMENSION), seconds_of_euler()) for _ in range(3)]
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"flow {a * 1e3:.1f} ms, token-space Euler {b * 1e3:.1f} ms a realisation: {b / a:.0f}")
    rounds = [[seconds_of_flow(dimension) for dimension in DIMENSIONS] for _ in range(3)]
    costs = [statistics.median(column) for column in zip(*rounds, strict=True)]
    for dimension, cost in zip(DIMENSIONS, costs, strict=True):
        print(f"d = {dimension:>9,}: {cost * 1e3:.2f} ms, {cost / costs[0]:.2f} of that at d = 32")


if __name__ == "__main__":
    main()
