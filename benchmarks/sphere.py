"""The flow on the sphere against token-space Euler in float64, for a phase-diagram panel.

`python -m benchmarks.sphere` (a minute): d = 1024, N = 32, beta = 4, t up to 30; Euler with step
0.1, whose 300 steps are timed over 30. Medians of three, in turns.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from shaped_attention.sphere import SphereAttention, sphere_flow, uniform_start

SAMPLES, TOKENS, DIMENSION, STEPS = 256, 32, 1024, 30


def euler(tokens: torch.Tensor, attention: SphereAttention, steps: int) -> torch.Tensor:
    """Explicit steps of 0.1 in R^d, put back on the sphere."""
    for _ in range(steps):
        tokens = tokens + 0.1 * attention.field(tokens)
        tokens = tokens / tokens.norm(dim=-1, keepdim=True)
    return tokens


def main() -> None:
    """Measure and print."""
    attention = SphereAttention(4.0)
    start = uniform_start(TOKENS, DIMENSION, SAMPLES)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, TOKENS, DIMENSION, dtype=torch.float64, generator=generator)
    x = x / x.norm(dim=-1, keepdim=True)
    flow, tokens = [], []
    for _ in range(3):
        began = time.perf_counter()
        sphere_flow(
            attention, start, np.linspace(0.0, 30.0, 61).tolist(),
            observe=lambda v: v[:, 0, 1], tolerance=1e-3,
        )  # fmt: skip
        flow.append((time.perf_counter() - began) / SAMPLES)
        began = time.perf_counter()
        euler(x, attention, STEPS)
        tokens.append((time.perf_counter() - began) / len(x) * 300 / STEPS)
    a, b = statistics.median(flow), statistics.median(tokens)
    print(f"flow {a * 1e3:.1f} ms, token-space Euler {b * 1e3:.1f} ms a realisation: {b / a:.0f}")


if __name__ == "__main__":
    main()
