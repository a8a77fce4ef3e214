"""Networks and chain approach the SDE as the width grows, at the rate 1 / n."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    equicorrelated,
    integrate_sde,
    simulate_chain,
    simulate_network,
)
from shaped_attention.numerics.observables import observables
from shaped_attention.statistics.rates import fitted_rate
from tests.laws import final

LAYER = [ShapedAttention(0.6), ShapedMLP(0.4)]
V0, HORIZON = equicorrelated(3, 0.2), 0.5
SHOWN = ("log det V", "mean |rho|")


@pytest.fixture(scope="module")
def limit():
    v = final(integrate_sde(LAYER, V0, horizon=HORIZON, step=1 / 400, samples=200_000, seed=1))
    return observables(v)


@pytest.mark.validation
@pytest.mark.parametrize(
    ("sampler", "widths", "samples"),
    [(simulate_network, (8, 16, 32), 40_000), (simulate_chain, (8, 16, 32, 64), 200_000)],
)
def test_distance_to_the_sde_falls_like_one_over_the_width(sampler, widths, samples, limit):
    """KS distances to an SDE with step 1/400 and 200,000 paths, fitted with their sampling noise.

    The rate must be 1 within 4 standard errors plus 0.25 for the next order in 1/n at these
    small widths; a rate 1/sqrt(n) is 0.5 away and is excluded by 2 standard errors. KS is used
    because some paths of the SDE explode, and would rule Wasserstein distances.
    """
    distances: dict[str, dict[int, float]] = {name: {} for name in SHOWN}
    for width in widths:
        depth = int(HORIZON * width)
        finite = sampler(LAYER, V0, width=width, depth=depth, samples=samples, seed=width)
        values = observables(final(finite))
        for name in SHOWN:
            distances[name][width] = float(stats.ks_2samp(values[name], limit[name]).statistic)
    for name in SHOWN:
        noise = 0.5 * np.sqrt(1 / samples + 1 / 200_000)
        values = np.array(list(distances[name].values()))
        rate, error = fitted_rate(np.array(widths, float), values, np.full(len(widths), noise))
        print(f"{sampler.__name__}, {name}: {distances[name]}, rate {rate:.2f} +- {error:.2f}")
        assert abs(rate - 1.0) < 4 * error + 0.25
        assert rate > 0.5 + 2 * error
