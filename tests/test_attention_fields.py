"""Fields of attention: short forms, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import shaped_attention as sa
from shaped_attention import ShapedAttention, drift, simulate_chain
from tests.refusals import refused
from tests.test_attention_variants import BIAS, V0, attention

test_fields_that_contradict_are_refused = refused(
    ({"heads": 4, "kv_heads": 3}, "kv_heads must be a divisor of heads=4; got 3"),
    (
        {"head_size": 4, "output_projection": False},
        "head_size must be None without output_projection=True; got 4",
    ),
    ({"rope": True}, "rope must be None, a positive base, .*; got True"),
    (
        {"heads": 2, "position_bias": np.zeros((3, 4, 4))},
        r"position_bias must have shape .* \(2, m, m\) for 2 heads; got \(3, 4, 4\)",
    ),
    ({"qk_norm": "heads"}, "qk_norm must be None, True, 'head', 'all' or a QKNorm; got 'heads'"),
    ({"softcap": 0.0}, r"softcap must be positive and finite; got 0\.0"),
    by=lambda options: ShapedAttention(0.5, **{"output_projection": True} | options),
)
test_rotations_that_are_none_are_refused = refused(
    ({"base": 10.0, "angles": [1.0]}, "Rope needs either a base or angles, not both"),
    ({"base": 10.0, "share": 2.0}, r"rope share must be in \[0, 1\]; got 2.0"),
    by=lambda arguments: sa.Rope(**arguments),
)
test_angles_that_are_not_known_are_refused = refused(
    ({"scaling": "yarn"}, "scaling must be one of linear, llama3; got 'yarn'"),
    by=lambda options: sa.Rope.angles_of(**{"base": 10.0, "size": 4} | options),
)
test_sizes_that_do_not_fit_are_refused = refused(
    ((attention(heads=3), 16), "width must be a multiple of heads=3; got 16"),
    (
        ([ShapedAttention(0.5, heads=h) for h in (2, 3)], 12),
        "width must be at least 24 for v0 of rank 4; got 12",
    ),
    ((attention(rope=sa.Rope(10.0, 0.3)), 16), r"rope share must .* of the 16 columns .* 0\.3"),
    by=lambda layer: simulate_chain(layer[0], V0, width=layer[1], depth=1, samples=1),
)
test_what_has_no_limit_is_refused = refused(
    ({"rope": 10.0}, "depend on the size d of a head"),
    ({"qk_norm": sa.QKNorm(eps=0.1), "key_size": 16}, "a fixed number of columns"),
    ({"softcap": 2.0, "scaled_temperature": False}, "scores of order one are random in every"),
    ({"identity": False}, "a layer changes V by order 1, not 1/n"),
    by=lambda options: drift(ShapedAttention(0.8, 0.6, **options), V0),
)


def test_short_forms_are_values():
    """A value, its short forms and what a result stores make equal blocks; others differ."""
    short = attention(heads=2, rope=10.0, head_size=4, qk_norm=True)
    assert short == attention(heads=2, rope=sa.Rope(10.0), head_size=4, qk_norm="head")
    assert short == replace(short, qk_norm={"over": "head"}, rope={"base": 10.0})
    assert short != replace(short, rope=sa.Rope(10.0, 0.5))
    assert attention(heads=2, position_bias=[BIAS, BIAS]) == attention(heads=2, position_bias=BIAS)
    scaled = attention(rope=sa.Rope(100.0, factor=2.0, attention_factor=1.5), key_size=8)
    assert repr(scaled).endswith("rope=Rope(base=100.0, factor=2.0, attention_factor=1.5))")
    np.testing.assert_array_equal(scaled.rope.pairs(8), sa.Rope.angles_of(100.0, 8) / 2.0)
    for block in (short, scaled, replace(short, qk_norm=sa.QKNorm(eps=0.1))):
        run = simulate_chain(block, V0, width=16, depth=1, samples=2, progress=False)
        assert sa.layer_of(run) == [block]


def test_windows_and_biases_of_distance():
    one_sided, two_sided = sa.sliding_window(5, 2), sa.sliding_window(5, 2, causal=False)
    for a in range(5):
        for b in range(5):
            assert one_sided[a, b] == (0 <= a - b < 2)
            assert two_sided[a, b] == (abs(a - b) < 2)
    np.testing.assert_array_equal(sa.alibi(3, 0.5)[0], [0.0, -0.5, -1.0])
    assert sa.alibi(3, [0.5, 0.25]).shape == (2, 3, 3)
