"""Compare and time the samplers on a device: ``python -m benchmarks.accelerator --device cuda``.

Prints a row for each sampler, precision and number of tokens: the p-value of a Kolmogorov-Smirnov
test of log det V on the device against other seeds on the CPU in float64, the largest difference of
paths with the same seed relative to the largest entry of V, and seconds on the device and on the
CPU, after a first call. The p-value of the last line, where the device stops at half of the time,
must be tiny.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from scipy import stats

import shaped_attention as sa
from shaped_attention.samplers.arguments import check_device

STEPS = 64
BLOCK = sa.ShapedAttention(0.35)
KINDS, PRECISIONS, TOKENS = ("network", "chain", "direct", "clock"), ("float64", "float32"), (4, 64)


def simulate(kind: str, m: int, samples: int, seed: int, steps: int = 0, **options: Any) -> Any:
    """Run the networks, the chain or the SDE, by default for `STEPS` steps."""
    steps = steps or STEPS
    v0, options = sa.equicorrelated(m, 0.2), {"seed": seed, "progress": False, **options}
    if kind in ("direct", "clock"):
        run = {"horizon": 0.005 * steps, "step": 0.005, "method": kind}
        return sa.integrate_sde(BLOCK, v0, samples=samples, **run, **options)
    sampler = sa.simulate_network if kind == "network" else sa.simulate_chain
    return sampler(BLOCK, v0, width=200, depth=steps, samples=samples, **options)


def seconds(kind: str, m: int, samples: int, **options: Any) -> float:
    """Return the time of a run after a first one; results are on the host, so it has ended."""
    simulate(kind, m, samples, 0, **options)
    began = time.perf_counter()
    simulate(kind, m, samples, 0, **options)
    return time.perf_counter() - began


def p_value(one: Any, other: Any) -> float:
    """Return that of a test of log det V at the end."""
    values = [np.linalg.slogdet(result["V"].values[-1])[1] for result in (one, other)]
    return float(stats.ks_2samp(*values).pvalue)


def rows(device: str, samples: int, tokens: tuple[int, ...] = TOKENS) -> Iterator[tuple[Any, ...]]:
    """Yield sampler, precision, tokens, p-value, difference, and seconds there and on the CPU."""
    for m, kind in product(tokens, KINDS):
        count = max(16, samples * 4 // m // (64 if kind == "network" else 1))
        here, other = (simulate(kind, m, count, seed) for seed in (0, 1))
        of_cpu = seconds(kind, m, count)
        for dtype in PRECISIONS:
            options = {"device": device, "dtype": dtype}
            there = simulate(kind, m, count, 0, **options)
            size = np.abs(here["V"]).max()
            apart = float(np.abs(there["V"] - here["V"]).max() / size)
            taken = seconds(kind, m, count, **options)
            yield kind, dtype, m, p_value(there, other), apart, taken, of_cpu


def control(device: str, samples: int) -> float:
    """Return the p-value of the chain on the device at half of the time."""
    half = simulate("chain", 4, samples, 0, STEPS // 2, device=device)
    return p_value(half, simulate("chain", 4, samples, 1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=2**16)
    asked = parser.parse_args()
    try:
        check_device(asked.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    print("| sampler | precision | tokens | p | difference | seconds | seconds on the CPU |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for row in rows(asked.device, asked.samples):
        texts = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row)
        print("|", " | ".join(texts), "|", flush=True)
    print(f"\nControl, half of the time: p = {control(asked.device, asked.samples):.2g}")


if __name__ == "__main__":
    main()
