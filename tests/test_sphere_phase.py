"""Phase diagrams of clustering from uniform starts, and with random matrices and their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm, semicircular

from shaped_attention.sphere import TokenAttention, figure_data, sphere_flow
from shaped_attention.sphere.figures.phase import phase_panels
from shaped_attention.sphere.theory import meeting_time
from shaped_attention.sphere.token_attention import ENSEMBLES
from tests.sphere_tokens import random_tokens


def test_phase_diagram_is_a_step_at_the_curve_in_high_dimension():
    """d = 10^5, N = 8: no pair has met at 0.8 of the curve's time and all have at 1.2 of it.

    In d = 2 neither holds: there tokens start close, and meet late.
    """
    betas = [0.0, 2.0]
    curve = [meeting_time(1e-3, 8, beta) for beta in betas]
    # At beta = 0 log(((N - 1) g + 1) / (1 - g)) grows at the rate 2.
    assert curve[0] == pytest.approx(0.5 * math.log((7 * 0.999 + 1) / 1e-3), rel=1e-10)
    for beta, time in zip(betas, curve, strict=True):
        data = figure_data(
            "phase", dimensions=[2, 100_000], betas=[beta], times=[0.8 * time, 1.2 * time],
            tokens=8, samples=100,
        )  # fmt: skip
        high, flat = data["probability"].sel(dimension=[100_000, 2]).values[:, 0]
        assert high[0] < 0.01
        assert high[1] > 0.99
        assert flat[0] > 0.1


def test_the_curve_of_a_phase_diagram_is_that_of_its_attention():
    """Meeting times of equiangular tokens under USA, which are not those under SA."""
    options = {"tokens": 4, "samples": 2, "delta": 0.1, "dimensions": [3], "betas": [0.0, 2.0]}
    options["times"] = [0.1]
    for normalised in (True, False):
        data = figure_data("phase", normalised=normalised, **options)
        known = [meeting_time(0.1, 4, beta, 0.0, normalised) for beta in (0.0, 2.0)]
        np.testing.assert_allclose(data["curve"], known, rtol=1e-12)
    assert meeting_time(0.1, 4, 2.0) > 1.1 * known[1]


def test_wigner_matrices_have_the_semicircle_law():
    """Symmetric; variances 1/d and 2/d; spectrum in [-2, 2] within a distance of 0.01 of the law.

    The distance is above 0.03 for a radius of 1.8 or 2.2, and for a symmetrised Ginibre matrix
    divided by 2 instead of sqrt(2).
    """
    d, samples = 64, 60
    w = TokenAttention.random("wigner-gradient", d, 1.0, samples, 3).key[:, 0]
    assert torch.equal(w, w.mT)
    above = w[:, torch.triu(torch.ones(d, d), 1) > 0].flatten().numpy() * math.sqrt(d)
    across = w.diagonal(dim1=1, dim2=2).flatten().numpy() * math.sqrt(d / 2)
    for entries in (above, across):
        assert kstest(entries, norm.cdf).pvalue > 1e-3
        assert kstest(1.1 * entries, norm.cdf).pvalue < 1e-2
    values = torch.linalg.eigvalsh(w).numpy().ravel()

    def apart(spectrum, radius):
        return kstest(spectrum, semicircular(scale=radius).cdf).statistic

    assert apart(values, 2.0) < 0.01
    assert min(apart(values, 1.8), apart(values, 2.2), apart(values / math.sqrt(2), 2.0)) > 0.03
    assert 1.8 < values.max() < 2.2
    psd = TokenAttention.random("wigner-psd", d, 1.0, 20, 3)
    v = psd.value[:, 0]
    torch.testing.assert_close(v, v.mT, atol=1e-13, rtol=0)
    sizes = torch.linalg.eigvalsh(v).numpy().ravel()
    assert sizes.min() > 0.0
    # The law of |W|: with random signs the semicircle again.
    signs = np.where(np.random.default_rng(0).random(len(sizes)) < 0.5, -1.0, 1.0)
    assert apart(signs * sizes, 2.0) < 0.04
    assert apart(sizes, 2.0) > 0.4
    assert float((psd.key[:, 0] * v).mean().abs()) * d < 0.05


def test_ginibre_matrices_are_independent_and_do_not_depend_on_chunks():
    """Normal entries of variance 1/d, singular values up to 2; samples in parts are the whole."""
    d = 40
    whole = TokenAttention.random("ginibre", d, 1.0, 30, 4)
    for matrix in (whole.query, whole.key, whole.value):
        entries = math.sqrt(d) * matrix.numpy().ravel()
        assert kstest(entries, norm.cdf).pvalue > 1e-3
        assert kstest(1.05 * entries, norm.cdf).pvalue < 1e-3
        assert 1.7 < float(torch.linalg.svdvals(matrix).max()) < 2.3
    correlation = float((whole.query * whole.key).mean() * d)
    # 48,000 pairs: 5 standard deviations are 0.023.
    assert abs(correlation) < 0.023
    assert float((whole.query * whole.query).mean() * d) > 0.9
    part = TokenAttention.random("ginibre", d, 1.0, 5, 4, first=25)
    torch.testing.assert_close(part.key, whole.key[25:], atol=1e-14, rtol=0)
    linked = TokenAttention.random("ginibre-gradient", d, 1.0, 3, 4)
    torch.testing.assert_close(linked.value, linked.query.mT @ linked.key, atol=1e-14, rtol=0)
    assert not torch.equal(linked.value, linked.value.mT)


def test_matrices_are_independent_of_the_tokens_with_the_same_seed():
    """Correlations of 3 matrices with the tokens, each below 5 standard errors (6,400 entries)."""
    d, samples = 8, 100
    x = random_tokens(d, d, samples, 4) * math.sqrt(d)
    drawn = TokenAttention.random("ginibre", d, 1.0, samples, 4)
    for matrix in (drawn.query, drawn.key, drawn.value):
        correlation = float((x * matrix[:, 0] * math.sqrt(d)).mean())
        assert abs(correlation) < 5.0 / math.sqrt(samples * d * d)
    assert float((x * x).mean()) > 0.9


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_each_realisation_of_a_phase_has_matrices_of_its_own(ensemble):
    """70 realisations, more than are in memory together: the share of 70 flows taken at once.

    With the matrices of the first 6 for the last 6 the share is different.
    """
    run = {"tokens": 5, "dimension": 4, "delta": 0.2}
    found = figure_data(
        "ensembles",
        ensembles=[ensemble],
        betas=[2.0],
        times=[1.5],
        samples=70,
        tolerance=1e-6,
        **run,
    )
    whole, start = TokenAttention.random(ensemble, 4, 2.0, 70), random_tokens(5, 4, 70)

    def share(attention, x):
        flow = sphere_flow(attention, x, [1.5], tolerance=1e-6)["V"].values[0]
        return [np.mean(v[np.tril_indices(5, -1)] >= 0.8) for v in flow]

    known = share(whole, start)
    assert float(found["probability"][0, 0, 0]) == pytest.approx(np.mean(known), abs=1e-12)
    again = share(TokenAttention.random(ensemble, 4, 2.0, 6), start[64:])
    assert abs(np.mean([*known[:64], *again]) - np.mean(known)) > 1e-3


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_a_scale_of_queries_and_keys_is_one_of_beta_and_of_time_where_they_make_the_value(ensemble):
    """The field at s and beta is that at s^2 beta, times s^2 if V = Q^T K; to 1e-13.

    With s beta, or the other factor, it is further than 1e-2.
    """
    x, scale = random_tokens(5, 6, 4), 1.7

    def field(beta, s=1.0):
        return TokenAttention.random(ensemble, 6, beta, 4, 2, scale=s).field(x)

    gradient = ensemble.endswith("gradient")
    factors = {True: scale**2, False: 1.0}
    found = field(0.8, scale)
    known = factors[gradient] * field(scale**2 * 0.8)
    torch.testing.assert_close(found, known, atol=1e-13, rtol=1e-13)
    assert float((found - factors[gradient] * field(scale * 0.8)).abs().max()) > 1e-2
    assert float((found - factors[not gradient] * field(scale**2 * 0.8)).abs().max()) > 1e-2


def test_phase_of_random_ensembles():
    """A V >= 0 gathers all tokens sooner than an independent Ginibre V, in the mean."""
    data = figure_data(
        "ensembles", betas=[0.5, 4.0], times=[0.0, 3.0, 15.0], tokens=6, dimension=12, samples=12,
        delta=0.01,
    )  # fmt: skip
    p = data["probability"]
    assert p.dims == ("ensemble", "beta", "time")
    assert float(p.min()) >= 0.0
    assert float(p.max()) <= 1.0
    assert float(p.isel(time=0).max()) == 0.0
    psd = p.sel(ensemble="wigner-psd").values
    assert (np.diff(psd, axis=1) > 0.0).all()
    assert float(p.sel(ensemble="wigner-psd", time=15.0, beta=0.5)) > 0.8
    assert (psd[:, 1:].mean() - p.sel(ensemble="ginibre").values[:, 1:].mean()) > 0.1
    small = {"tokens": 3, "dimension": 4, "samples": 3, "ensembles": ["ginibre"], "times": [2.0]}
    scaled = figure_data("ensembles", betas=[1.0], delta=0.2, scale=2.0, **small)
    same = figure_data("ensembles", betas=[4.0], delta=0.2, **small)
    assert float(scaled["probability"].sum()) == float(same["probability"].sum())
    assert (scaled.attrs["scale"], same.attrs["scale"]) == (2.0, 1.0)
    figure = phase_panels(data, "random matrices")
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert len(shown) == 5
    assert "Wigner" in shown[1].get_title()
