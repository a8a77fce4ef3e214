"""Time three steps of AdamW of an n x n matrix: explicit in torch, and lazily revealed.

``python -m benchmarks.adamw --widths 1024,4096,16384``: one thread, float32, the same tokens in
both. Explicit are drawing, forward, backward and fused steps. Medians of alternating rounds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

import shaped_attention as sa
from benchmarks.speed import machine
from shaped_attention.blocks.base import Project, Tokens

STEPS, CLASSES = 3, 16


@dataclass(frozen=True)
class Linear(sa.Block):
    """A layer with one matrix, X' = (X + X W / sqrt n) / sqrt 2."""

    gamma: float = 0.5**0.5

    def branch(self, p: Any, tokens: Tokens, project: Project) -> Tokens:
        """Return X W / sqrt n."""
        n = tokens.shape[-1]
        return project(tokens, n) / n**0.5


def explicit(width: int, tokens: int, targets: torch.Tensor) -> None:
    """Train with a matrix in memory."""
    w, v = torch.randn(width, width), torch.randn(width, CLASSES)
    w.requires_grad_()
    v.requires_grad_()
    optimizer = torch.optim.AdamW([w, v], lr=0.01, fused=True)
    x = torch.randn(tokens, width)
    for step in range(STEPS + 1):
        y = 0.5**0.5 * (x + x @ w / width**0.5)
        loss = torch.nn.functional.cross_entropy(y @ v / width**0.5, targets)
        if step < STEPS:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def lazily(width: int, tokens: int, targets: torch.Tensor, samples: int = 1) -> None:
    """Train with the matrix known along what is asked."""
    sa.simulate_training(
        Linear(), sa.equicorrelated(tokens, 0.2), targets.numpy(), width=width, depth=1,
        samples=samples, steps=STEPS, optimizer=sa.AdamW(0.01), classes=CLASSES, dtype="float32",
        progress=False, memory=2**34,
    )  # fmt: skip


def seconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    """Print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adamw", description=__doc__)
    parser.add_argument("--widths", default="1024,4096,16384", help="widths n")
    parser.add_argument("--samples", type=int, default=1, help="samples of a lazy run")
    options = parser.parse_args()
    print(machine())
    for width in map(int, options.widths.split(",")):
        for tokens in (4, 16):
            targets = torch.as_tensor(np.arange(tokens) % CLASSES)
            calls: list[Callable[[], None]] = [
                partial(explicit, width, tokens, targets),
                partial(lazily, width, tokens, targets, options.samples),
            ]
            calls[1]()  # compiles
            pairs = [[seconds(call) for call in calls] for _ in range(3)]
            one, other = (median(x) for x in zip(*pairs, strict=True))
            other /= options.samples
            ratio = median(b / a for a, b in pairs) / options.samples
            times = f"explicit {one:.3f} s, lazily {other:.3f} s: {ratio:.2f}"
            print(f"n {width:6}, m {tokens:2}: {times}")


if __name__ == "__main__":
    main()
