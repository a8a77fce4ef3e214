"""Time chain and SDE on an accelerator, against the CPU and against drawing the normals there.

`python -m benchmarks.accelerator [--device cuda]`. Everything runs in turn; figures are medians of
three. There are enough samples to fill the device. The device must be one that torch finds;
`--device cpu` runs torch's own path there, to try the script.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product

import torch

import shaped_attention as sa
from shaped_attention.samplers.arguments import check_device

STEPS = 64


def median_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the median time of three calls after a first one, with the device synchronised."""
    times = []
    for turn in range(4):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if turn:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def simulate(name: str, m: int, samples: int, device: str, dtype: str) -> object:
    """Run `STEPS` steps of the chain or the SDE."""
    block, v0 = sa.ShapedAttention(0.35), sa.equicorrelated(m, 0.2)
    common = {"samples": samples, "device": device, "dtype": dtype, "progress": False}
    if name == "chain":
        return sa.simulate_chain(block, v0, width=256, depth=STEPS, **common)
    return sa.integrate_sde(block, v0, horizon=0.01 * STEPS, step=0.01, method="torchsde", **common)


def normals(count: int, samples: int, device: torch.device, dtype: str) -> None:
    """Draw as many normals as a run needs."""
    for _ in range(STEPS):
        torch.randn(samples, count, dtype=getattr(torch, dtype), device=device)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=2**18)
    asked = parser.parse_args()
    try:
        device = check_device(asked.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    for m, name, dtype in product((4, 16), ("chain", "sde"), ("float64", "float32")):
        samples = max(1, asked.samples * 16 // m**2)
        # Chain: two m x m Gaussians, two Bartlett factors. SDE: m x m, and a symmetric one.
        count = 3 * m * m + m if name == "chain" else m * m + m * (m + 1) // 2
        there = median_seconds(partial(simulate, name, m, samples, str(device), dtype), device)
        floor = median_seconds(partial(normals, count, samples, device, dtype), device)
        here = median_seconds(
            partial(simulate, name, m, samples, "cpu", dtype), torch.device("cpu")
        )
        per = 1e9 / (STEPS * samples)
        print(
            f"{name:5} m={m:2} {dtype}: {device} {there * per:8.2f} ns per step and sample, "
            f"cpu {here * per:8.2f} ({here / there:.1f} times), "
            f"normals {floor * per:8.2f} ({there / floor:.1f} times the floor)"
        )


if __name__ == "__main__":
    main()
