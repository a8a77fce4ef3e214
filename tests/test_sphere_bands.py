"""The bands of the figure of clustering with noise."""

from __future__ import annotations

import numpy as np
from shaped_attention.sphere.figures.clustering_with_noise import clustering_with_noise

from shaped_attention.sphere import SphereAttention, noisy_chain, uniform_start


def test_the_bands_of_the_figure_hold_eight_samples_in_ten():
    """10 and 90 % quantiles over the samples of `noisy_chain`, written out, at every time."""
    options = {"tokens": 3, "beta": 1.0, "horizon": 0.4, "step": 0.1, "samples": 50}
    data = clustering_with_noise(
        (4,), (1.0,), network_samples=2, shaped_width=6, shaped_samples=2, seed=2, **options
    )
    start = uniform_start(3, 4, 50, 2)
    v = noisy_chain(SphereAttention(1.0), start, 4, 1.0, 0.1, 4, seed=2)["V"].values
    cosines = np.stack([v[..., i, j] for i, j in ((0, 1), (0, 2), (1, 2))]).mean(0)
    band = data.sel(measure="mean cosine", dimension=4, sigma=1.0)
    np.testing.assert_allclose(band["mean"], cosines.mean(1), atol=1e-13)
    np.testing.assert_allclose(band["low"], np.quantile(cosines, 0.1, axis=1), atol=1e-13)
    np.testing.assert_allclose(band["high"], np.quantile(cosines, 0.9, axis=1), atol=1e-13)
