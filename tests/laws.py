"""Statistics that several tests need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

import shaped_attention as sa
from shaped_attention.numerics.observables import observables
from shaped_attention.samplers.steppers import blas


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch have so many threads, and those of before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def final(result: xr.Dataset) -> NDArray[np.float64]:
    """Covariances (samples, m, m) at the last stored time."""
    return np.asarray(result["V"].isel(time=-1))


def ks_p_values(first: xr.Dataset, second: xr.Dataset) -> dict[str, float]:
    """Two-sample Kolmogorov-Smirnov p-values of every observable at the last stored time."""
    a, b = observables(final(first)), observables(final(second))
    return {name: float(stats.ks_2samp(a[name], b[name]).pvalue) for name in a}


def same_law(first: xr.Dataset, second: xr.Dataset, level: float = 1e-3) -> bool:
    """Whether no observable differs at `level`, with a Bonferroni correction."""
    p = ks_p_values(first, second)
    return min(p.values()) > level / len(p)


def assert_executors_agree(
    paths: Callable[[], NDArray[np.float64]], monkeypatch: pytest.MonkeyPatch, error: float = 1e-10
) -> None:
    """Emitted code and library routines give the paths of torch, to `error` of the largest."""
    with sa.eager():
        expected = paths()
    for fewest in (blas.FEWEST_LARGE_TOKENS, 1):
        monkeypatch.setattr(blas, "FEWEST_LARGE_TOKENS", fewest)
        found = paths()
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=error * np.abs(expected).max())


def log_det(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the determinant."""
    return np.linalg.slogdet(v)[1]
