"""How tokens join by position, with full and with causal attention."""

from __future__ import annotations

import numpy as np

from shaped_attention.sphere import SphereAttention, equiangular_start, sphere_flow
from shaped_attention.sphere.theory import final_rate


def test_causal_tokens_meet_at_half_the_rate_of_the_second_token():
    """1 - cos falls like e^{-t}, half as fast as with full attention, and token 0 leads.

    The slopes of log(1 - <x_0, x_i>), of token 1 and with full attention of all, are those of the
    rates to 1e-3; the negative control is the rate of the other mask. Later tokens of a decoder
    relax to them as e^{-t/6}, since their own rates are at least 2/3 in place of 1/2.
    """
    start = equiangular_start(5, 0.3)
    for causal, times in ((True, [0.0, 16.0, 20.0]), (False, [0.0, 8.0, 12.0])):
        attention = SphereAttention(1.0, causal=causal)
        flow = sphere_flow(attention, start, times, keep_tokens=True, tolerance=1e-9)
        x = flow["tokens"].to_numpy()[:, 0]
        # 1 - cos loses its digits; half of |x - y|^2 does not.
        apart = 0.5 * ((x[:, 1:] - x[:, :1]) ** 2).sum(-1)
        rates = -np.log(apart[2] / apart[1]) / (times[2] - times[1])
        rate, other = (final_rate(5, 1.0, causal=mask) for mask in (causal, not causal))
        assert abs((rates - rate)[: 1 if causal else None]).max() < 1e-3
        assert abs(rates / rate - 1.0).max() < 0.05
        assert abs(rates - other).min() > 0.9
        moved = np.abs(x[-1, 0] - x[0, 0]).max()
        assert moved < 1e-12 if causal else moved > 0.1
