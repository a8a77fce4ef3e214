"""What members of the attention family lack or do not accept is reported in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa

V0 = np.eye(3)


@pytest.mark.parametrize("missing", ["identity", "centring", "scaled_temperature"])
def test_what_has_no_limit_says_why(missing):
    block = sa.ShapedAttention(0.5, **{missing: False})
    message = rf"which has no limit: .* \({missing}=False\)"
    for call in (
        lambda: sa.integrate_sde([sa.ShapedMLP(0.5), block], V0, horizon=1.0, step=0.1, samples=2),
        lambda: sa.drift(block, V0),
        lambda: sa.diffusion(block, V0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("layer", "width", "message"),
    [
        (sa.ShapedAttention(0.5, heads=3), 8, "width must be a multiple of heads=3; got 8"),
        (
            sa.ShapedAttention(0.5, heads=4),
            4,
            "width must be at least 8 for v0 of rank 2; got 4",
        ),
        (
            [sa.ShapedAttention(0.5, heads=h) for h in (2, 3)],
            6,
            "width must be at least 12 for v0 of rank 2; got 6",
        ),
    ],
)
def test_heads_that_do_not_fit(layer, width, message):
    for sampler in (sa.simulate_network, sa.simulate_chain):
        with pytest.raises(ValueError, match=message):
            sampler(layer, np.eye(2), width=width, depth=2, samples=2)


def test_branches_in_parallel_are_arguments_or_a_list():
    blocks = [sa.ShapedAttention(0.5), sa.ShapedMLP(0.4)]
    as_arguments = sa.Parallel(*blocks)
    for same in (sa.Parallel(blocks), sa.Parallel(tuple(blocks)), sa.Parallel(blocks=blocks)):
        assert same == as_arguments
