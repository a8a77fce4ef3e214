"""Time samples of whole models against a lower bound: ``python -m benchmarks.models``.

The floor of a sample is the time of the work that its programs cannot avoid: their products and
factorisations, counted from the nodes, at the speed of this machine's matrix product, and their
random numbers from the package's generator. Both run on all threads, in turns with the samples; a
ratio is the median over the rounds of the ratio within a round. Times of the process are summed
over threads: their ratio does not depend on what else the machine does. Each row runs in a process
of its own, since the peak memory is that of a process.

Building the model draws all its weights. One layer is built with `transformers` in float32, or one
with fewer hidden units if a layer does not fit, and the time is multiplied by the ratio of the
numbers of weights.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import shaped_attention as sa
from benchmarks.large import operations
from shaped_attention.architectures.configurations import read_config
from shaped_attention.models import simulate
from shaped_attention.numerics.fills import fill_normals
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import Stepper, stepper_of

LLAMA, GPT2 = read_config("llama-3.1-70b")[0], read_config("gpt2")[0]
MODELS = {"llama": LLAMA, "gpt2": GPT2}
ROWS = [("llama", 16, 1), ("llama", 16, 16), ("llama", 512, 1), ("gpt2", 1024, 1)]
_SIZE, _CELL = 1024, 2**15
_HIDDEN_BUILT = 3584


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return the time of a call, and that of the process."""
    start, own = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - own


def normals(count: int) -> None:
    """Draw normals on all threads, in buffers that fit into the cache."""
    threads = torch.get_num_threads()
    key = np.array([1, 2], dtype=np.uint64)

    def fill() -> None:
        buffer, paths = np.empty((1, _CELL)), np.zeros(1, dtype=np.uint64)
        for _ in range(max(1, count // threads // _CELL)):
            fill_normals(buffer, key, paths, 0, 0)

    together = [threading.Thread(target=fill) for _ in range(threads)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()


def counted(spec: Specification, depth: int) -> tuple[float, float]:
    """Return the operations of all products, and the random numbers, of a sample."""
    programs = [spec.programs[k % len(spec.programs)] for k in range(depth)]
    work = sum(operations(node) for program in programs for node in program.nodes)
    return work, float(sum(program.numbers for program in programs))


def measure(name: str, tokens: int, samples: int, depth: int | None, rounds: int) -> dict[str, Any]:
    """Time samples, products and random numbers in turns."""
    config = dict(MODELS[name])
    layers = "num_hidden_layers" if "num_hidden_layers" in config else "n_layer"
    config[layers] = depth or config[layers]
    specs: list[Specification] = []

    def keeping(spec: Specification) -> Stepper:
        specs.append(spec)
        return stepper_of(spec)

    simulate.stepper_of = keeping  # type: ignore[attr-defined]
    model = sa.model_from_config(config)

    def run(entropy: bool, count: int = samples) -> None:
        sa.simulate_model(model, tokens, samples=count, entropy=entropy, progress=False)

    normals(_CELL)
    if rounds > 1:
        run(True)
    else:
        # Compiles what is not yet in the cache.
        sa.simulate_model(config | {layers: 1}, 32, samples=1, progress=False)
    a = np.random.default_rng(0).normal(size=(_SIZE, _SIZE))
    b = a.copy()
    np.matmul(a, b)
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        times.setdefault("entropy", []).append(timed(lambda: run(True)))
        work, numbers = (samples * x for x in counted(specs[-1], model.depth))
        times.setdefault("plain", []).append(timed(lambda: run(False)))
        drawn = int(min(numbers, 2e8))
        repeats = int(max(1, min(work, 1e11) // (2 * _SIZE**3)))
        wall = timed(lambda drawn=drawn: normals(drawn))
        times.setdefault("normals", []).append(
            (wall[0] * numbers / drawn, wall[1] * numbers / drawn)
        )
        wall = timed(lambda repeats=repeats: [np.matmul(a, b) for _ in range(repeats)])
        factor = work / (2 * _SIZE**3 * repeats)
        times.setdefault("products", []).append((wall[0] * factor, wall[1] * factor))
    found = {key: np.array(pairs) for key, pairs in times.items()}
    floor = found["normals"] + found["products"]

    def median(x: Any) -> list[float]:
        return [float(y) for y in np.median(x, axis=0)]

    return {
        "numbers": numbers,
        "work": work,
        "times": {key: median(x) for key, x in found.items()},
        "against normals": median(found["plain"] / found["normals"]),
        "ratio": median(found["plain"] / floor),
        "ratio with entropy": median(found["entropy"] / floor),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def building() -> tuple[float, float]:
    """Return the time, and that of the process, of drawing all weights of the Llama's layers."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaPreTrainedModel

    fields = {key: x for key, x in LLAMA.items() if key != "model_type"}
    config = LlamaConfig(**(fields | {"intermediate_size": _HIDDEN_BUILT, "num_hidden_layers": 1}))

    class OneLayer(LlamaPreTrainedModel):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.layer = LlamaDecoderLayer(config, 0)
            self.post_init()

    built: list[Any] = []
    wall = timed(lambda: built.append(OneLayer(config)))
    weights = sum(x.numel() for x in built[0].parameters())
    n, width, d = LLAMA["hidden_size"], 8 * 128, LLAMA["intermediate_size"]
    every = LLAMA["num_hidden_layers"] * (2 * n * n + 2 * n * width + 3 * n * d + 2 * n)
    return wall[0] * every / weights, wall[1] * every / weights


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, help="number of layers, instead of all")
    parser.add_argument("--rounds", type=int, default=3, help="of rows that take seconds")
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(len(ROWS))))
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.row == "building":
        print(json.dumps(building()))
        return
    if options.row:
        name, tokens, samples = ROWS[int(options.row)]
        rounds = options.rounds if tokens < 100 else 1
        print(json.dumps(measure(name, tokens, samples, options.depth, rounds)))
        return

    def apart(row: str) -> Any:
        given = ["--rounds", str(options.rounds)]
        given += ["--depth", str(options.depth)] if options.depth else []
        command = [sys.executable, "-m", "benchmarks.models", "--row", row, *given]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    print(
        "| model | tokens | samples | time | with entropy | normals | products | ratio "
        "| with entropy | ratio to normals | peak |"
    )
    print("| --- |" + " ---: |" * 10)
    for k in options.rows:
        (name, tokens, samples), found = ROWS[k], apart(str(k))
        cells = [
            f"{found['times'][x][0]:.3g} s" for x in ("plain", "entropy", "normals", "products")
        ]
        ratios = [
            f"{found[x][0]:.2f} (process {found[x][1]:.2f})"
            for x in ("ratio", "ratio with entropy", "against normals")
        ]
        row = [name, str(tokens), str(samples), *cells, *ratios, f"{found['peak']:.2g} GiB"]
        print(f"| {' | '.join(row)} |", flush=True)
        print(
            f"  {found['numbers']:.3g} normals, {found['work'] / 1e12:.3g} TFLOP", file=sys.stderr
        )
    seconds, own = apart("building")
    print(
        f"\nBuilding the Llama's {LLAMA['num_hidden_layers']} layers, extrapolated from one layer "
        f"with {_HIDDEN_BUILT} hidden units: {seconds:.3g} s (process {own:.3g} s)."
    )


if __name__ == "__main__":
    main()
