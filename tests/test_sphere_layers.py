"""Discrete networks on the sphere against the flows that they converge to."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import xarray as xr

from shaped_attention import sphere
from shaped_attention.sphere import (
    SphereAttention,
    TokenAttention,
    given_start,
    noisy_chain,
    sphere_flow,
    sphere_network,
    uniform_start,
)
from shaped_attention.statistics.rates import fitted_rate
from tests.sphere_tokens import (
    direct_tokens,
    heads_of,
    matrices,
    moved_one_by_one,
    random_tokens,
    solved,
)

STEPS = [16, 32, 64, 128]


def rate_of(attention, x, known, normalise, time, slower=1):
    """The fitted r in error = a h^r of the Gram matrix at a fixed time, for h = time / STEPS."""
    errors = []
    for count in STEPS:
        network = sphere_network(
            attention, x, time / count, count // slower, normalise=normalise, save_every=10**6
        )
        errors.append(np.abs(network["V"].values[-1] - known).max())
    return fitted_rate(np.array(STEPS, dtype=float), np.array(errors), 0.01 * np.array(errors))[0]


def directions_and_lengths(moved, start, time):
    """Tokens r u with du/dt = P_u A(u) / r and dr/dt = <u, A(u)>, by scipy."""

    def slopes(_t, flat):
        u, r = flat[: start.size].reshape(start.shape), flat[start.size :, None]
        a = moved(u)
        along = (a * u).sum(1, keepdims=True)
        return np.concatenate([((a - along * u) / r).ravel(), along.ravel()])

    state = solved(slopes, np.concatenate([start.ravel(), np.ones(len(start))]), time)
    return state[: start.size].reshape(start.shape) * state[start.size :, None]


@pytest.mark.parametrize(
    ("kind", "normalise"),
    list(
        itertools.product(
            ["SA", "USA", "repulsion", "general", "general USA"], ["after", None, "before"]
        )
    ),
)
def test_networks_converge_to_their_flows_at_rate_one(kind, normalise):
    """Rates within 0.9 and 1.1; with time 2 h a layer there is no convergence (below 0.2).

    The limits are integrated by scipy in directions and lengths. `sphere_flow` is 1e-6 from them.
    The limit of "after" is none of the others.
    """
    x = random_tokens(4, 3, seed=1)
    start, normalised = x[0].numpy(), "USA" not in kind
    eye = np.eye(3)
    sign = -1.0 if kind == "repulsion" else 1.0
    heads = [(eye, eye, sign * eye)]
    attention = SphereAttention(1.5, normalised, kind == "repulsion")
    if "general" in kind:
        q, k, v = (matrices(2, 3, 3, seed=s) for s in (4, 5, 6))
        heads, attention = heads_of(q, k, v), TokenAttention(1.5, q, k, v, normalised)

    def moved(y, _t=0.0):
        return moved_one_by_one(y, 1.5, heads, normalised)

    # Without normalisation USA explodes, here before 0.5.
    time = 0.1 if normalise is None and not normalised else 0.5
    on_sphere = direct_tokens(start, moved, time)
    if normalise == "after":
        end = on_sphere
    elif normalise is None:
        end = solved(lambda _t, flat: moved(flat.reshape(4, 3)).ravel(), start, time)
    else:
        end = directions_and_lengths(moved, start, time)
    known = end @ end.T
    flow = sphere_flow(attention, x, [time], normalise=normalise, tolerance=1e-8)
    np.testing.assert_allclose(flow["V"][0, 0], known, atol=1e-6)
    assert 0.9 < rate_of(attention, x, known, normalise, time) < 1.1
    assert rate_of(attention, x, known, normalise, time, slower=2) < 0.2
    if normalise != "after":
        assert rate_of(attention, x, on_sphere @ on_sphere.T, normalise, time) < 0.2


def test_layers_take_the_matrices_of_their_time():
    """V(t) = cos(t) I at layer * step; constant matrices are another network."""
    x = random_tokens(3, 2, 2)
    eye = torch.eye(2, dtype=torch.float64)
    attention = TokenAttention(1.0, value=lambda t: torch.cos(t)[:, None, None, None] * eye)
    found = sphere_network(attention, x, 0.7, 3, normalise=None)["V"][-1, 1]
    y = x[1].numpy()
    for layer in range(3):
        heads = [(np.eye(2), np.eye(2), math.cos(0.7 * layer) * np.eye(2))]
        y = y + 0.7 * moved_one_by_one(y, 1.0, heads)
    np.testing.assert_allclose(found, y @ y.T, atol=1e-13)
    still = sphere_network(TokenAttention(1.0), x, 0.7, 3, normalise=None)["V"][-1, 1]
    assert np.abs(still - found).max() > 1e-1


def test_numbers_that_are_not_finite_are_reported():
    """Overflow of weights, of norms, finite-time explosion without normalisation, zero tokens."""
    x = random_tokens(3, 2)
    with pytest.raises(FloatingPointError, match="gives tokens"):
        sphere_network(SphereAttention(1.5, False), x, 0.05, 100, normalise=None)
    steep = TokenAttention(600.0, 10.0 * torch.eye(2), normalised=False)
    with pytest.raises(FloatingPointError, match="is not finite"):
        sphere_flow(steep, x, [1.0])
    away = SphereAttention(0.0, repulsion=True)
    for run in (
        lambda: sphere_network(away, x[:, :1], 1.0, 2),
        lambda: sphere_network(away, x[:, :1], 1.0, 2, normalise="before"),
        lambda: noisy_chain(away, x[:, :1], 2, 0.0, 1.0, 1),
    ):
        with pytest.raises(FloatingPointError, match="layer 1 gives a token that is zero"):
            run()
    grows = TokenAttention(0.0, value=1e200 * torch.eye(2, dtype=torch.float64))
    with pytest.raises(FloatingPointError, match="layer 1 gives tokens"):
        sphere_network(grows, x, 1.0, 1, normalise=None)
    sure = sphere_network(grows, x, 1.0, 2)["V"].values
    assert np.isfinite(sure).all()


def test_chunks_of_samples_take_their_own_matrices(monkeypatch):
    """One sample at a time gives all of them to 1e-13; the matrices of the first do not."""
    x = random_tokens(4, 3, 5, seed=2)
    q, k, v = (matrices(5, 1, 3, 3, seed=s) for s in (1, 2, 3))
    whole = sphere_network(TokenAttention(1.5, q, k, v), x, 0.5, 3)["V"].values
    monkeypatch.setattr("shaped_attention.sphere.layers.CHUNK_ENTRIES", 1)
    parts = sphere_network(TokenAttention(1.5, q, k, v), x, 0.5, 3)["V"].values
    np.testing.assert_allclose(parts, whole, atol=1e-13)
    first = sphere_network(TokenAttention(1.5, q[:1], k[:1], v[:1]), x, 0.5, 3)["V"].values
    np.testing.assert_allclose(first[:, 0], whole[:, 0], atol=1e-13)
    assert np.abs(first - whole)[-1, 1:].max() > 1e-2


def test_starts_of_any_size_get_length_one():
    """Where x / |x| itself overflows or vanishes."""
    half = math.sqrt(0.5)
    start = given_start([[1e300, 1e300], [1e-200, 0.0], [5e-324, -5e-324]], normalise=True)
    np.testing.assert_allclose(start[0], [[half, half], [1.0, 0.0], [half, -half]], atol=4e-15)


def entry_points(keep="V"):
    """A short run of everything that follows tokens, from starts on the CPU."""
    x, reduced = random_tokens(3, 4, 2), uniform_start(3, 9, 2)
    plain = SphereAttention(1.0, False, causal=True)
    inner, outer = matrices(5, 4), matrices(4, 5)
    general = TokenAttention(
        1.0,
        matrices(2, 2, 4, 4),
        matrices(2, 4, 4),
        causal=True,
        mlp=lambda y: torch.relu(y @ inner.mT) @ outer.mT,
    )
    with_kept = {"keep": keep}
    yield sphere_flow(plain, reduced, [0.3], **with_kept)
    yield sphere_flow(general, x, [0.3], keep_tokens=True, **with_kept)
    yield sphere_network(general, x, 0.2, 2, **with_kept)
    yield sphere_network(plain, x, 0.2, 2, normalise="before", **with_kept)
    yield noisy_chain(plain, reduced, 9, 1.0, 0.2, 2, **with_kept)
    yield sphere_network(plain, x, 0.2, 2, sigma=1.0, **with_kept)


def test_no_tensor_is_made_on_another_device_than_the_start():
    """With the default device "meta" everything is the same, as each tensor names its device.

    A function of Gram matrices that makes one without does not go through.
    """
    known = list(entry_points())
    with torch.device("meta"):
        for found, result in zip(entry_points(), known, strict=True):
            xr.testing.assert_identical(found, result)
        with pytest.raises(RuntimeError, match="meta"):
            next(entry_points(lambda gram: gram + torch.ones(3, 3)))
    with pytest.raises(ValueError, match=r"device must be 'cpu', .* got 'tpu'"):
        uniform_start(3, 3, device="tpu")
    with pytest.raises(ValueError, match=r"device must be 'cpu', .* got 'meta'"):
        uniform_start(3, 3, reduced=False, device="meta")


class Watched(torch.nn.Linear):
    """An MLP with parameters that refuses to record gradients."""

    def forward(self, x):
        assert not torch.is_grad_enabled()
        return super().forward(x)


def weighted(gram):
    """A function of Gram matrices with a parameter."""
    return gram[:, 0] @ torch.ones(3, dtype=torch.float64, requires_grad=True)


def test_functions_of_a_user_run_without_gradients_and_keep_their_type():
    """Layers record none on threads either; complex eigenvalues stay complex."""
    with torch.random.fork_rng():
        mlp = Watched(4, 4, dtype=torch.float64)
    tokens = uniform_start(3, 4, samples=2, reduced=False)
    attention = sphere.TokenAttention(1.0, mlp=mlp)
    result = sphere_network(attention, tokens, 0.1, 2, keep=torch.linalg.eigvals)
    assert result["kept"].dtype == np.complex128
    whole = sphere_network(attention, tokens, 0.1, 2)["V"]
    assert whole.dtype == np.float64
    kept = sphere_network(attention, tokens, 0.1, 2, keep=weighted)["kept"]
    np.testing.assert_allclose(kept, whole[:, :, 0].sum("col"), rtol=1e-14)
