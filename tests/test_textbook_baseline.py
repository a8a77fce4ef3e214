"""The textbook baseline solves the stated equation: entries, moments of a step, laws at T.

The package's own integrator has its law.

Notation: k = gamma^2 (2 - gamma^2), Z symmetric with variance 1 off and 2 on the diagonal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor

import shaped_attention as sa
from benchmarks import textbook_sde
from benchmarks.textbook_sde import TextbookSDE, simulate
from tests.laws import same_law

"""Width of the tolerances in standard errors."""

SIGMAS = 4.5
"""Width of the tolerances in standard errors."""

CORRELATED = sa.equicorrelated(3, 0.2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take 20 times the time of the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_covariance(m: int, seed: int) -> Tensor:
    factor = np.random.default_rng(seed).normal(size=(m, m + 2))
    return torch.from_numpy(factor @ factor.T / m)


def sigma_by_loops(v: Tensor, gamma: float, tau0: float) -> Tensor:
    """Sigma(V) entry by entry, with R = V C V C V / m^2 written out as sums."""
    m = len(v)
    c = [[(i == j) - 1 / m for j in range(m)] for i in range(m)]
    r = [[0.0] * m for _ in range(m)]
    for i, j in itertools.product(range(m), repeat=2):
        for e, f, g, h in itertools.product(range(m), repeat=4):
            r[i][j] += float(v[i, e] * c[e][f] * v[f, g] * c[g][h] * v[h, j]) / m**2
    pairs = [(i, j) for i in range(m) for j in range(i + 1)]
    sigma = torch.empty(len(pairs), len(pairs), dtype=torch.float64)
    for row, (i, j) in enumerate(pairs):
        for column, (e, f) in enumerate(pairs):
            linear = v[i, e] * v[j, f] + v[i, f] * v[j, e]
            attention = (
                v[i, e] * r[j][f] + v[j, f] * r[i][e] + v[i, f] * r[j][e] + v[j, e] * r[i][f]
            )
            sigma[row, column] = gamma**2 * (2 - gamma**2) * linear + gamma**4 / tau0**2 * attention
    return sigma


def drift_by_loops(v: Tensor, gamma: float, tau0: float) -> Tensor:
    """b(V) entry by entry."""
    m = len(v)
    x = v.numpy()
    rows, total = x.mean(1), x.mean()
    p = [[x[i, j] - rows[i] - rows[j] + total for j in range(m)] for i in range(m)]
    norm = sum(p[i][j] ** 2 for i in range(m) for j in range(m))
    trace = sum(p[i][i] for i in range(m))
    u = [sum(x[i, j] * (p[j][j] - trace / m) for j in range(m)) for i in range(m)]
    b = torch.empty(m, m, dtype=torch.float64)
    for i, j in itertools.product(range(m), repeat=2):
        pair = (x[i, i] * u[j] + x[j, j] * u[i]) / (2 * m)
        b[i, j] = gamma**2 / tau0**2 * (norm / m**2 * x[i, j] + pair)
    return b


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_entries_equal_direct_loops(m: int) -> None:
    gamma, tau0 = 0.8, 0.6
    sde = TextbookSDE(m, gamma, tau0)
    v = torch.stack([random_covariance(m, seed) for seed in (1, 2, 3)])
    y = sde.vech(v)
    time = torch.zeros(())
    torch.testing.assert_close(sde.matrices(y), v, rtol=0, atol=0)
    sigma, factor, drift = sde.diffusion(y), sde.g(time, y), sde.matrices(sde.f(time, y))
    for index in range(3):
        expected = sigma_by_loops(v[index], gamma, tau0)
        torch.testing.assert_close(sigma[index], expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(factor[index] @ factor[index].T, expected, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(
            drift[index], drift_by_loops(v[index], gamma, tau0), rtol=1e-12, atol=1e-12
        )


class StoppedSDE(TextbookSDE):
    """The textbook's equation, with paths that stay where they are from |V| >= 15 on."""

    def inside(self, y: Tensor) -> Tensor:
        return (self.matrices(y).norm(dim=(1, 2)) < 15.0)[:, None]

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return super().f(t, y) * self.inside(y)

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        inside = self.inside(y)
        harmless = self.vech(torch.eye(self.tokens, dtype=y.dtype)[None])
        return super().g(t, torch.where(inside, y, harmless)) * inside[:, None]


class LouderSDE(StoppedSDE):
    """Wrong: 1.2 Sigma."""

    def diffusion(self, y: Tensor) -> Tensor:
        return 1.2 * super().diffusion(y)


class SilentScoresSDE(StoppedSDE):
    """Wrong: without attention's own noise."""

    def diffusion(self, y: Tensor) -> Tensor:
        self.attention = 0.0
        return super().diffusion(y)


class StratonovichSDE(StoppedSDE):
    """Wrong: the drift that is left if the linear noise is read as Stratonovich's."""

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return super().f(t, y) + self.linear * (self.tokens + 1) / 2 * y * self.inside(y)


@pytest.fixture(scope="module")
def integrated() -> xr.Dataset:
    """The package's SDE, stopped at the same radius, which 3 % of the paths reach.

    At a step of 0.004 some paths of the textbook lose their definiteness before that.
    """
    with pytest.warns(UserWarning, match="reached the radius with a fixed step"):
        return sa.integrate_sde(
            sa.ShapedAttention(0.6, 0.5), CORRELATED, horizon=0.4, step=0.002, samples=4000, seed=1,
            radius=15.0, method="direct",
        )  # fmt: skip


def law_of_textbook(equation: type[StoppedSDE], monkeypatch: pytest.MonkeyPatch) -> xr.Dataset:
    """What the textbook's solver of an equation ends in, laid out as a result."""
    monkeypatch.setattr(textbook_sde, "TextbookSDE", equation)
    end = simulate(torch.from_numpy(CORRELATED), 0.6, 0.5, 0.4, 0.002, 4000, seed=2)
    return xr.Dataset({"V": (("time", "sample", "row", "col"), end.numpy()[None])})


def test_the_package_and_the_textbook_have_one_law(
    integrated: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KS of all 11 observables of the stopped V_T, level 1e-3 in all, 4,000 paths each.

    The two share no code and no random numbers. A shift of an observable by 0.12 standard
    deviations would be seen half of the time.
    """
    assert same_law(integrated, law_of_textbook(StoppedSDE, monkeypatch))


@pytest.mark.parametrize("wrong", [LouderSDE, SilentScoresSDE, StratonovichSDE])
def test_wrong_textbooks_have_another_law(
    wrong: type[StoppedSDE], integrated: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls of the test above, at its sizes."""
    assert not same_law(integrated, law_of_textbook(wrong, monkeypatch))


def test_the_seed_alone_decides() -> None:
    """Global generators are watched by the fixture of conftest.py."""
    first, again, other = (
        simulate(random_covariance(2, 1), 0.2, 1.0, 0.3, 0.1, 4, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_path_that_loses_definiteness_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="not positive-definite"):
        simulate(random_covariance(2, 1), 1.0, 1.0, 4.0, 0.5, 64, seed=1)


def test_one_step_has_the_mean_and_covariance_of_the_formulas() -> None:
    # One Euler step is Gaussian with mean V + b h and covariance Sigma h, however long it is.
    m, gamma, tau0, step, samples = 3, 0.9, 0.4, 0.5, 40_000
    v = random_covariance(m, 5)
    sde = TextbookSDE(m, gamma, tau0)
    moved = sde.vech(simulate(v, gamma, tau0, step, step, samples, seed=3) - v) / step
    sigma = sigma_by_loops(v, gamma, tau0)
    drift = sde.vech(drift_by_loops(v, gamma, tau0)[None])[0]

    error = (sigma.diagonal() / (step * samples)).sqrt()
    assert ((moved.mean(0) - drift).abs() < SIGMAS * error).all()
    # Without the drift the same comparison fails.
    assert (moved.mean(0).abs() > 2 * SIGMAS * error).any()

    found = torch.cov(moved.T) * step
    variance = torch.outer(sigma.diagonal(), sigma.diagonal()) + sigma**2
    error = (variance / samples).sqrt()
    assert ((found - sigma).abs() < SIGMAS * error).all()
    # Nor does the covariance agree if attention's own noise is left out.
    without = sigma_by_loops(v, gamma, 1e6)
    assert ((found - without).abs() > 2 * SIGMAS * error).any()


def test_laws_at_the_horizon_without_attention_noise() -> None:
    # As tau0 -> infinity one Euler step is V' = F (1 + e Z) F^T with e^2 = k h, for V = F F^T:
    # log det V grows by log det(1 + e Z), log V_aa by log(1 + e Z_aa). The second order of the
    # logarithm gives the exact means, -k m(m+1) T/2 and -k T; the fourth, -e^4 E tr Z^4 / 4 with
    # E tr Z^4 = 2 m^3 + 5 m^2 + 5 m (12 for one entry), is the bias of the step. The sixth order
    # is that bias times (2/3) e^2 E tr Z^6 / E tr Z^4 < 10 m e^2, which bounds what is then left.
    m, gamma, horizon, step, samples = 3, 0.6, 0.6, 0.01, 6000
    k = gamma**2 * (2 - gamma**2)
    v0 = random_covariance(m, 7)
    end = simulate(v0, gamma, 1e6, horizon, step, samples, seed=11)

    def check(values: Tensor, size: int, mean: float, variance: float, fourth: float) -> None:
        bias = -(k**2) * step * horizon * fourth / 4
        rest = abs(bias) * 10 * size * k * step
        error = (variance / samples) ** 0.5
        assert abs(float(values.mean()) - mean - bias) < SIGMAS * error + rest
        # The Stratonovich reading of the same coefficients has mean zero: far outside.
        assert abs(mean) > 4 * (SIGMAS * error + rest)
        # The step changes the variance by a relative amount of order k h per size of Z.
        allowed = SIGMAS * (2 / samples) ** 0.5 + 4 * size * k * step
        assert abs(float(values.var()) / variance - 1) < allowed
        assert allowed < 0.2

    growth = torch.logdet(end) - torch.logdet(v0)
    fourth = 2 * m**3 + 5 * m**2 + 5 * m
    check(growth, m, -k * m * (m + 1) * horizon / 2, 2 * m * k * horizon, fourth)
    for a in range(m):
        check((end[:, a, a] / v0[a, a]).log(), 1, -k * horizon, 2 * k * horizon, 12)
