"""How tokens join by position, with full and with causal attention."""

from __future__ import annotations

import math

import numpy as np

from shaped_attention import ShapedAttention, diffusion
from shaped_attention.sphere import (
    SphereAttention,
    equiangular_start,
    figure_data,
    sphere_flow,
    uniform_start,
)
from shaped_attention.sphere.theory import final_rate
from tests.test_sphere_clusters import grams


def test_causal_tokens_meet_at_half_the_rate_of_the_second_token():
    """1 - cos falls like e^{-t}, half as fast as with full attention, and token 1 leads.

    The slopes of log(1 - <x_1, x_i>), of token 2 and with full attention of all, are those of the
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


def test_encoder_and_decoder_by_position():
    """What the page says: the decoder is slower, its first token leads, token 2 is pushed most."""
    data = figure_data(
        "encoder-decoder", betas=(1.0,), dimensions=(16,), tokens=6, samples=64, horizon=0.1
    )
    joined = data["joined"].sel(dimension=16, beta=1.0).to_numpy()
    assert (joined[:, 0] == 0.0).all()
    assert np.isfinite(joined).all()
    full, causal = np.median(joined, axis=-1)[:, 1:]
    assert full.max() / full.min() < 1.2  # positions are exchangeable
    assert (causal > 1.3 * full).all()
    assert (np.diff(causal) >= 0.0).all()
    push, error = data["drift"].to_numpy(), data["drift_error"].to_numpy()
    assert abs(push[0] - push[0].mean()).max() < 5.0 * error[0].max()
    assert push[1, 0] == 0.0
    assert (np.diff(push[1, 1:]) < 0.0).all()
    assert abs(push[1, -1] - push[0, -1]) < 1e-12  # the last token sees all


def test_joining_and_diffusion_by_position_are_those_written_out():
    """Tokens join when they become close for the last time, in a decoder not the first, or never.

    The diffusion of V_aa is at its place in vech; what is at others is less than 2/3 of it.
    """
    times = np.linspace(0.0, 6.0, 31)
    data = figure_data(
        "encoder-decoder", betas=(1.0,), dimensions=(2,), times=times, tokens=6, delta=0.1,
        samples=40, horizon=0.02,
    )  # fmt: skip
    v0 = grams(6, 24, 40).numpy()[:1]
    for mask in ("full", "causal"):
        causal = mask == "causal"
        attention = SphereAttention(1.0, causal=causal)
        flow = sphere_flow(attention, uniform_start(6, 2, 40), times.tolist(), tolerance=1e-3)
        close = flow["V"].to_numpy()[:, :, 0] >= 0.9
        joined = np.full((6, 40), math.inf)
        for position, sample in np.ndindex(joined.shape):
            for time, near in zip(times[::-1], close[::-1, sample, position], strict=True):
                if not near:
                    break
                joined[position, sample] = time
        row = data.sel(mask=mask)
        np.testing.assert_array_equal(row["joined"].to_numpy()[0, 0], joined)
        assert np.isinf(joined).any()
        # In a decoder tokens leave the first one and come back.
        first = times[close.argmax(0)].T
        assert (np.isfinite(joined) & (first < joined)).any() == causal
        variance = diffusion(ShapedAttention(0.5, 1.0, mask="causal" if causal else None), v0)[0]
        above, below = np.tril_indices(6)
        known = np.diag(variance)[above == below]
        np.testing.assert_allclose(row["diffusion"], known, rtol=1e-12)
        assert known.min() > 1.5 * np.diag(variance)[above != below].max()
