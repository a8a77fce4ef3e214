"""Code for devices: run on the CPU, one thread after the other, and assembled for a device."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.compiler.ptx import ptx
from shaped_attention.numerics.device_code import fill_pairs
from shaped_attention.numerics.draws import stream_key
from shaped_attention.numerics.fills import fill_normals, path_words
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import Specification, specify
from shaped_attention.samplers.steppers.compiled import BlockStepper
from shaped_attention.samplers.steppers.device import DeviceStepper

HEADS = sa.ShapedAttention(0.4, heads=2, mask="causal", output_projection=True)
SWISH = sa.ShapedMLP(0.4, activation="silu", gated=True, hidden=48, skip=1.0)
BOTH = [sa.ShapedAttention(0.5, 0.7), sa.ShapedMLP(sa.Schedule([(0.0, 0.2), (1.0, 0.5)]))]

PROGRAMS: dict[str, tuple[Any, int, int | None]] = {
    "attention, 2": (sa.ShapedAttention(0.35), 2, 64),
    "attention, 4": (sa.ShapedAttention(0.35), 4, 64),
    "attention, 6": (sa.ShapedAttention(0.35), 6, 64),
    "attention, 8": (sa.ShapedAttention(0.35), 8, 64),
    "heads, 4": (HEADS, 4, 64),
    "heads, 8": (HEADS, 8, 64),
    "mlp, 4": (sa.ShapedMLP(0.35), 4, 64),
    "mlp, 8": (sa.ShapedMLP(0.35), 8, 64),
    "gated, 4": (SWISH, 4, 64),
    "both, 4": (BOTH, 4, 64),
    "limit of attention, 4": (sa.ShapedAttention(0.35), 4, None),
    "limit of both, 4": (BOTH, 4, None),
}
"""Layer, tokens, and width of the chain."""


def run_of(name: str, dtype: str = "float64") -> Specification:
    layer, tokens, width = PROGRAMS[name]
    v0 = sa.equicorrelated(tokens, 0.2, 1.3)
    return specify(
        layer, v0, width=width, steps=6, dt=0.02, samples=9, seed=2,
        dtype=dtype, radius=1.1 * float(np.linalg.norm(v0)),
    )  # fmt: skip


@pytest.mark.portability
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "float64") for name in PROGRAMS if not name.endswith(", 8")]
    + [(name, "float32") for name in ("attention, 4", "heads, 4", "both, 4", "limit of both, 4")],
)
def test_paths_are_those_of_vectors(name: str, dtype: str) -> None:
    """A thread does what a lane does, and stops at the same time."""
    spec = run_of(name, dtype)
    runs = [Paths(stepper, 3, 9) for stepper in (BlockStepper(spec), DeviceStepper(spec))]
    for paths in runs:
        while paths.behind(6):
            paths.advance(6, 4)
    ours, theirs = (paths.covariances() for paths in runs)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(theirs, ours, rtol=0.0, atol=100 * eps * np.abs(ours).max())
    times = [paths.stopping_times() for paths in runs]
    np.testing.assert_array_equal(*times)
    if name == "attention, 4":
        assert 0 < np.isfinite(times[0]).sum() < 9


@pytest.mark.portability
@pytest.mark.parametrize("count", [2, 7, 30])
def test_normals(count: int) -> None:
    """A thread writes a pair of normals; the first pair is not the first of its slot."""
    key, paths = stream_key(5, "network"), path_words(np.arange(3, 6), 7)
    expected, out = np.empty((3, count)), torch.empty(3, (count + 1) // 2, 2, dtype=torch.float64)
    fill_normals(expected, key, paths, 9, 4)
    fill_pairs(out, key, torch.from_numpy(paths.view(np.int64)), (9 << 40) + 4)
    np.testing.assert_allclose(out.flatten(1)[:, :count], expected, atol=5e-15)


def ptxas() -> str | None:
    """Return the assembler of the package nvidia-cuda-nvcc."""
    found = sorted(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/*/bin/ptxas"))
    return str(found[-1]) if found else shutil.which("ptxas")


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas of the package nvidia-cuda-nvcc")
@pytest.mark.parametrize("name", [x for x in PROGRAMS if x not in ("attention, 2", "mlp, 4")])
def test_registers_and_spills(name: str, tmp_path: Path) -> None:
    """What a thread needs on a device of kind sm_90, without such a device."""
    spec = run_of(name)
    text, _ = DeviceStepper(spec).code.text(spec.width is None, True)
    (tmp_path / "kernel.ptx").write_text(ptx(text))
    shown = subprocess.run(
        [str(ptxas()), "-v", "-arch=sm_90", str(tmp_path / "kernel.ptx"), "-o",
         str(tmp_path / "kernel.cubin")],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    registers = max(int(x) for x in re.findall(r"Used (\d+) registers", shown))
    spills = sum(int(x) for x in re.findall(r"(\d+) bytes spill", shown))
    assert registers <= 255
    assert spills <= 128
