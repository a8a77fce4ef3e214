"""Values and tangents: drift from three sides, chain against networks, limit against chain."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from sympy import lambdify

import shaped_attention as sa
import symbolic as sy
from shaped_attention.blocks import activations, attention
from shaped_attention.derived.hidden import entrywise
from shaped_attention.derived.rows import Rows
from shaped_attention.numerics.dual import Dual
from symbolic.tangents import joint_covariance, tangent_drift, two_copies


def joint(tokens, tangents, seed=0):
    rows = np.random.default_rng(seed).normal(size=((1 + tangents) * tokens, 20))
    return rows @ rows.T / 20


def blocks_of(u, tokens):
    size = len(u) // tokens
    return u.reshape(size, tokens, size, tokens).swapaxes(1, 2)


def attention_drift(u, m, w, rate):
    """The closed form: rate (T + E U + U E^T), E lower block triangular."""
    parts = blocks_of(u, m)
    v, count = parts[0, 0], len(parts)

    def b(x, y):
        return (
            w @ (x * y) @ w.T - ((w @ x) * (w @ y)) @ w.T - w @ ((x @ w.T) * (y @ w.T))
            + (w @ x @ w.T) * (w @ y @ w.T)
        )  # fmt: skip

    def row(y):
        return w * (y - (w * y).sum(1, keepdims=True))

    t, e = np.zeros_like(parts), np.zeros_like(parts)
    s, q = np.diag(v) - 2 * w @ v, np.diag(v)[:, None]
    t[0, 0] = b(v, v) * v
    for k in range(count):
        e[k, k] = row(s) * q / 2
    for k in range(1, count):
        c = parts[0, k]
        t[0, k] = b(v, v) * c + 2 * b(v, c) * v
        t[k, 0] = t[0, k].T
        s_k, q_k = 2 * np.diag(c) - 2 * w @ (c + c.T), 2 * np.diag(c)[:, None]
        e[k, 0] = (row(s) * q_k + row(s_k) * q) / 2
    for k, l in itertools.product(range(1, count), repeat=2):
        c, d, both = parts[0, k], parts[0, l], parts[k, l]
        t[k, l] = b(v, v) * both + 2 * b(v, c.T) * d + 2 * b(v, d) * c.T
        t[k, l] += 2 * (b(v, both) + b(c.T, d)) * v
    whole = [x.swapaxes(1, 2).reshape(u.shape) for x in (t, e)]
    return rate * (whole[0] + whole[1] @ u + u @ whole[1].T)


@pytest.mark.parametrize("mask", [None, "causal"])
@pytest.mark.parametrize("heads", [1, 2])
def test_drift_of_attention_is_the_closed_form(mask, heads):
    m, u = 3, joint(3, 2)
    w = np.tril(np.ones((m, m))) if mask else np.ones((m, m))
    block = sa.ShapedAttention(0.6, 0.8, mask=mask, heads=heads, output_projection=heads > 1)
    derived = sa.drift(block, u, tangents=2)
    expected = attention_drift(u, m, w / w.sum(1, keepdims=True), (0.6 / 0.8) ** 2)
    np.testing.assert_allclose(derived, expected, atol=1e-14)


def relu_drift(u, m):
    """Phi - U, with the limits of Phi for equal tokens."""
    parts = blocks_of(u, m)
    v, phi = parts[0, 0], parts.copy()
    for a, b in itertools.permutations(range(m), 2):
        area = np.sqrt(v[a, a] * v[b, b] - v[a, b] ** 2)
        rho = v[a, b] / np.sqrt(v[a, a] * v[b, b])
        angle = np.arcsin(rho)
        phi[0, 0, a, b] = area + v[a, b] * angle
        for k in range(1, len(parts)):
            c = parts[0, k]
            phi[0, k, a, b] = angle * c[a, b] + area * c[b, b] / v[b, b]
            phi[k, 0, a, b] = angle * c[b, a] + area * c[a, a] / v[a, a]
            for l in range(1, len(parts)):
                d = parts[0, l]
                mixed = (c[b, a] - v[a, b] * c[a, a] / v[a, a]) * (
                    d[a, b] - v[a, b] * d[b, b] / v[b, b]
                )
                mixed += c[a, a] * d[b, b] * (1 - rho**2)
                phi[k, l, a, b] = angle * parts[k, l, a, b] + mixed / area
        phi[:, :, a, b] *= 2 / np.pi
    return phi.swapaxes(1, 2).reshape(u.shape) - u


def test_drift_of_relu_is_the_closed_form():
    u = joint(3, 2)
    derived = sa.drift(sa.ShapedMLP(0.6, c_plus=1.3, c_minus=0.4), u, tangents=2)
    np.testing.assert_allclose(derived, 0.6**2 * 0.9**2 / 4 * relu_drift(u, 3), atol=1e-14)


COPIES = np.kron(np.eye(2), np.tril(np.ones((2, 2)))).astype(bool)
SMOOTH = sa.ShapedMLP(0.6, activation="gelu", scale=0.7)
GATED = sa.ShapedMLP(0.6, activation="silu", gated=True, scale=0.9, gate_bias=0.5)
BIASED = {"query_bias": 0.7, "heads": 2, "output_projection": True}
TWICE = {
    "gelu": (SMOOTH, SMOOTH),
    "gate": (GATED, GATED),
    "biased": (
        sa.ShapedAttention(0.6, mask="causal", **BIASED),
        sa.ShapedAttention(0.6, mask=COPIES, **BIASED),
    ),
    "qk_norm": (
        sa.ShapedAttention(0.6, mask="causal", qk_norm=True),
        sa.ShapedAttention(0.6, mask=COPIES, qk_norm=True),
    ),
    "parallel": (
        sa.Parallel(sa.ShapedAttention(0.6, mask="causal"), SMOOTH),
        sa.Parallel(sa.ShapedAttention(0.6, mask=COPIES), SMOOTH),
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_drift_is_the_derivative_between_two_copies(name):
    """The mixed difference of the drift of X + e X._k and X + f X._l, without tangents."""
    block, copies = TWICE[name]
    m, u = 2, joint(2, 2)
    derived, whole = sa.drift(block, u, tangents=2), torch.tensor(u)
    for k, l in itertools.product((1, 2), repeat=2):

        def between(e, f, k=k, l=l):
            eye = torch.eye(m, 3 * m, dtype=torch.float64)
            moved = [x * torch.roll(eye, y * m, 1) for x, y in ((e, k), (f, l))]
            rows = torch.cat([eye + moved[0], eye + moved[1]])
            return sa.drift(copies, rows @ whole @ rows.mT)[:m, m:]

        h = 1e-3
        second = (between(h, h) - between(h, -h) - between(-h, h) + between(-h, -h)) / (4 * h * h)
        block_of = derived[k * m : (k + 1) * m, l * m : (l + 1) * m]
        np.testing.assert_allclose(block_of, second.numpy(), atol=2e-5)


@pytest.mark.parametrize(("tokens", "tangents", "mask"), [(2, 1, None), (2, 2, "causal")])
def test_drift_follows_from_the_recursion(tokens, tangents, mask):
    derived = tangent_drift(sy.ShapedAttention(mask=two_copies(mask, tokens)), tokens, tangents)
    u = joint(tokens, tangents, seed=1)
    names = joint_covariance(tokens, tangents)
    values = {str(names[a, b]): u[a, b] for a in range(len(u)) for b in range(len(u))}
    values |= {"gamma": 0.6, "tau_0": 0.8}
    free = sorted(derived.free_symbols, key=str)
    number = lambdify(free, derived)(*[values[str(x)] for x in free])
    expected = sa.drift(sa.ShapedAttention(0.6, 0.8, mask=mask), u, tangents=tangents)
    np.testing.assert_allclose(np.array(number, dtype=float), expected, atol=1e-14)


def test_diffusion_is_that_of_four_copies():
    """Sigma of D_11 entries, as a fourth derivative; its linear part is that of more tokens."""
    u = joint(2, 1)
    weak = sa.diffusion(sa.ShapedAttention(0.6, tau0=1e9), u, tangents=1)
    more = sa.diffusion(sa.ShapedAttention(0.6, tau0=1e9), u)
    np.testing.assert_allclose(weak, more, atol=1e-12)
    block = sa.ShapedAttention(0.6, 0.8)
    four = sa.ShapedAttention(0.6, 0.8, mask=np.kron(np.eye(4), np.ones((2, 2))).astype(bool))
    h, total = 0.01, 0.0
    for signs in itertools.product((1, -1), repeat=4):
        rows = np.kron(np.ones((4, 1)), np.eye(2, 4))
        rows += np.kron(np.array(signs)[:, None] * h, np.roll(np.eye(2, 4), 2, axis=1))
        sigma = sa.diffusion(four, rows @ u @ rows.T)
        index = {pair: i for i, pair in enumerate((a, b) for a in range(8) for b in range(a + 1))}
        # Cov[d<x_0 of copy 1, x_1 of copy 0>, the same of copies 3 and 2]
        total += np.prod(signs) * sigma[index[3, 0], index[7, 4]]
    derived = sa.diffusion(block, u, tangents=1)
    pairs = [(a, b) for a in range(4) for b in range(a + 1)]
    entry = derived[pairs.index((3, 2)), pairs.index((3, 2))]
    np.testing.assert_allclose(entry, total / (2 * h) ** 4, rtol=1e-5)


EQUAL = joint(3, 1)
for _first, _second in ((0, 1), (3, 4)):
    EQUAL[:, _second] = EQUAL[:, _first]
    EQUAL[_second, :] = EQUAL[_first, :]
NETWORKS = {
    "heads": sa.ShapedAttention(0.9, 0.3, heads=2),
    "mixed": sa.ShapedAttention(
        0.6, heads=2, output_projection=True, mask="causal", query_bias=0.3
    ),
    "rope": sa.ShapedAttention(0.6, rope=1.0, mask="causal", key_bias=0.2),
    "qk_norm": sa.ShapedAttention(0.6, qk_norm=True),
    "pre_norm": sa.Normalised(sa.ShapedAttention(0.6), "before", "rms"),
    "layer_norm": sa.Normalised(sa.ShapedAttention(0.6), "before", "layer"),
    "relu": sa.ShapedMLP(0.6, c_plus=1.0),
    "gelu": sa.ShapedMLP(0.6, activation="gelu", hidden_ratio=2.0),
    "gated": sa.Normalised(sa.ShapedMLP(0.6, activation="silu", gated=True), "before", "layer"),
    "parallel": sa.Parallel(sa.ShapedAttention(0.5), sa.ShapedAttention(0.4, mask="causal")),
}


def smallest(first, second):
    """The smallest p-value of all entries and of log tr D, times their number."""
    pairs = [(a, b) for a in range(6) for b in range(a + 1)]
    values = [(first[:, a, b], second[:, a, b]) for a, b in pairs]
    values.append(tuple(np.log(x[:, [3, 4, 5], [3, 4, 5]].sum(1)) for x in (first, second)))
    return min(stats.ks_2samp(x, y).pvalue for x, y in values) * len(values)


def end(sampler, block, seed):
    run = sampler(
        sa.WithTangents(block), EQUAL, width=16, depth=3, samples=2000, seed=seed, times=[3 / 16]
    )
    return run.V.values[-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_chain_is_that_of_networks_with_real_weights(name):
    """Two of the three tokens are equal, with equal tangents."""
    block = NETWORKS[name]
    chain, network = end(sa.simulate_chain, block, 1), end(sa.simulate_network, block, 2)
    assert smallest(chain, network) > 1e-3


def test_law_notices_scores_that_do_not_move(monkeypatch):
    """Negative control: tangents of the attention weights left out."""
    network = end(sa.simulate_network, NETWORKS["heads"], 2)
    softmax = attention.softmax

    def still(x, *rest):
        return x.still(softmax(x.value, *rest)) if isinstance(x, Dual) else softmax(x, *rest)

    monkeypatch.setattr(attention, "softmax", still)
    with sa.eager():
        assert smallest(end(sa.simulate_chain, NETWORKS["heads"], 1), network) < 1e-6


def test_law_notices_units_that_do_not_move(monkeypatch):
    """Negative control: tangents of the hidden units left out."""
    network = end(sa.simulate_network, NETWORKS["gelu"], 2)
    gelu = activations.NAMED["gelu"]

    def still(x):
        return x.still(gelu(x.value)) if isinstance(x, Dual) else gelu(x)

    def of_entries(x):
        return entrywise(still, x) if isinstance(x, Rows) else gelu(x)

    monkeypatch.setitem(activations.NAMED, "gelu", of_entries)
    with sa.eager():
        assert smallest(end(sa.simulate_chain, NETWORKS["gelu"], 1), network) < 1e-6


@pytest.mark.parametrize("mask", [None, "causal"])
def test_limit_is_that_of_the_chain(mask):
    u = np.eye(6)
    u[:2, :2] = sa.equicorrelated(2, 0.3)
    block = sa.ShapedAttention(0.5, mask=mask)
    run = sa.integrate_sde(block, u, horizon=0.5, samples=2000, seed=1, tangents=2)
    chain = sa.simulate_chain(
        sa.WithTangents(block, 2), u, width=128, depth=64, samples=2000, seed=2, times=[0.5]
    )
    first, second = run.V.values[-1], chain.V.values[-1]
    assert smallest(first, second) > 1e-3
    assert smallest(first, second[:, ::-1, ::-1]) < 1e-6


def test_one_token_is_linear():
    """The tangent is another token: log D ~ N(-kT, 2kT); exact, at any number of tangents."""
    run = sa.integrate_sde(
        sa.ShapedAttention(0.5), np.diag([1.0, 2.0]), horizon=0.5, samples=4000, tangents=1
    )
    k = 0.25 * 1.75
    logs = np.log(run.V.values[-1][:, 1, 1] / 2)
    assert stats.kstest(logs, "norm", (-0.5 * k, k**0.5)).pvalue > 1e-3
    assert stats.kstest(logs, "norm", (-0.3 * k, k**0.5)).pvalue < 1e-3


@pytest.mark.parametrize("method", ["clock", "direct", "torchsde"])
@pytest.mark.parametrize(
    "block", [sa.ShapedAttention(0.5, mask="causal"), sa.ShapedMLP(0.5), SMOOTH]
)
def test_compiled_code_agrees_with_torch(block, method):
    def paths():
        run = sa.integrate_sde(
            block, joint(2, 1), horizon=0.05, samples=3, tangents=1, method=method
        )
        return run.V.values

    compiled = paths()
    with sa.eager():
        np.testing.assert_allclose(paths(), compiled, rtol=1e-9, atol=1e-12)


def test_values_do_not_notice_tangents():
    """Drift and diffusion of V are those without tangents."""
    u, block = joint(2, 2), sa.ShapedAttention(0.6, mask="causal")
    np.testing.assert_allclose(
        sa.drift(block, u, tangents=2)[:2, :2], sa.drift(block, u[:2, :2]), atol=1e-14
    )
    np.testing.assert_allclose(
        sa.diffusion(block, u, tangents=2)[:3, :3], sa.diffusion(block, u[:2, :2]), atol=1e-14
    )


def test_parameters_reach_the_block():
    gamma = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    u = torch.tensor(joint(2, 1))
    value = sa.drift(sa.ShapedAttention(0.1), u, tangents=1, parameters={"gamma": gamma})
    np.testing.assert_allclose(
        value.detach(), sa.drift(sa.ShapedAttention(0.6), u, tangents=1), atol=1e-14
    )
    (slope,) = torch.autograd.grad(value.sum(), gamma)
    np.testing.assert_allclose(slope, 2 / 0.6 * value.detach().sum(), rtol=1e-10)


def test_results_run_again():
    run = sa.integrate_sde(sa.ShapedAttention(0.5), joint(2, 1), horizon=0.1, samples=3, tangents=1)
    np.testing.assert_array_equal(sa.rerun(run).V, run.V)


REFUSED = [
    (sa.ShapedAttention(0.5), joint(3, 0), 1, "a multiple of 2 rows"),
    (sa.ShapedAttention(0.5), joint(2, 1), -1, "tangents must be an integer >= 0; got -1"),
    (
        sa.Normalised(sa.ShapedAttention(0.5), "after", "rms"), joint(2, 1), 1,
        "none is derived for tangents of normalised blocks",
    ),
    (
        sa.ShapedAttention(0.5, qk_norm=True, key_size=8), joint(2, 1), 1,
        "QK-norm over a fixed number of columns",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("block", "u", "tangents", "message"), REFUSED)
def test_refusals(block, u, tangents, message):
    with pytest.raises(ValueError, match=message):
        sa.integrate_sde(block, u, horizon=0.1, samples=2, tangents=tangents)


def test_a_limit_that_does_not_know_copies_is_refused():
    from tests.custom_blocks import LinearAttention

    with pytest.raises(ValueError, match="has no on_copies"):
        sa.drift(LinearAttention(0.5), joint(2, 1), tangents=1)


@pytest.mark.parametrize(("inner", "count"), [(sa.WithTangents(SMOOTH), 1), (SMOOTH, 0)])
def test_wrong_blocks_are_refused(inner, count):
    with pytest.raises(ValueError, match=r"(inner|count) must be"):
        sa.WithTangents(inner, count)
