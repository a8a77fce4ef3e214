"""The figure of random value matrices on the sphere: its data, its clock, its standard errors."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from torch.nn.functional import pad

import shaped_attention as sa
from shaped_attention.sphere import (
    SphereAttention,
    figure_data,
    noisy_chain,
    sphere_network,
    uniform_start,
)
from shaped_attention.sphere.figures.noise import noise_panels


def test_the_figure_has_the_flow_as_its_curve_without_noise():
    """sigma = 0 is the flow to O(h) (0.015 at h = 0.04), sigma = 1 is not; networks lie near."""
    data = figure_data(
        "noise", dimensions=(3, 20), sigmas=(0.0, 1.0), tokens=4, beta=1.0, horizon=0.8, step=0.04,
        delta=0.05, samples=100, network_samples=100, shaped_width=8, shaped_samples=8,
    )  # fmt: skip
    cosine = data.sel(measure="mean cosine")
    np.testing.assert_allclose(cosine["mean"].sel(sigma=0.0), cosine["flow"], atol=0.015)
    assert np.abs(cosine["mean"].sel(sigma=1.0) - cosine["flow"]).max() > 0.04
    at_marks = cosine["mean"].sel(time=data["mark_time"].values, method="nearest").values
    score = (
        np.abs(at_marks - cosine["network"].values)[:, 1, 1:]
        / cosine["network_error"].values[:, 1, 1:]
    )
    assert score.max() < 5.0
    assert ((data["low"] <= data["high"]) & (data["mean"] <= 1.0)).all()
    assert data["shaped_mean"].notnull().all()
    assert isinstance(noise_panels(data, "title"), Figure)
    with pytest.raises(ValueError, match="data must be that of the figure noise"):
        noise_panels(data.drop_vars("mean"), "title")


def test_the_standard_error_of_networks_is_that_of_their_mean():
    """Standard deviation over the networks, run again, divided by the root of their number."""
    run = {"tokens": 4, "step": 0.1, "samples": 12, "network_samples": 9, "seed": 3}
    data = figure_data(
        "noise", dimensions=(5,), sigmas=(0.7,), horizon=0.8, shaped_width=8, shaped_samples=2,
        **run,
    ).isel(dimension=0, sigma=0)  # fmt: skip
    start = uniform_start(4, 5, 12, 3)[:9]
    start = pad(start, (0, 5 - start.shape[-1]))
    v = sphere_network(SphereAttention(1.0), start, 0.1, 8, sigma=0.7, seed=3, save_every=2)[
        "V"
    ].values
    pairs = np.triu_indices(4, 1)
    cosine = v[..., *pairs].mean(-1)
    found = data.sel(measure="mean cosine")
    np.testing.assert_allclose(found["network"], cosine.mean(1), atol=1e-12)
    error = cosine.std(1, ddof=1) / 3.0
    np.testing.assert_allclose(found["network_error"], error, atol=1e-12)
    assert error[-1] > 0.01


@pytest.mark.parametrize("gamma", [0.5, 0.8])
def test_the_clock_of_the_shaped_chain_is_the_variance_of_its_noise(gamma):
    """It ends after gamma^2 l / n = horizon, with the mean cosines of the chain at that layer."""
    width, horizon, samples = 8, 0.8, 16
    data = figure_data(
        "noise", dimensions=(3,), sigmas=(0.0,), tokens=4, step=0.1, horizon=horizon, samples=4,
        network_samples=2, shaped_width=width, shaped_samples=samples, gamma=gamma, seed=2,
    )  # fmt: skip
    depth = round(horizon * width / gamma**2)
    start = uniform_start(4, width, 1, 2)[0]
    layer = sa.Normalised(sa.ShapedAttention(gamma), place="after")
    chain = sa.simulate_chain(
        layer, start @ start.mT, width=width, depth=depth, samples=samples, seed=2, save_every=1
    )
    np.testing.assert_allclose(data["shaped_time"], gamma**2 * chain["time"], rtol=1e-12)
    assert float(data["shaped_time"][-1]) == pytest.approx(horizon, abs=gamma**2 / (2 * width))
    cosine = chain["V"].values[..., *np.triu_indices(4, 1)].mean(-1)
    found = data["shaped_mean"].sel(measure="mean cosine")
    np.testing.assert_allclose(found, cosine.mean(1), atol=1e-12)
    assert np.abs(np.diff(found)).max() > 0.01


def test_bad_input_is_named():
    """One sentence that starts with the argument."""
    for name, value in (("tokens", 1), ("network_samples", 1), ("step", 100.0)):
        with pytest.raises(ValueError, match=rf"^{name}"):
            figure_data("noise", **{name: value})
    with pytest.raises(ValueError, match=r"^network_samples"):
        figure_data("noise", samples=4, network_samples=5)


def test_the_bands_of_the_figure_hold_eight_samples_in_ten():
    """10 and 90 % quantiles over the samples of `noisy_chain`, written out, at every time."""
    data = figure_data(
        "noise", dimensions=(4,), sigmas=(1.0,), tokens=3, beta=1.0, horizon=0.4, step=0.1,
        samples=50, network_samples=2, shaped_width=6, shaped_samples=2, seed=2,
    )  # fmt: skip
    start = uniform_start(3, 4, 50, 2)
    v = noisy_chain(SphereAttention(1.0), start, 4, 1.0, 0.1, 4, seed=2)["V"].values
    cosines = np.stack([v[..., i, j] for i, j in ((0, 1), (0, 2), (1, 2))]).mean(0)
    band = data.sel(measure="mean cosine", dimension=4, sigma=1.0)
    np.testing.assert_allclose(band["mean"], cosines.mean(1), atol=1e-13)
    np.testing.assert_allclose(band["low"], np.quantile(cosines, 0.1, axis=1), atol=1e-13)
    np.testing.assert_allclose(band["high"], np.quantile(cosines, 0.9, axis=1), atol=1e-13)
