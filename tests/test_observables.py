from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

from shaped_attention.numerics.observables import observables, observables_of


def wishart(samples: int, tokens: int, dof: int, seed: int = 0) -> NDArray[np.float64]:
    factor = np.random.default_rng(seed).normal(size=(samples, tokens, dof))
    return factor @ factor.transpose(0, 2, 1) / dof


def result(times: list[float], stopping: list[float], tokens: int = 2) -> xr.Dataset:
    V = np.stack([wishart(len(stopping), tokens, 8, seed) for seed in range(len(times))])
    return xr.Dataset(
        {"V": (("time", "sample", "row", "col"), V), "stopping_time": ("sample", stopping)},
        coords={"time": times},
    )


def test_known_values_of_an_equicorrelated_matrix() -> None:
    m, q, rho = 5, 2.0, 0.3
    V = q * (rho * np.ones((m, m)) + (1 - rho) * np.eye(m))
    values = {name: float(v[0]) for name, v in observables(V[None]).items()}
    large, small = q * (1 + (m - 1) * rho), q * (1 - rho)
    shares = np.array([large] + [small] * (m - 1)) / (m * q)
    assert values["log V[3,3]"] == pytest.approx(math.log(q), rel=1e-14)
    assert values["rho[1,4]"] == pytest.approx(rho, rel=1e-14)
    assert values["log det V"] == pytest.approx(math.log(large) + (m - 1) * math.log(small))
    assert values["log trace V"] == pytest.approx(math.log(m * q))
    assert values["log largest eigenvalue"] == pytest.approx(math.log(large))
    assert values["effective rank"] == pytest.approx(math.exp(-(shares @ np.log(shares))))
    assert values["mean |rho|"] == pytest.approx(rho)


@pytest.mark.parametrize("m", [2, 4, 9])
def test_repeated_tokens_hit_the_documented_floor(m: int) -> None:
    factor = np.random.default_rng(1).normal(size=(300, m, m + 3))
    factor[:, 1] = factor[:, 0]
    V = factor @ factor.transpose(0, 2, 1)
    values = observables(V, tokens=[0, 1])
    positive = np.linalg.eigvalsh(V)[:, 1:]
    floor = np.finfo(float).eps * m * positive[:, -1]
    np.testing.assert_allclose(values["log det V"], np.log(positive).sum(1) + np.log(floor))
    np.testing.assert_allclose(values["rho[0,1]"], 1.0, rtol=0, atol=1e-14)


def test_zero_tokens_and_zero_matrices_stay_finite() -> None:
    V = np.zeros((3, 3, 3))
    V[0, 0, 0] = 2.0
    V[1] = np.diag([1e300, 1e300, 0.0]) + 0.5e300 * (np.eye(3)[[1, 0, 2]] * [[1], [1], [0]])
    values = observables(V)
    assert all(np.isfinite(v).all() for v in values.values())
    assert values["rho[0,2]"].tolist() == [0.0, 0.0, 0.0]
    assert values["rho[0,1]"][1] == pytest.approx(0.5)
    np.testing.assert_allclose(values["effective rank"][[0, 2]], [1.0, 0.0])


def test_more_than_eight_tokens_use_eight_evenly_spaced_ones() -> None:
    names = list(observables(wishart(2, 15, 20)))
    expected = [0, 2, 4, 6, 8, 10, 12, 14]
    assert [n for n in names if "log V[" in n] == [f"log V[{a},{a}]" for a in expected]
    assert sum(n.startswith("rho[") for n in names) == 28
    assert sum(n.startswith("rho[") for n in observables(wishart(2, 15, 20), range(15))) == 105


@pytest.mark.parametrize(
    ("V", "tokens", "message"),
    [
        (np.full((2, 1, 1), np.nan), None, "V must be finite; it has infinities or NaN in 2 of 2"),
        (np.diag([1.0, -0.1])[None], None, "positive semidefinite.*1 of 1"),
        (np.eye(2)[None], [0, 2], r"tokens must be distinct integers in \[0, 1\]; got \[0, 2\]"),
    ],
)
def test_refused_covariances(V: NDArray[np.float64], tokens: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        observables(V, tokens)


def test_result_at_a_saved_time() -> None:
    data = result([0.0, 0.1 + 0.2, 1.0], [0.25, math.inf, 0.9])
    values = observables_of(data, 0.3)
    expected = observables(data["V"].to_numpy()[1])
    assert list(values) == [*expected, "stopping time"]
    for name, v in expected.items():
        np.testing.assert_array_equal(values[name], v)
    assert values["stopping time"].tolist() == [0.25, 1.0, 0.9]
    assert observables_of(data, 0.3, cap=0.3)["stopping time"].tolist() == [0.25, 0.3, 0.3]
