"""The benchmark of an accelerator, rehearsed: every part runs, and none stops the others."""

from __future__ import annotations

import json
import logging

import pytest
import torch

import shaped_attention as sa
from benchmarks import accelerator
from shaped_attention.numerics.device import launch

PARTS = ["paths", "p_values", "speed", "networks", "samplers", "sweep", "llama"]


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


def test_all_parts_run_and_the_file_grows(rehearsal):
    measured, written = rehearsal
    assert [name for name in measured if name in PARTS] == PARTS
    failed = [name for name in PARTS if "failed" in measured[name]]
    assert failed == []
    assert sum(names[-1] == "speed" for names in written) == len(measured["speed"]) + 1
    assert max(measured["paths"].values()) < 1e-3
    assert {row["run"] for row in measured["speed"]} == {"chain", "direct", "clock"}
    assert len(measured["p_values"]) == 4


def test_what_fails_is_recorded_with_its_traceback(rehearsal):
    right, wrong = rehearsal[0]["networks"]
    assert right["over_larger"] > 1.0
    assert wrong["failed"] == "AttributeError: planted"
    assert "in failing" in wrong["traceback"]


@pytest.mark.parametrize("missing", ["_compile_kernel", "set_shared_memory_config"])
def test_a_torch_that_cannot_compile_runs_its_operations(monkeypatch, caplog, missing):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert launch.can_compile()
    owner = torch.cuda if missing == "_compile_kernel" else torch.cuda._utils._CudaKernel
    monkeypatch.delattr(owner, missing)
    launch._say_slow.cache_clear()
    with caplog.at_level(logging.WARNING, logger=launch.__name__):
        assert not launch.can_compile()
        assert not launch.can_compile()
    assert [x.message for x in caplog.records if "operations run one by one" in x.message] == [
        f"torch {torch.__version__} does not compile kernels at run time (2.13 does); "
        "its operations run one by one"
    ]
