"""The second moment of the tangent kernel in the limit."""

from __future__ import annotations

import numpy as np
from scipy.linalg import expm

import shaped_attention as sa


def kernel_moment(gamma: float, time: float) -> float:
    """Return E Theta^2 / (E Theta)^2 of one token in the limit, after the time L / n.

    Of shaped attention without W_O, which is linear if there is one token, so that only the
    values' weights count: k = gamma^2 (2 - gamma^2). For a Gaussian readout v, Theta is the mean
    of <v, dx>^2 / n over tangents dx by independent N(0, 1) directions of all weights, so that
    E Theta^2 is the mean of D_1 D_2 + 2 D_12^2 with D_12 = <dx_1, dx_2> / n of two directions and
    D_i = |dx_i|^2 / n. With V = |x|^2 / n and C_1 = <x, dx_1> / n let b = E V D_1, c = E C_1^2,
    d = E D_1 D_2 and e = E D_12^2. They are 0 at first and solve

        b' = gamma^2 e^(2 k t) + 2 k c,      c' = k (b + c),
        d' = 2 gamma^2 b + 2 k e,            e' = k (d + e),

    and E Theta = gamma^2 t. If a mean over many outputs replaces v, E Theta^2 is d alone.
    """
    k, rate = gamma**2 * (2.0 - gamma**2), gamma**2
    generator = np.zeros((5, 5))
    # In the order e^(2 k t), b, c, d, e.
    generator[0, 0] = 2.0 * k
    generator[1, [0, 2]] = rate, 2.0 * k
    generator[2, [1, 2]] = k
    generator[3, [1, 4]] = 2.0 * rate, 2.0 * k
    generator[4, [3, 4]] = k
    d, e = expm(generator * time)[3:, 0]
    return float(d + 2.0 * e) / (rate * time) ** 2


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
