"""Densities of an observable: against exact laws, at the boundary too, with coverage of bands."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import beta, gaussian_kde

import shaped_attention as sa
from shaped_attention import plots
from shaped_attention.statistics.density import estimate_density
from tests.refusals import refused

ENDS = (-1.0, 1.0)
REPEATS, SAMPLES = 400, 2000


def exact(x, d):
    """Density of the inner product of two independent uniform vectors on S^(d-1)."""
    return beta.pdf((1.0 + np.asarray(x)) / 2.0, (d - 1) / 2.0, (d - 1) / 2.0) / 2.0


def cosines(d, samples, seed):
    x = np.random.default_rng(seed).normal(size=(samples, 2, d))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return (x[:, 0] * x[:, 1]).sum(-1)


def result_of(rho, times=(0.0,)):
    """As of a sampler: two tokens of norm 1 with these correlations."""
    v = np.ones((len(times), rho.shape[-1], 2, 2))
    v[..., 0, 1] = v[..., 1, 0] = rho
    return xr.Dataset(
        {
            "V": (("time", "sample", "row", "col"), v),
            "stopping_time": ("sample", np.full(rho.shape[-1], np.inf)),
        },
        coords={"time": list(times)},
    )


def coverage(known, **options):
    """Share of repetitions in which the band has the number `known`, for each value."""
    d = options.pop("d")
    inside = []
    for seed in range(REPEATS):
        found = estimate_density(cosines(d, SAMPLES, seed), **options)
        inside.append((found["lower"] <= known) & (known <= found["upper"]))
    return np.mean(inside, axis=0)


def test_bands_of_the_kernel_estimate_cover_a_flat_density_up_to_the_boundary():
    """d = 3: the density is 1/2, and so is its smoothed one, the boundary kernel having mass 1.

    Coverage of 400 repetitions has a standard error of 0.011. Without the correction the estimate
    at the ends is about half of the density, and its band misses it always.
    """
    grid = {"window": ENDS, "points": 9, "bandwidth": 0.05, "d": 3}
    known = exact(np.linspace(-1.0, 1.0, 9), 3)
    found = coverage(known, support=ENDS, **grid)
    assert (np.abs(found - 0.95) < 0.045).all(), found
    assert abs(found.mean() - 0.95) < 0.015
    plain = coverage(known, **grid)
    assert (plain[[0, -1]] == 0.0).all()
    assert (np.abs(plain[1:-1] - 0.95) < 0.045).all()


def test_bands_of_the_histogram_cover_at_least_at_their_level():
    """Clopper and Pearson cover at least; the mean of the density in a bin, without any bias."""
    d, edges = 5, np.linspace(-1.0, 1.0, 11)
    shape = (d - 1) / 2.0
    known = np.diff(beta.cdf((1.0 + edges) / 2.0, shape, shape)) / np.diff(edges)
    found = coverage(known, bins=edges, d=d)
    assert (found > 0.95 - 0.035).all(), found
    assert (found < 1.0).any()
    wrong = coverage(known * 1.3, bins=edges, d=d)
    assert wrong[4:6].max() < 0.5


def test_the_correction_removes_the_bias_at_the_boundary():
    """At -1 and 1, 2^16 samples of a flat density: 1/2 to 5 standard errors of 0.012; else 1/4."""
    values = cosines(3, 2**16, seed=7)
    ends = {"window": ENDS, "points": 2, "bandwidth": 0.1}
    found = estimate_density(values, support=ENDS, **ends)
    assert (np.abs(found["density"] - 0.5) < 5.0 * found["standard_error"]).all()
    assert (found["standard_error"] < 0.013).all()
    plain = estimate_density(values, **ends)
    assert (np.abs(plain["density"] - 0.25) < 5.0 * plain["standard_error"]).all()


def test_without_a_support_the_estimate_is_that_of_scipy():
    values = np.random.default_rng(0).normal(size=300)
    found = estimate_density(values, bandwidth=0.3)
    known = gaussian_kde(values, 0.3 / values.std(ddof=1))(found["value"])
    np.testing.assert_allclose(found["density"], known, rtol=1e-12)
    kernel = np.exp(-0.5 * ((found["value"].values[:, None] - values) / 0.3) ** 2)
    kernel /= 0.3 * math.sqrt(2.0 * math.pi)
    error = kernel.std(axis=1, ddof=1) / math.sqrt(300)
    np.testing.assert_allclose(found["standard_error"], error, rtol=1e-9)


def test_an_observable_has_its_support_and_its_time():
    """The estimate of `density` is that of its values at that time."""
    rho = np.stack([cosines(3, 500, 1), cosines(5, 500, 2)])
    result = result_of(rho, (0.25, 0.5))
    found = sa.density(result, "rho[0,1]", time=0.25)
    known = estimate_density(rho[0], support=ENDS)
    xr.testing.assert_identical(found.drop_attrs(), known.drop_attrs())
    assert (found.attrs["time"], found.attrs["samples"]) == (0.25, 500)
    half = sa.density(result, "mean |rho|", bins=[0.0, 0.1, 0.5])
    assert half.attrs["support"] == [0.0, 1.0]
    assert half.attrs["outside"] == pytest.approx(np.mean(np.abs(rho[1]) > 0.5))


def test_atoms_are_refused_or_named():
    """All values equal have no density; a share of equal ones is warned of."""
    rho = cosines(3, 100, 3)
    with pytest.raises(ValueError, match=r"has no density: all 100 values at t = 0 are 0.2$"):
        sa.density(result_of(np.full(100, 0.2)), "rho[0,1]")
    with pytest.warns(
        UserWarning, match=r"^5 % of the samples of 'rho\[0,1\]' have the value 0.5;"
    ):
        sa.density(result_of(np.where(np.arange(100) < 5, 0.5, rho)), "rho[0,1]")
    sa.density(result_of(rho), "rho[0,1]")


def test_a_figure_has_the_atom_as_a_line_and_the_mass_of_the_others():
    """52 % never stop: a line at the last time, and a curve of mass 0.48, the estimate's."""
    times = np.full(1000, np.inf)
    times[:480] = np.random.default_rng(4).normal(0.35, 0.05, 480)
    result = result_of(cosines(3, 1000, 1), (0.0, 0.75)).assign(stopping_time=("sample", times))
    figure = plots.densities(result, observables="stopping time")
    (axis,) = figure.axes
    first, _ = figure.legends[0].get_texts()
    assert first.get_text() == "result (1,000 samples): 52 % at $t$ = 0.75"
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), [0.75, 0.75])
    assert np.trapezoid(*axis.lines[1].get_data()[::-1]) == pytest.approx(0.48, abs=1e-3)
    with pytest.warns(UserWarning, match=r"^52 % of the samples of 'stopping time' .* 0.75;"):
        sa.density(result, "stopping time")


def test_an_estimate_without_its_atom_is_that_of_the_others_times_their_share():
    """The standard error is that of a mean over all samples, zeros of the atom included."""
    values = cosines(3, 600, 5)
    known = estimate_density(values, support=ENDS, window=ENDS, bandwidth=0.2)
    mixed = np.concatenate([values, np.full(400, 1.0)])
    found = estimate_density(mixed, support=ENDS, window=ENDS, bandwidth=0.2, without=1.0)
    np.testing.assert_allclose(found["density"], 0.6 * known["density"], rtol=1e-12)
    square = 599 * known["standard_error"] ** 2 + known["density"] ** 2
    error = np.sqrt((0.6 * square - found["density"] ** 2) / 999)
    np.testing.assert_allclose(found["standard_error"], error, rtol=1e-9)
    assert found.attrs["samples"] == 1000


test_bad_arguments = refused(
    ({"observable": "rho[1,0]"}, r"observable must be one of .*did you mean 'rho\[0,1\]'"),
    ({"bins": 3, "bandwidth": 0.1}, r"bins and bandwidth cannot be used together"),
    ({"window": (-2.0, 1.0)}, r"window must be two finite numbers in \[-1, 1\], .*; got \(-2.0"),
    by=lambda options: sa.density(
        result_of(cosines(3, 100, 3)), **{"observable": "rho[0,1]"} | options
    ),
)
