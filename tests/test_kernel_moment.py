"""The second moment of the tangent kernel in the limit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import shaped_attention as sa
from shaped_attention.figures.paper.tangent_kernels import kernel_moment


def moment_of_samples(width, depth, samples):
    """E Theta^2 / (E Theta)^2 of one token at gamma = 1, with the exact mean, and its error."""
    kernel = sa.neural_tangent_kernel(
        sa.ShapedAttention(1.0), [[1.0]], width=width, depth=depth, samples=samples, seed=4
    ).kernel.values[:, 0, 0]
    squares = (kernel / depth) ** 2
    return squares.mean(), squares.std() / samples**0.5


def test_moment_is_that_of_samples():
    """At L / n = 1/4, where tails are lighter; without the readout's part it is 0.20 smaller."""
    moment, error = moment_of_samples(64, 16, 20_000)
    assert error < 0.04
    assert abs(moment - kernel_moment(1.0, 0.25)) < 4.0 * error
    of_many_outputs = 1.2142
    assert moment - of_many_outputs > 5.0 * error


@pytest.mark.quick
def test_moment_solves_the_equations_and_tends_to_that_of_one_layer():
    """The same equations, solved numerically; one layer of a wide network has no fluctuations."""
    gamma, time = 0.6, 0.8
    k, rate = gamma**2 * (2.0 - gamma**2), gamma**2

    def slope(t, y):
        b, c, d, e = y
        return [
            rate * np.exp(2.0 * k * t) + 2.0 * k * c, k * (b + c), 2.0 * rate * b + 2.0 * k * e,
            k * (d + e),
        ]  # fmt: skip

    *_, d, e = solve_ivp(slope, (0.0, time), np.zeros(4), rtol=1e-10, atol=1e-13).y[:, -1]
    assert kernel_moment(gamma, time) == pytest.approx((d + 2.0 * e) / (rate * time) ** 2, rel=1e-7)
    assert kernel_moment(gamma, 1e-4) == pytest.approx(1.0, abs=1e-3)
