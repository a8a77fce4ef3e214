"""Time layers of many tokens against a lower bound: ``python -m benchmarks.large``.

The floor of a layer is the time of the work that its program cannot avoid: its products and
factorisations, counted from the nodes with their triangular structure, at the speed of this
machine's matrix product, and its random numbers from the package's generator. Speeds are measured
in the same rounds as the layers, on the same number of threads (one per sample). A ratio is the
median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import shaped_attention as sa
from shaped_attention.numerics.fills import fill_normals
from shaped_attention.numerics.graph import Node
from shaped_attention.numerics.threads import one_thread
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.steppers.blas import BlasStepper

GAMMA, STEP = 0.35, 0.001
LAYERS: dict[str, tuple[sa.Block, bool]] = {
    "chain of attention": (sa.ShapedAttention(GAMMA), True),
    "chain of the MLP": (sa.ShapedMLP(GAMMA), True),
    "SDE of attention": (sa.ShapedAttention(GAMMA), False),
}


def operations(node: Node) -> float:
    """Count multiplications and additions of a product or factorisation; 0 for other nodes."""
    if node.kind == "product":
        a, b = node.inputs
        inner = a.shape[0] if node.integers[0] else a.shape[1]
        full = 2.0 * node.shape[0] * node.shape[1] * inner
        if node.is_gram:
            return full / 6 if a.lower else full / 2
        both = 1 / 3 if any(node.integers) else 1 / 6
        return full * (both if a.lower and b.lower else 0.5 if a.lower or b.lower else 1.0)
    if node.kind == "lower":
        rows, columns = node.inputs[0].shape
        return 2.0 * rows**2 * (columns - rows / 3)
    if node.kind == "cholesky":
        return node.shape[0] ** 3 / 3
    if node.kind == "activated_gram":
        factor, (_, count, copies) = node.inputs[0], node.integers
        rows, inner = factor.shape
        return count * (copies * rows * inner * (1.0 if factor.lower else 2.0) + rows**2)
    return 0.0


def numbers(node: Node) -> int:
    """Count the random numbers of a node; a chi variable counts as a normal."""
    rows, columns = node.shape
    if node.kind == "normal":
        return rows * columns
    if node.kind == "wishart":
        return rows * (rows + 1) // 2
    if node.kind == "activated_gram":
        _, count, copies = node.integers
        return copies * node.inputs[0].shape[1] * count
    return 0


def seconds(run: Callable[[], object]) -> float:
    """Return this thread's processor time, which other work on the machine does not affect."""
    start = time.thread_time()
    run()
    return time.thread_time() - start


@dataclass
class Measured:
    """Medians for a layer: time, floor, their ratio, and seconds per operation and number."""

    layer: float
    floor: float
    ratio: float
    rate: float
    normal: float


def one_path(layer: sa.Block, tokens: int, is_chain: bool) -> Paths:
    """Return one path at its initial condition."""
    width = 2 * tokens if tokens > 512 else 1024
    spec = specify(
        layer,
        sa.equicorrelated(tokens, 0.2),
        width=width if is_chain else None,
        steps=1000,
        dt=1.0 / width if is_chain else STEP,
        samples=1,
        seed=0,
        chunk=1,
    )
    return Paths(BlasStepper(spec), 0, 1)


def measure(layer: sa.Block, tokens: int, is_chain: bool, rounds: int) -> Measured:
    """Time layers, products and random numbers in turns."""
    paths = one_path(layer, tokens, is_chain)
    nodes = paths.spec.programs[0].nodes
    work, count = sum(map(operations, nodes)), sum(map(numbers, nodes))
    size = min(tokens, 1024)
    a = np.random.default_rng(0).normal(size=(size, size))
    b = a.copy()
    product, normals = np.empty_like(a), np.empty((1, min(count, 2**18)))
    key, path = np.array([1, 2], dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    repeats = max(1, 2**24 // size**3)
    if rounds > 1:
        paths.advance(1)
        paths.advance(2)
    times = np.empty((rounds, 3))
    for i in range(rounds):
        with one_thread():
            times[i, 1] = seconds(lambda: [np.matmul(a, b, out=product) for _ in range(repeats)])
        times[i, 0] = seconds(lambda: paths.advance(1000))
        times[i, 2] = seconds(lambda: fill_normals(normals, key, path, 0))
    speeds = times[:, 1] / (2.0 * size**3 * repeats), times[:, 2] / normals.size
    floors = work * speeds[0] + count * speeds[1]
    ratio = times[:, 0] / floors
    return Measured(*(float(np.median(x)) for x in (times[:, 0], floors, ratio, *speeds)))


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 256, 512, 2048])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args(argv)
    print("| layer and sample | tokens | time | floor | ratio | product | normal |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for tokens in options.tokens:
        for name, (layer, is_chain) in LAYERS.items():
            found = measure(layer, tokens, is_chain, options.rounds if tokens <= 512 else 1)
            print(
                f"| {name} | {tokens} | {1e3 * found.layer:.3g} ms | {1e3 * found.floor:.3g} ms "
                f"| {found.ratio:.2f} | {1e-9 / found.rate:.0f} GFlop/s | "
                f"{1e9 * found.normal:.2f} ns |",
                flush=True,
            )


if __name__ == "__main__":
    main()
