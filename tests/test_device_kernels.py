"""Kernels of a CUDA device, compiled for the host: every operation and every way of stepping."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import cpp_extension

import shaped_attention as sa
from benchmarks import accelerator
from shaped_attention.numerics.device import launch
from shaped_attention.numerics.device.source import (
    FIELDS,
    kernel_source,
    numbers_source,
    warps_of,
)
from shaped_attention.numerics.operations import registry
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.primitives import exp, softplus
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.task import task_of
from tests import host_kernels
from tests.golden_paths import FILE, HOT, LAYER, RUNS, V0, values
from tests.host_kernels import HostKernel, in_place_of_tiles, needs_compiler

FROZEN = json.loads(FILE.read_text())
CHAINS = ["chain, tiles", "chain, groups", "chain, LayerNorm", "chain, smooth", "chain, narrow"]
LIMITS = ["SDE, direct", "SDE, clock"]
MODELS = ["GPT-2", "Llama"]
PATTERN = sa.Pattern([sa.ShapedAttention(0.35), [sa.ShapedMLP(0.5), sa.ShapedAttention(0.2)]])
RISING = sa.Schedule([(0.0, 0.1), (1.0, 0.6)])


def soft(x: Any) -> Any:
    """An activation that no other test layer has."""
    return softplus(0.5 * x)


def hill(x: Any) -> Any:
    """Another, with an exponential and a number over a matrix."""
    return x * (1.0 / exp(0.5 * (x * x)))


def bumped(block_activation: str) -> sa.ShapedMLP:
    return sa.ShapedMLP(0.5, activation=block_activation, scale=1.0)


OTHERS = {
    "relu, limit": lambda: sa.integrate_sde(
        LAYER, V0, horizon=0.06, step=0.02, samples=3, seed=7, method="direct"
    ),
    "exp": lambda: sa.simulate_chain(
        bumped("tests.test_device_kernels:hill"), V0, width=8, depth=3, samples=3, seed=7
    ),
    "softplus": lambda: sa.simulate_chain(
        bumped("tests.test_device_kernels:soft"), V0, width=8, depth=3, samples=3, seed=7
    ),
    "pattern": lambda: sa.simulate_chain(PATTERN, V0, width=16, depth=5, samples=3, seed=7),
    "schedule": lambda: sa.simulate_chain(
        sa.ShapedAttention(RISING), V0, width=16, depth=5, samples=3, seed=7
    ),
    "a warp for each path": lambda: sa.simulate_chain(
        LAYER, sa.equicorrelated(8, 0.3), width=16, depth=2, samples=2, seed=7
    ),
    "a warp for each path, clock": lambda: sa.integrate_sde(
        HOT, sa.equicorrelated(7, 0.3), horizon=0.1, step=0.05, samples=2, seed=7, method="clock"
    ),
    "equal tokens": lambda: sa.simulate_chain(
        LAYER, np.kron(np.eye(2), np.ones((2, 2))), width=16, depth=4, samples=3, seed=7
    ),
    "stopped": lambda: sa.integrate_sde(
        HOT, V0, horizon=0.6, step=0.05, samples=20, seed=7, radius=4.0, method="clock"
    ),
    "stopped, fixed step": lambda: sa.integrate_sde(
        HOT, V0, horizon=0.6, step=0.05, samples=20, seed=7, radius=4.0, method="direct"
    ),
    "tangents": lambda: sa.simulate_chain(
        sa.WithTangents(sa.Normalised(sa.ShapedAttention(0.5), "before", norm="rms")),
        V0,
        width=16,
        depth=3,
        samples=3,
        seed=7,
    ),
}


def by_kernel(run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    before = len(HostKernel.launches)
    with in_place_of_tiles(monkeypatch):
        result = run()
    assert len(HostKernel.launches) > before
    return result


@needs_compiler
@pytest.mark.parametrize("name", [*CHAINS, *LIMITS, *MODELS])
def test_paths_are_those_that_were_frozen(name, monkeypatch):
    paths = by_kernel(lambda: values(name), monkeypatch)
    np.testing.assert_allclose(paths, FROZEN[name], rtol=1e-8, atol=1e-8)


@needs_compiler
def test_single_precision(monkeypatch):
    name = "chain, float32"
    paths = by_kernel(lambda: values(name), monkeypatch)
    np.testing.assert_allclose(paths, FROZEN[name], rtol=2e-4, atol=2e-4)
    assert not np.allclose(paths, FROZEN[name], rtol=1e-9, atol=1e-9)


@needs_compiler
@pytest.mark.parametrize("radius", [None, 4.0])
def test_the_clock_in_single_precision(radius, monkeypatch):
    """Rounding changes the number of steps of few paths: those agree that take as many."""
    run = {"horizon": 0.3, "step": 0.05, "samples": 60, "seed": 7, "method": "clock"}

    def single():
        return sa.integrate_sde(HOT, V0, dtype="float32", radius=radius, save_every=1, **run)

    double = sa.integrate_sde(HOT, V0, radius=radius, save_every=1, **run)
    paths = by_kernel(single, monkeypatch)
    same = paths["steps_taken"].values == double["steps_taken"].values
    assert same.mean() >= 0.9
    assert np.isfinite(paths["stopping_time"]).any() == (radius is not None)
    np.testing.assert_allclose(paths["V"][:, same], double["V"][:, same], rtol=2e-3, atol=2e-3)
    assert not np.allclose(paths["V"][:, same], double["V"][:, same], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        paths["stopping_time"][same], double["stopping_time"][same], rtol=1e-6
    )


@needs_compiler
@pytest.mark.filterwarnings("ignore:method='direct'")
@pytest.mark.parametrize("name", OTHERS)
def test_paths_are_those_of_tiles(name, monkeypatch):
    """Times at which paths stop are equal, and what is kept of the paths to rounding."""
    expected, result = OTHERS[name](), by_kernel(OTHERS[name], monkeypatch)
    np.testing.assert_allclose(result["V"], expected["V"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result["stopping_time"], expected["stopping_time"], rtol=1e-12)
    if name.startswith("stopped"):
        assert 0 < np.isfinite(expected["stopping_time"]).sum() < 20
    if "steps_taken" in expected:
        np.testing.assert_array_equal(result["steps_taken"], expected["steps_taken"])
        np.testing.assert_allclose(result["largest_speed"], expected["largest_speed"], rtol=1e-9)


@needs_compiler
@pytest.mark.filterwarnings("ignore:method='direct'")
@pytest.mark.parametrize(
    ("fault", "mended"),
    [
        ("mix(x0, x1, 16, 42, 12, 31)", "mix(x0, x1, 16, 41, 12, 31)"),
        ("L::COUNT - 2 * k", "L::COUNT - 2 * k + 1"),
        ("stop = (step + 1) * run.dt", "stop = step * run.dt"),
    ],
    ids=["generator", "degrees of freedom", "stopping time"],
)  # fmt: skip
def test_a_fault_in_the_source_is_noticed(fault, mended, monkeypatch):
    """Negative control of the tests above."""

    class Faulty(HostKernel):
        def __init__(self, source, *rest):
            assert fault in source
            super().__init__(source.replace(fault, mended), *rest)

    monkeypatch.setattr(host_kernels, "HostKernel", Faulty)
    name = "stopped, fixed step" if "stop" in fault else "equal tokens"
    expected, result = OTHERS[name](), by_kernel(OTHERS[name], monkeypatch)
    same = [
        np.allclose(result[variable], expected[variable], rtol=1e-9, atol=1e-9)
        for variable in ("V", "stopping_time")
    ]
    assert not all(same)


class _SourceOnlyError(Exception):
    """Raised in place of a launch."""


@pytest.mark.quick
def test_every_operation_is_in_a_kernel_of_these_tests(monkeypatch):
    """A new operation needs a function in ``operations.cuh``, and a run here that has it."""
    seen: set[str] = set()

    class Recorder:
        def __init__(self, source, *_):
            seen.update(re.findall(r"(\w+)<I\d+>\(x", source))

        def __call__(self, *_):
            raise _SourceOnlyError

    monkeypatch.setattr(host_kernels, "HostKernel", Recorder)
    runs = [RUNS[name] for name in (*CHAINS, *LIMITS, *MODELS)] + list(OTHERS.values())
    with in_place_of_tiles(monkeypatch):
        for run in runs[:-1]:
            with pytest.raises(_SourceOnlyError):
                run()
    assert {"hidden_start", "hidden_draw", "hidden_add"} <= seen
    kinds = {name.removesuffix("_of") for name in seen}
    # Parts of a sum over hidden units, and recorded gradients, are for threads of the host.
    assert set(OPERATIONS) - kinds == {"activated_gram", "orthonormal", "sum_of_parts"}


def test_fields_have_the_names_of_the_registry():
    assert [getattr(registry, name) for name in FIELDS] == list(range(registry.SIZE))


def test_a_few_tokens_have_a_thread_and_more_a_warp():
    """The buffer of a path with one thread is in registers, so all of its loops are unrolled."""
    assert "#define THREADS 1\n" in kernel_of(4)[0]
    assert "#define THREADS 32\n" in kernel_of(16)[0]


def kernel_of(tokens: int) -> tuple[str, Any]:
    """Return the source of a chain's kernel, and its program."""
    v0 = sa.equicorrelated(tokens, 0.2)
    spec = specify(sa.ShapedAttention(0.3), v0, width=64, steps=2, dt=1 / 64, samples=1, seed=0)
    task = task_of(spec, "chain", 64)
    return kernel_source(task.programs, task.compiled, False, "float64", False), task.compiled


@pytest.mark.parametrize(
    ("kilobytes", "tokens", "paths", "shared"),
    [(96, 16, 4, 1), (227, 16, 4, 1), (64, 16, 3, 1), (64, 32, 1, 0), (96, 32, 1, 1)],
)
def test_a_block_takes_no_more_shared_memory_than_the_device_has(
    kilobytes, tokens, paths, shared, monkeypatch
):
    """A device of 2018 has 64 KiB, which a path of 32 tokens exceeds."""
    asked, sources, grids = [], [], []

    class Compiled:
        set_shared_memory_config = staticmethod(asked.append)

        def __init__(self, source, name, device):
            sources.append(source)

        def __call__(self, grid, block, arguments, shared):
            grids.append(grid[0])
            assert shared == sum(asked)

    properties = SimpleNamespace(shared_memory_per_block_optin=kilobytes * 1024)
    monkeypatch.setattr(launch, "compiled", Compiled)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    source, packed = kernel_of(tokens)
    kernel = launch.CudaKernel(source, packed, "float64", torch.device("cpu"))
    assert sources[0].startswith(f"#define SHARED {shared}\n")
    assert (kernel.paths, asked) == (paths, [paths * 8 * (packed.rows + 1)] * shared)
    assert max(asked, default=0) <= kilobytes * 1024
    # Otherwise the buffers are in main memory: those of the paths that run at a time.
    for rows, groups in ((5, 5), (5000, 4096), (5, 4096)):
        kernel(rows, [], [])
        assert kernel.scratch.numel() == (1 if shared else groups * (packed.rows + 1))
    assert grids == (
        [-(-5 // paths), -(-5000 // paths), -(-5 // paths)] if shared else [5, 4096, 5]
    )


COMPILER_OF_DEVICES = shutil.which("nvcc")


@pytest.mark.skipif(COMPILER_OF_DEVICES is None, reason="needs nvcc")
@pytest.mark.parametrize("tokens", [4, 8], ids=["a thread", "a warp"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["chain", "direct", "clock"])
def test_kernels_compile_for_a_device(kind, precision, tokens, tmp_path):
    """Without a device: what the host's compiler accepts, that of a device may not."""
    width, v0 = (64 if kind == "chain" else None), sa.equicorrelated(tokens, 0.2)
    spec = specify(LAYER, v0, width=width, steps=2, dt=1 / 64, samples=1, seed=0)
    task = task_of(spec, *(("chain", 64) if width else ("sde", None, kind)))
    clock = kind == "clock"
    packed = task.compiled_clock if clock else task.compiled
    programs = task.clock_programs if clock else task.programs
    source = kernel_source(programs, packed, kind == "direct", precision, clock)
    shared = int(warps_of(packed, precision, 96 * 1024) > 0)
    _compile_for_a_device(f"#define SHARED {shared}\n{source}", tmp_path)


@pytest.mark.skipif(COMPILER_OF_DEVICES is None, reason="needs nvcc")
@pytest.mark.parametrize("kernel", [None, accelerator.NUMBERS], ids=["weights", "floor"])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_kernels_of_numbers_compile_for_a_device(precision, kernel, tmp_path):
    _compile_for_a_device(numbers_source(precision, kernel), tmp_path)


def _compile_for_a_device(source: str, folder: Path) -> None:
    assert COMPILER_OF_DEVICES is not None
    (folder / "kernel.cu").write_text(source)
    command = [COMPILER_OF_DEVICES, "-cubin", "-arch=sm_90", "-Werror", "all-warnings", "kernel.cu"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def test_kernels_compile_without_a_toolkit(monkeypatch):
    """Torch asks for the toolkit's headers, whether a kernel includes any or not."""
    with monkeypatch.context() as patch:
        patch.setattr(cpp_extension, "CUDA_HOME", None)
        patch.setattr(torch.cuda, "device", nullcontext)
        patch.setattr(torch.cuda, "_compile_kernel", lambda *_: cpp_extension.include_paths("cuda"))
        with pytest.raises(OSError, match="CUDA_HOME"):
            torch.cuda._compile_kernel("", "")
        assert launch.compiled("no toolkit", "advance", torch.device("cpu"))
        assert cpp_extension.CUDA_HOME is None
    launch.compiled.cache_clear()
