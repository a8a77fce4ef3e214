"""Check and time the samplers on an accelerator: ``python -m benchmarks.accelerator out.json``.

Everything runs in turn, in ten minutes: paths against those of the CPU, bits of the device against
its own in other chunks, laws against the CPU, nanoseconds per step and sample, of the steps alone,
against all cores of the CPU and against drawing the same numbers on the device, networks with real
weights against their floors, network, chain and SDE in one comparison, a sweep of 64 cells, one
Llama. Times are medians of three after a first call, which compiles. The file is written after each
row; what failed is in it with its traceback, and rows for which no time was left say so.
`--rehearse` runs every row at tiny sizes on the CPU within minutes, to show that nothing fails; its
times mean nothing. `--table out.json` prints the table of benchmarks/README.md, which without
the file has a line for every row, not measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention import sweep
from shaped_attention.numerics.device.launch import compiled, fill_normals
from shaped_attention.numerics.device.source import numbers_source
from shaped_attention.samplers.arguments import check_device
from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.specification import Options, specify
from shaped_attention.samplers.steppers import stepper_of
from shaped_attention.samplers.task import task_of

STEPS = 64
SECONDS = 600.0
BLOCK = sa.ShapedAttention(0.35)
TOKENS, WIDTHS = (4, 8, 16, 64, 512), (256, 1024, 4096, 8192)
KINDS, PRECISIONS = ("chain", "direct", "clock"), ("float64", "float32")
LLAMA = "llama-3.1-70b"
CPU = torch.device("cpu")

Row = Callable[[], dict[str, Any]]
NUMBERS = """
extern "C" __global__ void numbers(
    real* sums, const u64* key, double rows, int steps, int pairs) {
  const long long path = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (path >= (long long)rows) return;
  real total = 0;
  for (int step = 0; step < steps; ++step)
    for (int pair = 0; pair < pairs; ++pair) {
      double a, b;
      normals_of(key, (u64(path) << 32) | u64(step), 0, pair, a, b);
      total += real(a) + real(b);
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


def simulate(
    kind: str, m: int, samples: int, device: str, dtype: str, seed: int = 0,
    steps: int | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Run some steps, by default `STEPS`, of the chain or of the SDE."""
    v0, steps = sa.equicorrelated(m, 0.2), steps or STEPS
    options |= {"samples": samples, "device": device, "dtype": dtype, "seed": seed}
    options["progress"] = False
    if kind == "chain":
        return sa.simulate_chain(BLOCK, v0, width=max(256, 2 * m), depth=steps, **options)
    return sa.integrate_sde(BLOCK, v0, horizon=0.01 * steps, step=0.01, method=kind, **options)


def floor(count: int, samples: int, device: torch.device, dtype: str) -> Callable[[], None]:
    """Return what draws as many normals of a precision as a run needs."""
    kind = getattr(torch, dtype)
    if device.type == "cpu":
        return lambda: [torch.randn(samples, count, dtype=kind) for _ in range(STEPS)] and None
    kernel = compiled(numbers_source(dtype, NUMBERS), "numbers", device)
    sums = torch.empty(samples, dtype=kind, device=device)
    key = torch.tensor(np.array([1, 2], dtype=np.uint64), device=device)
    blocks = -(-samples // 128)

    def draw() -> None:
        arguments = [sums, key, float(samples), STEPS, -(-count // 2)]
        with torch.cuda.device(device):
            kernel((blocks, 1, 1), (128, 1, 1), arguments)

    return draw


def numbers_of_a_step(kind: str, m: int) -> int:
    """Return the normals of a step; a chi variable counts as two."""
    return 3 * m * m + 2 * m if kind == "chain" else m * m + m * (m + 1) // 2


def step_seconds(kind: str, m: int, samples: int, device: torch.device, dtype: str) -> float:
    """Return the median time of `STEPS` steps alone, in one chunk.

    Starts and results are made by the host, which takes a hundred times as long as so few steps.
    """
    width = max(256, 2 * m) if kind == "chain" else None
    spec = specify(
        BLOCK, sa.equicorrelated(m, 0.2), width=width, steps=STEPS,
        dt=0.01 if width is None else 1.0 / width, samples=samples, seed=0,
        options=Options(device=str(device), dtype=dtype),
    )  # fmt: skip
    of_limit = "sde", None, kind
    task = task_of(spec, *(of_limit if width is None else ("chain", width)))
    stepper, times = stepper_of(spec, task), []
    for turn in range(4):
        paths = starting_paths(spec, stepper, 0, samples)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        while paths.behind(STEPS):
            paths.advance(STEPS, 2**20)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if turn:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


@lru_cache
def cpu_ns(kind: str, m: int, most: int) -> float:
    """Return the nanoseconds per step and sample on all cores of the CPU, in float64.

    They are the difference of two calls, of which one takes half of the steps.
    """
    samples = max(8, most * 16 // m**2 // 64)
    # A step of 512 tokens takes a tenth of a second.
    steps = max(2, min(STEPS, 2**20 // (samples * m**2)))
    half, whole = (
        seconds(partial(simulate, kind, m, samples, "cpu", "float64", steps=k), CPU, turns=1)
        for k in (steps, 2 * steps)
    )
    return (whole - half) * 1e9 / (steps * samples)


def speed(device: torch.device, most: int, m: int, kind: str, dtype: str) -> dict[str, Any]:
    """Time steps there, on the CPU, and the drawing of their numbers."""
    samples = max(8, most * 16 // m**2)
    there = step_seconds(kind, m, samples, device, dtype)
    drawing = floor(numbers_of_a_step(kind, m), samples, device, dtype)
    per, least = 1e9 / (STEPS * samples), seconds(drawing, device)
    found = {
        "samples": samples, "ns": there * per, "numbers_ns": least * per,
        "share_of_numbers": least / there,
    }  # fmt: skip
    here = cpu_ns(kind, m, most)
    # A difference of two times may be lost in their noise, as in a rehearsal.
    return found | ({"cpu_ns": here, "over_cpu": here / (there * per)} if here > 0 else {})


def network(device: torch.device, width: int, dtype: str) -> dict[str, Any]:
    """Time a layer of networks, the making of its weights alone, and its products alone."""
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
        "samples": samples, "layer": whole, **floors,
        "over_larger": whole / max(floors.values()),
    }  # fmt: skip


def distance(device: torch.device, m: int, kind: str, dtype: str) -> dict[str, Any]:
    """Return how far paths there are from those of the CPU, in units of their largest entry."""
    one, other = (simulate(kind, m, 64, name, dtype)["V"].values for name in ("cpu", str(device)))
    return {"distance": float(np.abs(one - other).max() / np.abs(one).max())}


def bits(device: torch.device, kind: str, dtype: str) -> dict[str, Any]:
    """Return whether paths there have the same bits again, and in chunks of 7."""
    one, again, parts = (
        simulate(kind, 4, 64, str(device), dtype, chunk=chunk)["V"].values
        for chunk in (None, None, 7)
    )
    return {"again": bool((one == again).all()), "in_chunks": bool((one == parts).all())}


def law(device: torch.device, samples: int, kind: str) -> dict[str, Any]:
    """Return the p-value of a KS test of log det V there against another seed on the CPU."""
    there = log_det(simulate(kind, 4, samples, str(device), "float64"))
    here = log_det(simulate(kind, 4, samples, "cpu", "float64", seed=1))
    return {"p": float(stats.ks_2samp(there, here).pvalue)}


def control(device: torch.device, samples: int) -> dict[str, Any]:
    """Return the p-value of the chain against the SDE at half the time, which must be tiny."""
    there = log_det(simulate("chain", 4, samples, str(device), "float64"))
    half = log_det(simulate("clock", 4, samples, "cpu", "float64", seed=2, steps=STEPS // 2))
    return {"p": float(stats.ks_2samp(there, half).pvalue)}


def log_det(result: Any) -> Any:
    """Return log det V at the end."""
    return np.linalg.slogdet(result["V"].values[-1])[1]


def three_samplers(device: torch.device, samples: int) -> dict[str, Any]:
    """Time network, chain and SDE of one size there, and compare each with each."""
    v0 = sa.equicorrelated(4, 0.2)
    options: dict[str, Any] = {"device": str(device), "progress": False}
    layers: dict[str, Any] = {"width": 256, "depth": 2 * STEPS, **options}
    runs: dict[str, Callable[[], Any]] = {
        "network": partial(
            sa.simulate_network, BLOCK, v0, samples=max(8, samples // 64), seed=0, **layers
        ),
        "chain": partial(sa.simulate_chain, BLOCK, v0, samples=samples, seed=1, **layers),
        "sde": partial(
            sa.integrate_sde, BLOCK, v0, horizon=STEPS / 128, step=1 / 128, samples=samples,
            seed=2, **options,
        ),
    }  # fmt: skip
    found: dict[str, Any] = {
        f"{name}_seconds": seconds(run, device, turns=1) for name, run in runs.items()
    }
    results = {name: run() for name, run in runs.items()}
    for one, other in combinations(results, 2):
        table = sa.compare(results[one], results[other])
        found[f"{one}_against_{other}"] = table.attrs["verdict"]
    return found


def batch(device: torch.device, samples: int) -> dict[str, Any]:
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
    """Time samples of the chain of a language model; entropies would be made by the host."""
    run = partial(
        sa.simulate_model, name, 16, samples=samples, entropy=False, device=str(device),
        progress=False,
    )  # fmt: skip
    return {"model": name, "samples": samples, "seconds": seconds(run, device, turns=1)}


def guarded(part: Callable[[], Any]) -> Any:
    """Return what a part measures, or its error: nothing may stop the parts after it."""
    try:
        return part()
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def rows(device: torch.device, samples: int, rehearse: bool) -> dict[str, dict[str, Row]]:
    """Return all rows by their part and name."""
    fewer = max(16, samples // 16)
    small, tokens, widths = ((4,), (4,), (16,)) if rehearse else ((2, 4, 9), TOKENS, WIDTHS)
    name = "gpt2" if rehearse else LLAMA
    return {
        "paths": {
            f"{kind}, m = {m}, {dtype}": partial(distance, device, m, kind, dtype)
            for m, kind, dtype in product(small, KINDS, PRECISIONS)
        },
        "bits": {
            f"{kind}, {dtype}": partial(bits, device, kind, dtype)
            for kind, dtype in product(KINDS, PRECISIONS)
        },
        "laws": {
            **{kind: partial(law, device, fewer, kind) for kind in KINDS},
            "control": partial(control, device, fewer),
        },
        "samplers": {"network, chain, SDE": partial(three_samplers, device, fewer)},
        "sweep": {"64 cells": partial(batch, device, fewer)},
        "llama": {name: partial(llama, device, name, min(64, fewer))},
        "networks": {
            f"n = {width}, {dtype}": partial(network, device, width, dtype)
            for width, dtype in product(widths, PRECISIONS)
        },
        "speed": {
            f"{kind}, m = {m}, {dtype}": partial(speed, device, samples, m, kind, dtype)
            for m, kind, dtype in product(tokens, KINDS, PRECISIONS)
        },
    }


def measure(
    device: torch.device, samples: int, rehearse: bool, write: Callable[[Any], None],
    limit: float = SECONDS,
) -> None:  # fmt: skip
    """Measure all rows, and write what is known after each; none begins after `limit` seconds."""
    began = time.perf_counter()
    on_cuda = device.type == "cuda"
    measured: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device) if on_cuda else "cpu",
        "torch": torch.__version__, "cuda": torch.version.cuda, "steps": STEPS,
        "cpu_threads": torch.get_num_threads(),
    }  # fmt: skip
    for part, of_part in rows(device, samples, rehearse).items():
        measured[part] = {}
        for name, row in of_part.items():
            if on_cuda:
                torch.cuda.reset_peak_memory_stats(device)
            spent = time.perf_counter() - began
            found = guarded(row) if spent < limit else {"skipped": f"{limit:.0f} s were over"}
            if on_cuda:
                found["memory"] = torch.cuda.max_memory_allocated(device)
            measured[part][name] = found
            print(part, name, {k: v for k, v in found.items() if k != "traceback"}, flush=True)
            write(measured)


def table(measured: dict[str, Any]) -> str:
    """Return a line of Markdown for every row; "not measured" for those that are not there."""
    lines = ["| part | row | measured |", "| --- | --- | --- |"]
    for part, of_part in rows(torch.device("cpu"), 2**20, False).items():
        for name in of_part:
            found = measured.get(part, {}).get(name, {})
            texts = [
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in found.items()
                if key != "traceback"
            ]
            lines.append(f"| {part} | {name} | {'; '.join(texts) or 'not measured'} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and write the file, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=2**20, help="of m = 4; fewer of larger m")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no row begins after them")
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--table", action="store_true", help="print the file as a table")
    asked = parser.parse_args()
    if asked.table:
        print(table(json.loads(asked.output.read_text()) if asked.output.exists() else {}))
        return
    try:
        device = check_device("cpu" if asked.rehearse else asked.device)
    except ValueError as error:
        raise SystemExit(str(error)) from None

    def write(measured: Any) -> None:
        asked.output.write_text(json.dumps(measured, indent=1) + "\n")

    samples = 64 if asked.rehearse else asked.samples
    measure(device, samples, asked.rehearse, write, asked.seconds)


if __name__ == "__main__":
    main()
