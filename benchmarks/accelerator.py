"""Check and time the samplers on an accelerator: ``python -m benchmarks.accelerator out.json``.

Everything runs in turn, in about ten minutes: frozen paths and laws against the CPU, nanoseconds
per step and sample against the CPU and against drawing the same numbers on the device, the clock,
networks with real weights against chain and SDE and against their floors, a sweep of 64 cells, one
Llama. Times are medians of three after a first call, which compiles. The file is written after each
row; what failed is in it with its traceback. `--rehearse` runs every part at tiny sizes on the CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention import sweep
from shaped_attention.numerics.device.launch import fill_normals
from shaped_attention.samplers.arguments import check_device

STEPS = 64
BLOCK = sa.ShapedAttention(0.35)
TOKENS, WIDTHS = (4, 8, 16, 64, 512), (256, 1024, 4096)
NUMBERS = """
extern "C" __global__ void numbers(
    double* sums, const u64* key, double rows, int steps, int pairs) {
  const long long path = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (path >= (long long)rows) return;
  double total = 0;
  for (int step = 0; step < steps; ++step)
    for (int pair = 0; pair < pairs; ++pair) {
      double a, b;
      normals_of(key, (u64(path) << 32) | u64(step), 0, pair, a, b);
      total += a + b;
    }
  sums[path] = total;
}
"""
"""A kernel that does nothing but draw: the floor of a step."""


def seconds(call: Callable[[], object], device: torch.device, turns: int = 3) -> float:
    """Return the median time of some calls after a first one, with the device synchronised."""
    times = []
    for turn in range(turns + 1):
        began = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if turn:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def simulate(kind: str, m: int, samples: int, device: str, dtype: str, seed: int = 0) -> Any:
    """Run `STEPS` steps of the chain or of the SDE."""
    v0 = sa.equicorrelated(m, 0.2)
    common: dict[str, Any] = {"samples": samples, "device": device, "dtype": dtype, "seed": seed}
    if kind == "chain":
        width = max(256, 2 * m)
        return sa.simulate_chain(BLOCK, v0, width=width, depth=STEPS, progress=False, **common)
    return sa.integrate_sde(
        BLOCK, v0, horizon=0.01 * STEPS, step=0.01, method=kind, progress=False, **common
    )


def floor(count: int, samples: int, device: torch.device) -> Callable[[], None]:
    """Return what draws as many normals as a run needs."""
    if device.type == "cpu":
        return lambda: [torch.randn(samples, count) for _ in range(STEPS)] and None
    from shaped_attention.numerics.device.launch import compiled
    from shaped_attention.numerics.device.source import OPERATIONS_SOURCE

    source = f"#define THREADS 1\ntypedef double real;\n{OPERATIONS_SOURCE.read_text()}{NUMBERS}"
    kernel = compiled(source, "numbers", device)
    sums = torch.empty(samples, dtype=torch.float64, device=device)
    key = torch.tensor(np.array([1, 2], dtype=np.uint64), device=device)
    blocks = -(-samples // 128)

    def draw() -> None:
        arguments = [sums, key, float(samples), STEPS, -(-count // 2)]
        kernel((blocks, 1, 1), (128, 1, 1), arguments)

    return draw


def numbers_of_a_step(kind: str, m: int) -> int:
    """Return the normals of a step; a chi variable counts as two."""
    return 3 * m * m + 2 * m if kind == "chain" else m * m + m * (m + 1) // 2


def speed(device: torch.device, most: int, tokens: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Time steps there, here, and the drawing of their numbers."""
    kinds = ("chain", "direct", "clock"), ("float64", "float32")
    for row in product(tokens, *kinds):
        yield guarded(partial(_speed, device, most, *row))


def _speed(device: torch.device, most: int, m: int, kind: str, dtype: str) -> dict[str, Any]:
    samples = max(8, most * 16 // m**2)
    there = seconds(partial(simulate, kind, m, samples, str(device), dtype), device)
    few = max(8, samples // 64)
    here = seconds(partial(simulate, kind, m, few, "cpu", "float64"), torch.device("cpu"))
    least = seconds(floor(numbers_of_a_step(kind, m), samples, device), device)
    per = 1e9 / (STEPS * samples)
    return (
        {"m": m, "run": kind, "dtype": dtype, "samples": samples, "ns": there * per}
        | {"cpu_ns": here * 1e9 / (STEPS * few), "numbers_ns": least * per}
        | {"over_numbers": there / least, "over_cpu": here / few * samples / there}
    )


def networks(device: torch.device, widths: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Time a layer of networks, the making of its weights alone, and its products alone."""
    for width, dtype in product(widths, ("float64", "float32")):
        yield guarded(partial(_network, device, width, dtype))


def _network(device: torch.device, width: int, dtype: str) -> dict[str, Any]:
    layers, m, kind = 4, 4, getattr(torch, dtype)
    samples = max(1, min(64, 2**25 // width**2))
    run = partial(
        sa.simulate_network, BLOCK, sa.equicorrelated(m, 0.2), width=width, depth=layers,
        samples=samples, device=str(device), dtype=dtype, progress=False,
    )  # fmt: skip
    weights = torch.empty(samples, width * width, dtype=kind, device=device)
    numbers = torch.arange(samples, device=device)

    def make() -> None:
        """Make the weights of queries, keys and values."""
        for slot in range(3):
            if device.type == "cuda":
                fill_normals(weights, np.array([1, 2], dtype=np.uint64), numbers, 0, slot, 0)
            else:
                weights.normal_()

    square = weights.unflatten(1, (width, width))
    x = torch.ones(samples, m, width, dtype=kind, device=device)

    def multiply() -> None:
        for _ in range(3):
            torch.bmm(x, square)

    whole = seconds(run, device, turns=1) / layers
    floors = {"weights": seconds(make, device), "products": seconds(multiply, device)}
    return {
        "width": width, "dtype": dtype, "samples": samples, "layer": whole, **floors,
        "over_larger": whole / max(floors.values()),
    }  # fmt: skip


def frozen_paths(device: torch.device, tokens: Sequence[int]) -> dict[str, float]:
    """Return how far paths there are from those of the CPU, in units of their largest entry."""
    distances = {}
    for m, kind, dtype in product(tokens, ("chain", "direct", "clock"), ("float64", "float32")):
        one, other = (
            simulate(kind, m, 64, name, dtype)["V"].values for name in ("cpu", str(device))
        )
        distances[f"{kind} m={m} {dtype}"] = float(np.abs(one - other).max() / np.abs(one).max())
    return distances


def laws(device: torch.device, samples: int) -> dict[str, float]:
    """Return p-values of log det V there against other seeds on the CPU; the last is a control."""
    values = {}
    for kind in ("chain", "direct", "clock"):
        there = log_det(simulate(kind, 4, samples, str(device), "float64"))
        here = log_det(simulate(kind, 4, samples, "cpu", "float64", seed=1))
        values[kind] = float(stats.ks_2samp(there, here).pvalue)
    values["control: chain against SDE at half the time"] = float(
        stats.ks_2samp(
            log_det(simulate("chain", 4, samples, str(device), "float64")),
            log_det(
                sa.integrate_sde(
                    BLOCK, sa.equicorrelated(4, 0.2), horizon=0.005 * STEPS, step=0.005,
                    samples=samples, seed=2, progress=False,
                )
            ),
        ).pvalue
    )  # fmt: skip
    return values


def log_det(result: Any) -> Any:
    """Return log det V at the end."""
    return np.linalg.slogdet(result["V"].values[-1])[1]


def three_samplers(device: torch.device, samples: int) -> dict[str, Any]:
    """Compare network, chain and SDE there, and time the network."""
    v0 = sa.equicorrelated(4, 0.2)
    options: dict[str, Any] = {"device": str(device), "progress": False}
    network = partial(
        sa.simulate_network,
        BLOCK,
        v0,
        width=256,
        depth=2 * STEPS,
        samples=max(8, samples // 64),
        **options,
    )
    taken = seconds(network, device, turns=1)
    chain = sa.simulate_chain(
        BLOCK, v0, width=256, depth=2 * STEPS, samples=samples, seed=1, **options
    )
    limit = sa.integrate_sde(
        BLOCK, v0, horizon=STEPS / 128, step=1 / 128, samples=samples, seed=2, **options
    )
    return {
        "network_seconds": taken,
        "network_against_chain": sa.compare(network(), chain).attrs["verdict"],
        "chain_against_limit": sa.compare(chain, limit).attrs["verdict"],
    }


def batch(device: torch.device, samples: int) -> dict[str, float]:
    """Run a sweep of 64 cells."""
    gammas, temperatures = np.linspace(0.1, 0.45, 8).tolist(), np.linspace(0.5, 2.0, 8).tolist()
    grid = sweep.Sweep(
        axes={"gamma": gammas, "tau0": temperatures},
        fixed={"layer": "attention", "tokens": 4, "rho": 0.2, "width": 128, "depth": STEPS},
        samplers=("chain",), samples=samples, device=str(device),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        report = sweep.run_sweep(grid, Path(folder) / "store", progress=False)
    return {"units": report.finished, "seconds": report.seconds}


def llama(device: torch.device, name: str, samples: int) -> dict[str, Any]:
    """Time samples of the chain of a language model."""
    run = partial(sa.simulate_model, name, 16, samples=samples, device=str(device), progress=False)
    return {"model": name, "samples": samples, "seconds": seconds(run, device, turns=1)}


def guarded(part: Callable[[], Any]) -> Any:
    """Return what a part measures, or its error: nothing may stop the parts after it."""
    try:
        return part()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def measure(
    device: torch.device, samples: int, rehearse: bool, write: Callable[[Any], None]
) -> None:
    """Run all parts, and write what is known after each row."""
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    measured: dict[str, Any] = {
        "device": named, "torch": torch.__version__, "cuda": torch.version.cuda, "steps": STEPS,
    }  # fmt: skip
    fewer = max(16, samples // 16)
    parts: dict[str, Callable[[], Any]] = {
        "paths": partial(frozen_paths, device, (4,) if rehearse else (2, 4, 9)),
        "p_values": partial(laws, device, fewer),
        "speed": partial(speed, device, samples, (4,) if rehearse else TOKENS),
        "networks": partial(networks, device, (16,) if rehearse else WIDTHS),
        "samplers": partial(three_samplers, device, fewer),
        "sweep": partial(batch, device, fewer),
        "llama": partial(llama, device, "gpt2" if rehearse else "llama-3.1-70b", min(64, fewer)),
    }
    for name, part in parts.items():
        began = time.perf_counter()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        result = guarded(part)
        if isinstance(result, Iterator):
            measured[name] = []
            for row in result:
                measured[name].append(row)
                print(row, flush=True)
                write(measured)
        else:
            measured[name] = result
        if device.type == "cuda":
            measured[f"{name}_memory"] = torch.cuda.max_memory_allocated(device)
        print(name, f"{time.perf_counter() - began:.0f} s", flush=True)
        write(measured)


def main() -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=2**20, help="of m = 4; fewer of larger m")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    asked = parser.parse_args()
    try:
        device = check_device("cpu" if asked.rehearse else asked.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None

    def write(measured: Any) -> None:
        asked.output.write_text(json.dumps(measured, indent=1) + "\n")

    measure(device, 64 if asked.rehearse else asked.samples, asked.rehearse, write)


if __name__ == "__main__":
    main()
