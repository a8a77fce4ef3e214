"""The package's own integrator has the law of a textbook's, with which it shares no code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import xarray as xr
from torch import Tensor

import shaped_attention as sa
from benchmarks import textbook_sde
from benchmarks.textbook_sde import TextbookSDE, simulate
from tests.laws import same_law, threads

CORRELATED = sa.equicorrelated(3, 0.2)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take 20 times the time of the work."""
    with threads(1):
        yield


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
