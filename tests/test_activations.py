"""MLP blocks with smooth, plain and users' activations, and any number of hidden units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy import integrate, special

import shaped_attention as sa
from tests.laws import assert_executors_agree, same_law
from tests.refusals import refused

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
USER = "tests.activation_functions"
TANH_CUBIC = math.sqrt(2.0 / math.pi)
PHI: dict[str, Function] = {
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(TANH_CUBIC * (x + 0.044715 * x**3))),
    "silu": lambda x: x * special.expit(x),
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "plain_relu": lambda x: np.maximum(x, 0.0),
    f"{USER}:swish": lambda x: x * special.expit(1.7 * x),
    f"{USER}:softsign": lambda x: x / np.sqrt(1.0 + x * x),
}
SMOOTH = [name for name in PHI if name != "plain_relu"]
V0 = sa.equicorrelated(3, 0.2, 1.5)
V = np.array([[1.7, 0.6, -0.4], [0.6, 0.8, 0.2], [-0.4, 0.2, 1.1]])


@pytest.mark.parametrize("name", PHI)
def test_the_mean_square_is_the_gaussian_integral(name: str) -> None:
    """Plain at three input scales, and shaped at three widths, to 1e-12 of adaptive quadrature."""

    def integral(f: Callable[[float], float]) -> float:
        found = 0.0
        for edges in ((-12.0, 0.0), (0.0, 12.0)):
            found += integrate.quad(
                lambda g: f(g) ** 2 * math.exp(-0.5 * g * g) / math.sqrt(2.0 * math.pi),
                *edges, epsabs=1e-15, epsrel=1e-13, limit=200,
            )[0]  # fmt: skip
        return found

    phi = PHI[name]
    for sigma in (0.3, 1.0, 4.0):
        block = sa.ShapedMLP(0.5, activation=name, input_scale=sigma)
        expected = integral(lambda g, sigma=sigma: float(phi(np.float64(sigma * g))))
        assert block.mean_square(64) == pytest.approx(expected, rel=1e-12)
    for width in (4, 64, 10**4) if name in SMOOTH else ():
        s = 0.6 * math.sqrt(width)
        block = sa.ShapedMLP(0.5, activation=name, scale=0.6)
        expected = integral(lambda g, s=s: s * float(phi(np.float64(g / s)) - phi(np.float64(0.0))))
        assert block.mean_square(width) == pytest.approx(expected, rel=1e-11)


def kernel(unit: Callable[[Array], Array], v: Array) -> Array:
    """c E s(h_a) s(h_b) of two entries at a time, by Gauss-Hermite quadrature with 60^2 nodes."""
    x, weights = hermegauss(60)
    weights = weights / weights.sum()
    square = weights @ unit(x) ** 2
    result = np.empty_like(v)
    for a in range(len(v)):
        for b in range(len(v)):
            first = math.sqrt(v[a, a]) * x[:, None] + 0.0 * x
            rho = v[a, b] / math.sqrt(v[a, a] * v[b, b])
            mixed = rho * x[:, None] + math.sqrt(max(0.0, 1.0 - rho**2)) * x
            second = math.sqrt(v[b, b]) * mixed
            result[a, b] = weights @ (unit(first) * unit(second)) @ weights
    return result / square


@pytest.mark.parametrize("name", SMOOTH)
def test_the_drift_is_the_limit_of_the_exact_kernel(name: str) -> None:
    """n (E V' - V) approaches the drift like 1/n, by a factor of 100 from n = 10^4 to 10^6.

    Half of the drift, or that of another function, is further away than the last error by 10^3.
    """
    gamma, a, phi = 0.6, 0.7, PHI[name]
    block = sa.ShapedMLP(gamma, activation=name, scale=a)
    drift = sa.drift(block, V)
    errors = []
    for width in (10**4, 10**6):
        s = a * math.sqrt(width)
        moved = gamma**2 * (kernel(lambda x, s=s: s * (phi(x / s) - phi(0.0 * x)), V) - V)
        errors.append(np.abs(width * moved - drift).max())
    size = np.abs(drift).max()
    assert 50.0 < errors[0] / errors[1] < 200.0
    assert errors[1] < 1e-4 * size
    other = sa.ShapedMLP(gamma, activation="tanh" if name != "tanh" else "gelu", scale=a)
    for wrong in (0.5 * drift, sa.drift(other, V)):
        assert np.abs(width * moved - wrong).max() > 0.1 * size


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
def test_the_linear_rate_of_any_ratio_of_hidden_units(ratio: float) -> None:
    """One layer of real weights, one token, a linear activation: the variance of V' is exact.

    n Var V' / 2 = 2 lambda^2 gamma^2 + gamma^4 (1 + 2 / d) + gamma^4 n / d with d hidden units:
    given the hidden layer V' is a noncentral chi-square. 40,000 layers give it within 4 standard
    errors of about 1 %; the rate 2 gamma^2 of d = n is 10 away for the other ratios.
    """
    gamma, width = 0.8, 16
    block = sa.ShapedMLP(gamma, 0.0, 0.0, hidden_ratio=ratio)
    units = block.units(width)
    run = sa.simulate_network(
        block, [[1.0]], width=width, depth=1, samples=40_000, seed=3, progress=False
    )
    squares = (width / 2.0) * (run["V"].isel(time=-1).to_numpy().reshape(-1) - 1.0) ** 2
    found, error = squares.mean(), squares.std() / math.sqrt(len(squares))
    limit = 2.0 * gamma**2 + gamma**4 * (1.0 / ratio - 1.0)
    assert abs(found - (limit + 2.0 * gamma**4 / units)) < 4.0 * error
    assert sa.diffusion(block, np.eye(1))[0, 0] == pytest.approx(2.0 * limit, rel=1e-13)
    if ratio != 1.0:
        assert abs(found - 2.0 * gamma**2 * (1.0 + gamma**2 / width)) > 10.0 * error


def mlp(**options: Any) -> sa.ShapedMLP:
    return sa.ShapedMLP(0.7, **options)


MEMBERS = {
    "shaped GELU": (mlp(activation="gelu", scale=0.8), mlp(activation="tanh", scale=0.8)),
    "shaped tanh": (mlp(activation="tanh", scale=0.3), mlp(activation="silu", scale=0.3)),
    "GELU": (mlp(activation="gelu"), mlp(activation="plain_relu")),
    "SiLU": (mlp(activation="silu"), mlp(activation="gelu")),
    "ReLU": (mlp(activation="plain_relu"), mlp(c_minus=-2.0)),
    "a user's": (mlp(activation=f"{USER}:swish"), mlp(activation="tanh")),
}  # fmt: skip


@pytest.mark.parametrize("name", MEMBERS)
def test_the_chain_has_the_law_of_networks(name: str) -> None:
    """Wrong twins have another function."""
    check_the_chain(*MEMBERS[name])


def check_the_chain(right: Any, wrong: Any) -> None:
    """KS on every observable at level 10^-3 (Bonferroni), 3,000 networks of 8 layers, n = 16.

    The same test rejects the wrong twin.
    """
    run: dict[str, Any] = {"width": 16, "depth": 8, "progress": False}
    v0 = V0
    network = sa.simulate_network(right, v0, samples=3000, seed=1, **run)
    assert same_law(network, sa.simulate_chain(right, v0, samples=30_000, seed=2, **run))
    assert not same_law(network, sa.simulate_chain(wrong, v0, samples=30_000, seed=2, **run))


def test_the_chain_approaches_the_sde() -> None:
    """KS at n = 256, t = 1/4, 4,000 chains; the SDE without the drift is rejected."""
    block = sa.ShapedMLP(0.8, activation="silu", gated=True, scale=0.6, gate_bias=1.0)
    v0 = sa.equicorrelated(2, 0.2, 0.7)
    chain = sa.simulate_chain(block, v0, width=256, depth=64, samples=4000, seed=1, progress=False)
    run: dict[str, Any] = {"horizon": 0.25, "samples": 20_000, "seed": 2, "progress": False}
    assert same_law(chain, sa.integrate_sde(block, v0, step=1 / 256, **run))
    linear = sa.ShapedMLP(0.8, 0.0, 0.0)
    assert not same_law(chain, sa.integrate_sde(linear, v0, step=1 / 256, **run))


def test_one_token_explodes_with_its_exact_probability() -> None:
    """P = P(Gamma(1 + kappa / k) <= kappa V_0 / k), within 4 standard errors of 10,000 paths.

    Y = 1 / V has dY = (-kappa + (kappa + 2 k) Y) dt - sqrt(2 k) Y dB, so that V explodes when the
    integral of exp(sqrt(2 k) B - (kappa + k) s) reaches 1 / (kappa V_0). Its total is 1 / (k Gamma)
    (Dufresne 1990). Half of kappa gives a probability that is 10 standard errors away.
    """
    gamma, a, samples, start = 0.7, 0.9, 10_000, 1.0
    # dV = kappa (V^2 - V) dt + sqrt(2 k) V dB.
    kappa, k = (gamma / a) ** 2 * 0.75 * 8.0 / math.pi, 2.0 * gamma**2
    run = sa.integrate_sde(
        sa.ShapedMLP(gamma, activation="gelu", scale=a), [[start]], horizon=8.0, step=0.02,
        samples=samples, seed=4, radius=1e6, times=[8.0], progress=False,
    )  # fmt: skip
    found = float(np.isfinite(run["stopping_time"]).mean())
    exact = special.gammainc(1.0 + kappa / k, kappa * start / k)
    error = math.sqrt(exact * (1.0 - exact) / samples)
    assert abs(found - exact) < 4.0 * error
    half = special.gammainc(1.0 + kappa / (2.0 * k), kappa * start / (2.0 * k))
    assert abs(found - half) > 10.0 * error


FAMILY: dict[str, Any] = {
    **{name: right for name, (right, _) in MEMBERS.items()},
    "schedules": sa.ShapedMLP(
        sa.Schedule([(0.0, 0.2), (1.0, 0.6)]), activation="silu",
        scale=sa.Schedule([(0.0, 0.5), (1.0, 2.0)]),
    ),
    "with attention": [sa.ShapedAttention(0.5), sa.ShapedMLP(0.5, activation="gelu", scale=1.0)],
}  # fmt: skip


@pytest.mark.parametrize("v0", [V0, np.ones((3, 3))], ids=["regular", "equal tokens"])
@pytest.mark.parametrize("name", FAMILY)
def test_all_executors_agree(name: str, v0: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of the chain, and of the SDE if there is one, are those of torch to rounding."""
    layer = FAMILY[name]
    run: dict[str, Any] = {"samples": 5, "seed": 3, "progress": False}

    def chain() -> Array:
        return sa.simulate_chain(layer, v0, width=21, depth=3, **run)["V"].to_numpy()

    def sde() -> Array:
        run_sde = {"horizon": 0.2, "step": 0.05, "method": "direct"} | run
        return sa.integrate_sde(layer, v0, **run_sde)["V"].to_numpy()

    assert_executors_agree(chain, monkeypatch)
    if sa.explain(layer).limit.startswith("compiled"):
        assert_executors_agree(sde, monkeypatch)


test_what_does_not_fit_is_refused_in_a_sentence = refused(
    ({"activation": "gelo"}, r"activation must be one of relu, .*\(did you mean 'gelu'\?\)"),
    ({"activation": f"{USER}:across"}, "it uses row_sums"),
    ({"activation": f"{USER}:bump", "scale": 1.0}, r"phi'\(0\) != 0"),
    ({"activation": "gelu", "c_minus": -2.0}, "must be the default unless activation='relu'"),
    (
        {"activation": "silu", "scale": 1.0, "gated": True},
        "gate_bias must be a number at which silu is not 0, .* its value there; got 0.0",
    ),
    ({"hidden": 8, "hidden_ratio": 2.0}, "hidden_ratio must be 1 if hidden is given; got 2.0"),
    by=lambda options: sa.ShapedMLP(0.5, **options),
)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"activation": "gelu"}, "hidden units are nonlinear at infinite width: a layer changes V"),
        ({"hidden": 8}, "over a fixed number of columns are random of order one"),
    ],
)
def test_what_has_no_limit_says_why(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        sa.integrate_sde(sa.ShapedMLP(0.5, **options), V0, horizon=0.2, step=0.1, samples=2)
