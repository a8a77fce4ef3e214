"""The benchmark of a device, with the CPU in its place."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from benchmarks import accelerator


def test_every_row_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "STEPS", 2)
    with sa.eager():  # as devices do, with rounded normals in single precision
        found = list(accelerator.rows("cpu", 64, (4,)))
    assert [row[:3] for row in found] == [
        (kind, dtype, 4) for kind in accelerator.KINDS for dtype in accelerator.PRECISIONS
    ]
    assert min(row[3] for row in found) > 1e-3
    assert max(row[4] for row in found) < 1e-3
    assert {row[4] for row in found if row[1] == "float64"} == {0.0}
    assert np.min([row[5:] for row in found]) > 0.0


def test_the_control_is_rejected() -> None:
    """Half of the time changes log det V by several standard errors of 1,024 samples."""
    assert accelerator.control("cpu", 1024) < 1e-10
