"""Self-attention on the sphere: Gram flow against token flow, theory, energies, starts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta as beta_law
from scipy.stats import kstest

import shaped_attention as sa
from shaped_attention.sphere import (
    SphereAttention,
    given_start,
    sphere_flow,
    uniform_start,
)
from shaped_attention.sphere.theory import equiangular_cosine, equiangular_field, meeting_time
from tests.refusals import refused
from tests.sphere_tokens import direct_gram, random_tokens

KINDS = {
    "SA": {},
    "USA": {"normalised": False},
    "repulsion": {"repulsion": True},
    "causal": {"causal": True},
    "causal USA": {"normalised": False, "causal": True},
}


def tokens(n, d, seed=0):
    return random_tokens(n, d, seed=seed)[0].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_gram_flow_is_the_token_flow(kind):
    """To 1e-6 for d < N and d > N; another beta is further away than 1e-3."""
    for dimension in (2, 7):
        x = tokens(5, dimension)
        for beta in (-3.0, 4.0):
            attention = SphereAttention(beta, **KINDS[kind])
            found = sphere_flow(attention, given_start(x), [0.5], tolerance=1e-8)["V"].values[0, 0]
            np.testing.assert_allclose(found, direct_gram(x, attention, 0.5), atol=1e-6)
        other = direct_gram(x, SphereAttention(2.0, **KINDS[kind]), 0.5)
        assert np.abs(found - other).max() > 1e-3


def test_meeting_times_are_those_of_the_curve():
    """Quadrature against the differential equation, to 1e-9; two tokens against tanh."""
    for beta, normalised in ((0.0, True), (2.0, True), (9.0, True), (2.0, False)):
        time = meeting_time(1e-3, 32, beta, 0.05, normalised)
        g = equiangular_cosine([0.0, time], 32, beta, 0.05, normalised)[-1]
        slope = float(equiangular_field(g, 32, beta, normalised))
        assert abs(g - 0.999) < 1e-9 * max(1.0, slope) + 1e-11
    times = np.linspace(0.0, 3.0, 5)
    known = np.tanh(times + math.atanh(0.3))
    np.testing.assert_allclose(equiangular_cosine(times, 2, 0.0, 0.3), known, atol=1e-11)
    assert meeting_time(0.5, 2, 0.0) == pytest.approx(math.atanh(0.5), abs=1e-12)


@pytest.mark.parametrize(
    ("dimension", "columns", "reduced"), [(2, 2, True), (7, 7, True), (8, 6, True), (12, 12, False)]
)
def test_uniform_starts_are_uniform(dimension, columns, reduced):
    """(1 + <x_1, x_2>) / 2 is Beta((d - 1) / 2, (d - 1) / 2): KS; another dimension is rejected."""
    x = uniform_start(6, dimension, 4000, seed=1, reduced=reduced)
    v = (x @ x.mT).numpy()
    assert x.shape[-1] == columns
    np.testing.assert_allclose(np.diagonal(v, axis1=1, axis2=2), 1.0, atol=1e-12)
    for i, j in ((0, 1), (2, 5)):
        half = 0.5 * (dimension - 1)
        assert kstest((1 + v[:, i, j]) / 2, beta_law(half, half).cdf).pvalue > 1e-3
        other = 0.5 * (1.3 * dimension - 1)
        assert kstest((1 + v[:, i, j]) / 2, beta_law(other, other).cdf).pvalue < 1e-3


@pytest.mark.parametrize("dimension", [2, 300])
def test_it_stays_a_correlation_matrix(dimension):
    """Unit diagonal and no eigenvalue below -1e-13, at long times and loose tolerance too."""
    start = uniform_start(12, dimension, 50)
    v = sphere_flow(SphereAttention(4.0), start, [0.5, 5.0, 50.0], tolerance=1e-3)["V"].values
    np.testing.assert_allclose(np.diagonal(v, axis1=2, axis2=3), 1.0, atol=1e-14)
    assert np.linalg.eigvalsh(v).min() > -1e-13


@pytest.mark.parametrize("normalised", [True, False])
def test_the_energy_never_decreases_and_has_the_derivative_of_the_identity(normalised):
    """dE/dt = (1/N) sum_i |dx_i/dt|^2, times Z_i / N for SA; with V = -I it never increases."""
    attention = SphereAttention(2.0, normalised)
    x = random_tokens(7, 3)[0]
    gram = (x @ x.mT).requires_grad_()
    (slope,) = torch.autograd.grad(attention.energy(gram), gram)
    along = float((slope * attention.gram_field(gram.detach())).sum())
    speed = attention.field(x).pow(2).sum(-1)
    total = torch.exp(2.0 * gram.detach()).sum(-1) / 7 if normalised else torch.ones(7)
    assert along == pytest.approx(float((total * speed).mean()), rel=1e-12)
    times = np.linspace(0.0, 20.0, 41)
    for repulsion, sign in ((False, 1.0), (True, -1.0)):
        flow = sphere_flow(
            SphereAttention(2.0, normalised, repulsion), uniform_start(10, 3, 20), times
        )
        energy = attention.energy(torch.from_numpy(flow["V"].values)).numpy()
        assert (sign * np.diff(energy, axis=0) > -1e-9).all()
        assert (sign * (energy[-1] - energy[0]) > 1e-3).all()


def test_errors_fall_with_the_tolerance():
    start, attention = uniform_start(8, 4, 20), SphereAttention(4.0)
    exact = sphere_flow(attention, start, [2.0], tolerance=1e-10)["V"].values
    errors = [
        np.abs(sphere_flow(attention, start, [2.0], tolerance=t)["V"].values - exact).max()
        for t in (1e-3, 1e-5, 1e-7)
    ]
    # Steps are of the order tolerance^(1/3), and the error of theirs cubed.
    assert errors[0] > 15 * errors[1] > 225 * errors[2]
    assert errors[2] < 1e-5


def test_steep_flows_are_followed():
    """USA at beta = 9 from uniform starts, at times of order 1, is e^9 times as fast as SA.

    Against the token flow by a stiff integrator; half the time is further away than 1e-3.
    """
    x, attention = tokens(4, 3, seed=5), SphereAttention(9.0, False)
    found = sphere_flow(attention, given_start(x), [0.01, 1.0], tolerance=1e-8)["V"].values[:, 0]
    for gram, time in zip(found, (0.01, 1.0), strict=True):
        np.testing.assert_allclose(gram, direct_gram(x, attention, time, "Radau"), atol=1e-5)
    assert np.abs(found[0] - direct_gram(x, attention, 0.005, "Radau")).max() > 1e-3


def test_clusters_close_to_rounding_and_then_cost_nothing():
    """At t = 10^6, and at a loose tolerance; two tokens that repel each other do not close."""
    for tolerance in (1e-3, 1e-8):
        start = uniform_start(6, 5, 3)
        v = sphere_flow(SphereAttention(1.0), start, [1e6], tolerance=tolerance)["V"].values
        np.testing.assert_allclose(v, 1.0, atol=1e-13)
    v = sphere_flow(SphereAttention(1.0, repulsion=True), start, [1e3])["V"].values
    assert v.min() < 0.0


def test_a_function_is_kept_in_any_chunks():
    start, attention = uniform_start(4, 3, 10), SphereAttention(1.0)
    whole = sphere_flow(attention, start, [1.0])["V"].values
    pair = sphere_flow(attention, start, [1.0], keep=lambda v: v[:, 0, 1], chunk=3)
    np.testing.assert_allclose(pair["kept"].values, whole[..., 0, 1], atol=1e-12)


def test_a_flow_is_a_result_as_the_others(tmp_path):
    """Saved, loaded, run again with changes, and compared (equal laws and others)."""
    attention = SphereAttention(1.0)
    first, second = (
        sphere_flow(attention, uniform_start(3, 3, 500, seed), [0.5, 1.0]) for seed in (1, 2)
    )
    stored = sa.load(sa.save(first, tmp_path / "flow.nc"))
    np.testing.assert_array_equal(sa.rerun(stored)["V"], first["V"])
    other = sa.rerun(stored, attention=SphereAttention(6.0))
    names = ["rho[0,1]", "mean |rho|", "effective rank"]
    equal, different = (sa.compare(second, x, observables=names) for x in (first, other))
    assert float(equal["p_value"].min()) > 1e-3
    assert float(different["p_value"].min()) < 1e-6


def flow(attention=SphereAttention(1.0), times=(1.0,), start=None, **options):  # noqa: B008
    return sphere_flow(attention, uniform_start(2, 2) if start is None else start, times, **options)


test_bad_input = refused(
    (lambda: SphereAttention(math.nan), r"beta must be in \[-300, 300\]; got nan"),
    (lambda: given_start([[1.0, 0.0], [0.0, 0.0]]), "tokens must be finite and not zero"),
    (lambda: flow(start=np.eye(2)), r"start must be .*given_start\(tokens\); got ndarray"),
    (lambda: flow(start=2 * uniform_start(2, 2)), "not of norm 1"),
    (lambda: flow(normalise="ngpt"), "normalise must be 'after', 'before' or None; got 'ngpt'"),
)
