"""Drift and diffusion: closed forms, symmetries, and one layer of real weight matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shaped_attention import (
    ShapedAttention,
    ShapedMLP,
    diffusion,
    drift,
    equicorrelated,
    simulate_network,
    vech,
)
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.numerics.primitives import cholesky
from shaped_attention.samplers.steps import flowed

GAMMA, TAU = 0.6, 0.8
ATTENTION = ShapedAttention(GAMMA, TAU)
MLP = ShapedMLP(GAMMA, 0.3, -1.0)
MASK = np.array([[True, False, True], [True, True, False], [False, True, True]])


def random_covariances(tokens: int, count: int = 4, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((count, tokens, tokens + 2))
    return x @ x.swapaxes(-1, -2) / (tokens + 2)


def closed_form_drift(v: np.ndarray) -> np.ndarray:
    """(gamma / tau_0)^2 [ |P|^2 V / m^2 + (q u^T + u q^T) / (2 m) ] of the design."""
    m = len(v)
    c = np.eye(m) - 1.0 / m
    p = c @ v @ c
    s = np.diag(p) - np.trace(p) / m
    q, u = np.diag(v), v @ s
    return (GAMMA / TAU) ** 2 * (
        (p**2).sum() / m**2 * v + (np.outer(q, u) + np.outer(u, q)) / (2 * m)
    )


def closed_form_diffusion(v: np.ndarray) -> np.ndarray:
    """Entry by entry from the index formulas of the design."""
    m = len(v)
    c = np.eye(m) - 1.0 / m
    r = v @ c @ v @ c @ v / m**2
    pairs = [(i, j) for i in range(m) for j in range(i + 1)]
    k = GAMMA**2 * (2 - GAMMA**2)
    out = np.empty((len(pairs), len(pairs)))
    for x, (a, b) in enumerate(pairs):
        for y, (i, j) in enumerate(pairs):
            linear = v[a, i] * v[b, j] + v[a, j] * v[b, i]
            att = v[a, i] * r[b, j] + v[b, j] * r[a, i] + v[a, j] * r[b, i] + v[b, i] * r[a, j]
            out[x, y] = k * linear + GAMMA**4 / TAU**2 * att
    return out


@pytest.mark.parametrize("tokens", [1, 2, 3, 5])
def test_attention_agrees_with_the_closed_forms(tokens):
    v = random_covariances(tokens)
    np.testing.assert_allclose(drift(ATTENTION, v), [closed_form_drift(x) for x in v], atol=1e-13)
    np.testing.assert_allclose(
        diffusion(ATTENTION, v), [closed_form_diffusion(x) for x in v], atol=1e-12
    )


def test_exchangeable_tokens():
    """b = (gamma / tau_0)^2 (m - 1) / m^2 (q - p)^2 V for V = p 11^T + (q - p) I."""
    m, q, p = 5, 1.7, 0.6
    v = equicorrelated(m, p / q, q)
    expected = (GAMMA / TAU) ** 2 * (m - 1) / m**2 * (q - p) ** 2 * v
    np.testing.assert_allclose(drift(ATTENTION, v), expected, rtol=1e-12)


@pytest.mark.portability
def test_equal_tokens_have_no_drift_and_no_attention_noise():
    v = np.full((4, 4), 1.3)
    np.testing.assert_allclose(drift([ATTENTION, MLP], v), 0.0, atol=1e-14)  # rounding of sums
    k = GAMMA**2 * (2 - GAMMA**2)
    np.testing.assert_allclose(diffusion(ATTENTION, v), 2 * k * 1.3**2, rtol=1e-12)


def test_mlp_drift_is_the_limit_of_the_exact_kernel():
    """n (c E[s(g_a) s(g_b)] - rho) of the closed form at n = 10^8, against nu(rho)."""
    for rho in (-0.9, -0.2, 0.0, 0.5, 0.95):
        plus, minus = MLP.slopes(at_depth(MLP, 0.0), 10**8)
        nonlinear = (math.sqrt(1 - rho**2) - rho * math.acos(rho)) / (2 * math.pi)
        exact = 2 * (plus - minus) ** 2 / (plus**2 + minus**2) * nonlinear
        value = drift(MLP, equicorrelated(2, rho))[0, 1] / GAMMA**2
        assert value == pytest.approx(1e8 * exact, rel=3e-4)


@pytest.mark.parametrize("rho", [-0.7, 0.0, 0.3, 0.9])
def test_finite_width_kernel_of_the_mlp(rho):
    """c E[s(g_a) s(g_b)] at n = 4, by quadrature over the angle, against the closed form.

    The activation is homogeneous and E |g|^2 = 2, so only the mean over the angle is left. A
    variant with (s_+ + s_-)^2 is rejected.
    """
    angle = (np.arange(200_000) + 0.5) * (2 * np.pi / 200_000)
    g = torch.tensor(np.stack([np.cos(angle), np.cos(angle - math.acos(rho))]))
    s = MLP.activated(at_depth(MLP, 0.0), g, 4).numpy()
    numeric = 2.0 / MLP.mean_square(4) * (s[0] * s[1]).mean()
    plus, minus = MLP.slopes(at_depth(MLP, 0.0), 4)
    nonlinear = (math.sqrt(1 - rho**2) - rho * math.acos(rho)) / (2 * math.pi)
    exact = rho + 2 * (plus - minus) ** 2 / (plus**2 + minus**2) * nonlinear
    assert numeric == pytest.approx(exact, abs=1e-8)
    wrong = rho + 2 * (plus + minus) ** 2 / (plus**2 + minus**2) * nonlinear
    assert abs(numeric - wrong) > 1e-3


def test_blocks_of_a_layer_add():
    v = random_covariances(3)
    np.testing.assert_allclose(
        drift([ATTENTION, MLP], v), drift(ATTENTION, v) + drift(MLP, v), rtol=1e-13
    )
    np.testing.assert_allclose(
        diffusion([ATTENTION, MLP], v), diffusion(ATTENTION, v) + diffusion(MLP, v), rtol=1e-13
    )


@pytest.mark.parametrize("layer", [MLP, ShapedAttention(GAMMA, TAU, mask="causal", query_bias=0.3)])
def test_a_step_of_the_flow_keeps_v_positive_and_has_its_drift(layer):
    """(flow(V, h) - V) / h -> growth - decay V, and no eigenvalue turns negative at any step."""
    v = torch.tensor(random_covariances(4))
    pairs = [(layer.limit, at_depth(layer, 0.0))]
    limit, p = pairs[0]
    rate = limit.growth(p, v) - limit.decay(p) * v
    root = flowed(pairs, torch.linalg.cholesky(v), 1e-6)
    np.testing.assert_allclose((root @ root.mT - v) / 1e-6, rate, atol=1e-5)
    singular = torch.ones(1, 4, 4, dtype=torch.float64)
    for step in (0.1, 1.0, 10.0):
        moved = flowed(pairs, cholesky(singular), step)
        assert bool(torch.isfinite(moved).all())


V0 = np.array([[2.0, 0.8, 0.2], [0.8, 1.6, -0.3], [0.2, -0.3, 1.2]])
ONE_LAYER = {
    "attention": (ShapedAttention(0.7), ShapedAttention(0.7, 1e12)),
    "few keys": (ShapedAttention(0.7, key_size=12), ShapedAttention(0.7, 1e12, key_size=12)),
    "mlp": (ShapedMLP(0.7, 0.5, -2.0), ShapedMLP(0.7, 0.0, 0.0)),
    "both": (
        [ShapedAttention(0.6), ShapedMLP(0.6, 0.5, -2.0)],
        [ShapedAttention(0.6, 1e12), ShapedMLP(0.6, 0.0, 0.0)],
    ),
    "causal": (ShapedAttention(0.7, mask="causal"), ShapedAttention(0.7, 1e12)),
    "mask": (ShapedAttention(0.7, mask=MASK), ShapedAttention(0.7, 1e12)),
    "heads": (ShapedAttention(0.7, heads=2), ShapedAttention(0.7, 1e12, heads=2)),
    "heads, projection": (
        ShapedAttention(0.7, heads=2, output_projection=True),
        ShapedAttention(0.7, 1e12, heads=2, output_projection=True),
    ),
    "biases": (
        ShapedAttention(0.7, query_bias=0.8, key_bias=0.6),
        ShapedAttention(0.7, 1e12, query_bias=0.8, key_bias=0.6),
    ),
    "projection": (
        ShapedAttention(0.7, output_projection=True),
        ShapedAttention(0.7, 1e12, output_projection=True),
    ),
}


class Weights:
    """Weight matrices from torch's own generator, kept to be used again with another first sign."""

    def __init__(self, samples, seed):
        self.samples, self.generator = samples, torch.Generator().manual_seed(seed)
        self.kept, self.position, self.sign = [], 0, 1.0

    def replay(self, sign):
        self.position, self.sign = 0, sign
        return self

    def __call__(self, x, columns, name=None, head=0):
        if self.position == len(self.kept):
            shape = (self.samples, x.shape[-1], columns)
            self.kept.append(torch.randn(shape, generator=self.generator, dtype=torch.float64))
        w = self.kept[self.position]
        self.position += 1
        return x @ w * (self.sign if self.position == 1 else 1.0)


def one_layer(layer, x, weights):
    for block in layer if isinstance(layer, list) else [layer]:
        x = block.forward(at_depth(block, 0.0), x, weights)
    return vech(x @ x.mT / x.shape[-1])


def one_layer_drift(name, width, samples, seed):
    """n (mean V' - V) and its standard error, from real weights.

    Two exact reductions of the variance: from V' is taken the V' of the same weights without
    attention or nonlinearity, whose mean is V, and the mean is over both signs of the first weight.
    """
    layer, control = ONE_LAYER[name]
    x = math.sqrt(width) * torch.linalg.cholesky(torch.tensor(V0))
    x = torch.cat([x, torch.zeros(3, width - 3, dtype=torch.float64)], -1).expand(samples, -1, -1)
    weights, total = Weights(samples, seed), 0.0
    for sign in (1.0, -1.0):
        total = total + one_layer(layer, x, weights.replay(sign))
        total = total - one_layer(control, x, weights.replay(sign))
    change = width * total / 2
    return change.mean(0), change.std(0) / math.sqrt(samples)


@pytest.mark.parametrize("name", ONE_LAYER)
def test_drift_from_one_layer_of_real_weights(name):
    """Within 5 standard errors, extrapolated from n and 2 n; a drift twice as large is not.

    The standard errors are 0.01 for attention and 0.05 for the MLP, where the drift is about 0.3
    and 0.9. The first token of a causal mask has no drift but rounding.
    """
    samples = 8_000
    small, large = (one_layer_drift(name, n, samples, n) for n in (24, 48))
    b, error = 2 * large[0] - small[0], np.hypot(2 * large[1], small[1])
    expected = vech(drift(ONE_LAYER[name][0], V0))
    assert (np.abs(b - expected) < 5 * error + 1e-9).all()
    assert (np.abs(b - 2 * expected) > 5 * error).any()


@pytest.mark.parametrize(
    "name",
    ["attention", "mlp", "both", "mask", "projection", "heads", "heads, projection", "biases"],
)
def test_diffusion_from_one_layer_of_real_weights(name):
    """n Cov V' within 5 standard errors, extrapolated from n and 2 n; 1.2 times it is not."""
    layer, samples = ONE_LAYER[name][0], 20_000
    moments = []
    for n in (12, 24):
        result = simulate_network(layer, V0, width=n, depth=1, samples=samples, seed=n)
        x = vech(result.V.values[-1])
        x = x - x.mean(0)
        products = n * x[:, :, None] * x[:, None, :]
        moments.append((products.mean(0), products.std(0) / math.sqrt(samples)))
    (small, small_error), (large, large_error) = moments
    sigma, error = 2 * large - small, np.hypot(2 * large_error, small_error)
    expected = diffusion(layer, V0)
    assert (np.abs(sigma - expected) < 5 * error).all()
    assert (np.abs(sigma - 1.2 * expected) > 5 * error).any()


@pytest.mark.parametrize("start", ["random", "two equal tokens", "two opposite tokens"])
@pytest.mark.parametrize(
    "layer",
    [ATTENTION, MLP, [ATTENTION, MLP], ShapedAttention(0.6, mask="causal", query_bias=0.5)],
    ids=["attention", "mlp", "both", "causal"],
)
@pytest.mark.parametrize("function", [drift, diffusion])
def test_gradients_are_those_of_finite_differences(function, layer, start):
    """Central differences in tokens, to 1e-5; at equal tokens the MLP's are numbers too."""
    x = torch.tensor(np.random.default_rng(3).normal(size=(3, 5)))
    if start != "random":
        x[1] = x[0] if start == "two equal tokens" else -x[0]
    g = torch.tensor(np.random.default_rng(4).normal(size=(3, 5)))
    weights = torch.tensor(np.random.default_rng(5).normal(size=(6, 6)))

    def value(t):
        moved = x + t * (g if start == "random" else torch.ones(3, 1) * g[:1] * x.sign())
        out = function(layer, moved @ moved.mT / 5)
        return (out * weights[: out.shape[-1], : out.shape[-1]]).sum()

    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(t), t)
    h = 1e-5
    numeric = float(value(torch.tensor(h)) - value(torch.tensor(-h))) / (2 * h)
    assert float(slope) == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_the_gradient_of_the_mlp_at_equal_tokens():
    """d nu / d rho = -arccos rho: 0 at correlation 1 and -pi at -1."""
    kappa = GAMMA**2 * (MLP.c_plus - MLP.c_minus) ** 2 / (2 * math.pi)
    for rho, slope in ((1.0, 0.0), (-1.0, -math.pi), (0.0, -0.5 * math.pi)):
        r = torch.tensor(rho, dtype=torch.float64, requires_grad=True)
        off = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
        out = drift(MLP, torch.eye(2, dtype=torch.float64) + r * off)[0, 1]
        (found,) = torch.autograd.grad(out, r)
        assert float(found) == pytest.approx(kappa * slope, abs=1e-12)


def test_indefinite_matrices_are_refused() -> None:
    """Their factor would be that of another matrix; rounding of singular ones passes."""
    message = "^v must be positive semidefinite; its smallest eigenvalue is -1$"
    for function in (drift, diffusion):
        with pytest.raises(ValueError, match=message):
            function(ShapedAttention(gamma=0.5), np.array([[1.0, 2.0], [2.0, 1.0]]))
    rounded = np.array([[1.0, 1.0 + 1e-12], [1.0 + 1e-12, 1.0]])
    assert np.isfinite(drift(ShapedAttention(gamma=0.5), rounded)).all()
