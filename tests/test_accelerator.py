"""The benchmark of an accelerator, rehearsed: every part runs, and none stops the others."""

from __future__ import annotations

import ctypes
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from benchmarks import accelerator
from shaped_attention.numerics.device import launch
from shaped_attention.numerics.draws import Draws
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.steppers import tiles_on_device
from shaped_attention.samplers.task import task_of
from tests.host_kernels import needs_compiler, numbers_on_host

ROOT = Path(__file__).resolve().parents[1]
PARTS = ["paths", "bits", "laws", "samplers", "sweep", "llama", "networks", "speed"]


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    """The file of a rehearsal in which networks of one precision fail."""
    path = tmp_path_factory.mktemp("accelerator") / "out.json"
    written = []

    def write(measured):
        path.write_text(json.dumps(measured))
        written.append(list(measured))

    with pytest.MonkeyPatch.context() as patch:
        simulate = sa.simulate_network

        def failing(*args, dtype="float64", **named):
            if dtype == "float32":
                raise AttributeError("planted")
            return simulate(*args, dtype=dtype, **named)

        patch.setattr(sa, "simulate_network", failing)
        patch.setattr(accelerator, "STEPS", 4)
        accelerator.measure(torch.device("cpu"), 64, True, write)
    return json.loads(path.read_text()), written


def test_all_rows_run_and_the_file_grows(rehearsal):
    measured, written = rehearsal
    assert [name for name in measured if name in PARTS] == PARTS
    rows = {(part, name): row for part in PARTS for name, row in measured[part].items()}
    assert [key for key, row in rows.items() if "failed" in row] == [
        ("networks", "n = 16, float32")
    ]
    assert len(written) == len(rows)
    assert max(row["distance"] for row in measured["paths"].values()) < 1e-3
    assert all(row == {"again": True, "in_chunks": True} for row in measured["bits"].values())
    assert measured["sweep"]["64 cells"]["units"] == 64
    speeds = measured["speed"].values()
    assert all(
        row["share_of_numbers"] == pytest.approx(row["numbers_ns"] / row["ns"]) for row in speeds
    )
    compared = measured["samplers"]["network, chain, SDE"]
    assert {"network_against_chain", "network_against_sde", "chain_against_sde"} <= set(compared)


@needs_compiler
def test_the_floor_draws_the_numbers_of_all_steps():
    """The benchmark's own kernel, compiled for the host with a thread after another."""
    of_a_device = "struct Place { unsigned x; };\nstatic Place blockIdx, blockDim, threadIdx;\n"
    kernel = of_a_device + accelerator.NUMBERS.replace("__global__", "")
    call = """
extern "C" void run(double* a, const u64* b, double c, int d, int e) {
  for (threadIdx.x = 0; threadIdx.x < 4; ++threadIdx.x) numbers(a, b, c, d, e);
}
"""
    key, sums = np.array([1, 2], dtype=np.uint64), np.full(4, np.nan)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (sums, key)]
    numbers_on_host("float64", kernel, call).run(*pointers, ctypes.c_double(3), 2, 5)
    expected = sum(
        Draws(key, torch.arange(3), step).normals_at(0, 0, 10).sum(1).numpy() for step in range(2)
    )
    np.testing.assert_allclose(sums[:3], expected, rtol=1e-12)
    assert np.isnan(sums[3])


def test_what_fails_is_recorded_with_its_traceback(rehearsal):
    right, wrong = rehearsal[0]["networks"].values()
    assert right["over_larger"] > 1.0
    assert wrong["failed"] == "AttributeError: planted"
    assert "in failing" in wrong["traceback"]


def test_no_row_begins_after_the_time(monkeypatch):
    kept = {}
    accelerator.measure(torch.device("cpu"), 64, True, kept.update, limit=0.0)
    found = [row for part in PARTS for row in kept[part].values()]
    assert all(row == {"skipped": "0 s were over"} for row in found)
    assert "| paths | chain, m = 2, float64 | not measured |" in accelerator.table({})
    filled = accelerator.table({"laws": {"chain": {"p": 0.12345, "traceback": "..."}}})
    assert "| laws | chain | p 0.123 |" in filled


def test_the_table_of_the_readme_has_every_row():
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    rows = [line.rsplit("|", 2)[0] for line in accelerator.table({}).splitlines()]
    assert len(rows) == 71
    assert [row for row in rows if row not in page] == []


def forget():
    launch.can_compile.cache_clear()
    launch.say_slow.cache_clear()


@pytest.mark.parametrize("missing", ["_compile_kernel", "set_shared_memory_config"])
def test_a_torch_that_cannot_compile_runs_its_operations(monkeypatch, caplog, missing):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(launch, "compiled", lambda *_: None)
    device = torch.device("cuda")
    forget()
    assert launch.can_compile(device)
    forget()
    owner = torch.cuda if missing == "_compile_kernel" else torch.cuda._utils._CudaKernel
    monkeypatch.delattr(owner, missing)
    with caplog.at_level(logging.WARNING, logger=launch.__name__):
        assert not launch.can_compile(device)
        assert not launch.can_compile(device)
    forget()
    assert [x.message for x in caplog.records if "torch run one by one" in x.message] == [
        f"torch {torch.__version__} does not compile kernels at run time (2.13 does); "
        "operations of torch run one by one"
    ]


class Refused:
    """A compiler that knows the kernel of numbers only, or not even that."""

    def __init__(self, numbers: bool, error: Exception) -> None:
        self.numbers, self.error = numbers, error

    def __call__(self, source: str, name: str, device: torch.device) -> Any:
        if name == "fill_normals" and self.numbers:
            return None
        raise self.error


UNKNOWN = RuntimeError("nvrtc: invalid value for --gpu-architecture")
MISSING = OSError("Could not find any NVRTC library")


@pytest.mark.parametrize(
    ("numbers", "error", "reason"),
    [
        (False, UNKNOWN, "kernels cannot be compiled for cuda:0"),
        (False, MISSING, "kernels cannot be compiled for cuda:0"),
        (True, UNKNOWN, "the kernel of this layer cannot be compiled"),
    ],
)
def test_a_device_that_the_compiler_does_not_know_runs_operations(
    monkeypatch, caplog, numbers, error, reason
):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(launch, "compiled", Refused(numbers, error))
    monkeypatch.setattr(launch, "_shared_bytes", lambda _: 2**16)
    spec = specify(sa.ShapedAttention(0.3), np.eye(4), width=64, steps=2, dt=1 / 64, samples=1,
                   seed=0)  # fmt: skip
    monkeypatch.setattr(type(spec), "device", torch.device("cuda:0"))
    forget()
    with caplog.at_level(logging.WARNING, logger=launch.__name__):
        for _ in range(2):
            assert tiles_on_device.stepper_of(spec, task_of(spec, "chain", 64)) is None
    forget()
    (message,) = [x.message for x in caplog.records]
    assert message == (f"{reason} ({error}); operations of torch run one by one")
