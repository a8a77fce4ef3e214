"""Time gradients and training steps of lazily revealed weights: ``python -m benchmarks.lazy``.

One thread; what counts is processor time, and ratios are of alternating rounds.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

import shaped_attention as sa
from benchmarks.speed import machine
from shaped_attention.lazy.compiled_network import CompiledNetwork
from shaped_attention.lazy.deep import DeepNetwork
from shaped_attention.lazy.deep_runs import Network
from shaped_attention.lazy.gradient_norms import norms_of_layer
from shaped_attention.lazy.layer_programs import LayerPrograms
from shaped_attention.rows.rows import Rows
from shaped_attention.samplers.specification import specify

V0 = sa.equicorrelated(4, 0.2)
PLAIN: dict[str, Any] = {"centring": False, "identity": False, "scaled_temperature": False}
GPT = [
    sa.Normalised(
        sa.ShapedAttention(0.6, heads=2, mask="causal", output_projection=True, **PLAIN),
        norm="layer", eps=1e-5,
    ),
    sa.Normalised(sa.ShapedMLP(0.6, activation="gelu", hidden_ratio=4.0), norm="layer", eps=1e-5),
]  # fmt: skip


def seconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


ATTENTION = sa.ShapedAttention(0.35)


def forward_and_back(network: Network) -> tuple[float, float]:
    """Return the times of the way forward, and of the way back of a readout's gradient."""
    start = time.process_time()
    last = network.forward()
    middle = time.process_time()
    draws = network.source.stream("readout").draws()
    r = Rows(last.space, tuple(part.fresh(4, draws) for part in last.space))
    for _ in network.measured([r]):
        pass
    return middle - start, time.process_time() - middle


def by_executors(samples: int, depth: int) -> dict[str, tuple[float, float]]:
    """Return the times forward and back of shaped attention by torch and by programs.

    Of the programs, which take a second, it is the run with the median ratio of five.
    """
    spec = specify(ATTENTION, V0, width=512, steps=depth, dt=1 / 512, samples=samples, seed=0)
    parts = [
        forward_and_back(DeepNetwork.specified(spec, 512, depth, k, 128, measure=norms_of_layer))
        for k in range(0, samples, 128)
    ]
    programs = LayerPrograms(spec, 512, depth, 1, norms_of_layer)
    runs = [
        forward_and_back(CompiledNetwork(programs, spec, 512, depth, 0, samples)) for _ in range(5)
    ]
    compiled = sorted(runs, key=lambda run: run[1] / run[0])[2]
    return {
        "torch": (sum(x for x, _ in parts), sum(x for _, x in parts)),
        "programs": compiled,
    }


def chain_and_gradients(samples: int, depth: int) -> tuple[float, float]:
    """Return the times of the compiled chain, and of the gradients' norms with all that they need.

    That is compiling, and what is done to the results.
    """
    run: dict[str, Any] = {"width": 512, "depth": depth, "samples": samples, "progress": False}
    return (
        seconds(lambda: sa.simulate_chain(ATTENTION, V0, **run)),
        seconds(lambda: sa.gradient_norms(ATTENTION, V0, **run)),
    )


def explicit_step(width: int) -> float:
    """Return the time of forward and backward pass of one layer with explicit weights, float32."""

    def run() -> None:
        hidden = 4 * width
        sizes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
        weights = [torch.randn(*size, dtype=torch.float32).requires_grad_() for size in sizes]
        x = torch.randn(1, 4, width)
        root = width**0.5
        q, k, v = (x @ w / root for w in weights[:3])
        x = x + torch.softmax(q @ k.mT / root, -1) @ v @ weights[3] / root
        x = x + torch.nn.functional.gelu(x @ weights[4] / root) @ weights[5] / hidden**0.5
        x.square().sum().backward()

    return seconds(run)


STEPS = 16
"""Lazy steps that are timed together: one is too short."""


def lazy_step(width: int, samples: int) -> float:
    """Return the mean time of forward and backward pass of one layer and sample, lazily."""

    def run() -> None:
        for seed in range(STEPS):
            sa.gradient_norms(
                GPT, V0, width=width, depth=1, samples=samples, loss="quadratic", dtype="float32",
                seed=seed,
            )  # fmt: skip

    return seconds(run) / (STEPS * samples)


def main() -> None:
    """Print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lazy", description=__doc__)
    parser.add_argument("--samples", type=int, default=1024, help="of forward and back")
    parser.add_argument("--depth", type=int, default=512, help="layers of forward and back")
    parser.add_argument("--largest", type=int, default=10**6, help="width of the training steps")
    options = parser.parse_args()
    print(machine())
    by_executors(128, 4)
    for name, (forward, back) in by_executors(options.samples, options.depth).items():
        print(
            f"{name}: forward {forward:.2f} s, back {back:.2f} s at m = 4, n = 512, "
            f"L = {options.depth}, {options.samples} samples: both "
            f"{(forward + back) / forward:.2f} times forward"
        )
    chain_and_gradients(4, 64)
    runs = [chain_and_gradients(options.samples, options.depth) for _ in range(5)]
    chain, gradients = (median(x) for x in zip(*runs, strict=True))
    ratio = median(b / a for a, b in runs)
    print(f"compiled chain {chain:.2f} s, gradient_norms {gradients:.2f} s: {ratio:.1f} times that")
    lazy_step(64, 1)
    for samples in (1, 32):
        pairs = [(explicit_step(4096), lazy_step(4096, samples)) for _ in range(5)]
        ratio = median(a / b for a, b in pairs)
        print(
            "one layer at width 4,096, hidden 16,384, forward and back, a sample: explicit float32 "
            f"{pairs[0][0]:.2f} s, lazy {pairs[0][1]:.4f} s (mean of {STEPS}) in samples of "
            f"{samples}: {ratio:.0f} times"
        )
    for width in (10**3, 10**4, 10**5, options.largest):
        used = seconds(
            lambda width=width: sa.simulate_training(  # type: ignore[misc]
                GPT, V0, [0, 1, 2, 1], width=width, depth=2, samples=1, steps=3,
                optimizer=sa.SGD(0.5), dtype="float32", memory=2**35,
            )
        )  # fmt: skip
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"two layers, three steps at width {width:,}: {used:.1f} s, {peak:.2f} GiB")


if __name__ == "__main__":
    main()
