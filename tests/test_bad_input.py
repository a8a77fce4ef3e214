"""Bad arguments of the library are ValueErrors: one sentence, with the name and what is allowed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.checks import check_fraction, check_inside
from tests.refusals import refused

V0 = np.eye(3)
LAYER = [sa.ShapedAttention(0.5), sa.ShapedMLP(0.5)]


def network(layer=LAYER, v0=V0, **options):
    return sa.simulate_network(layer, v0, **{"width": 8, "depth": 2, "samples": 4} | options)


def chain(layer=LAYER, v0=V0, **options):
    return sa.simulate_chain(layer, v0, **{"width": 8, "depth": 2, "samples": 4} | options)


def sde(layer=LAYER, v0=V0, **options):
    return sa.integrate_sde(layer, v0, **{"horizon": 0.2, "step": 0.1, "samples": 4} | options)


SAMPLERS = pytest.mark.parametrize("sampler", [network, chain, sde])
NAN = float("nan")
ASYMMETRIC = np.array([[1.0, 0.3], [0.2, 1.0]])


@SAMPLERS
@pytest.mark.parametrize(
    ("v0", "message"),
    [
        (np.ones((2, 3)), r"v0 must be a square matrix \(m, m\); got shape \(2, 3\)"),
        ([[1.0, 0.3], [0.2, 1.0]], "v0 must be symmetric; .*up to 0.1$"),
        ([[1.0, 2.0], [2.0, 1.0]], "v0 must be positive semidefinite.*-1$"),
        ([[NAN, 0.0], [0.0, 1.0]], "v0 must be finite; it has NaN or infinite"),
        ([[1.0, 1j], [-1j, 1.0]], "v0 must be real"),
        ([["a", "b"], ["c", "d"]], "v0 must be an array of numbers; got entries of type"),
    ],
)
def test_covariance(sampler, v0, message):
    with pytest.raises(ValueError, match=message):
        sampler(v0=v0)


@SAMPLERS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples must be an integer >= 1; got 0"),
        ({"samples": 2**32}, r"samples must be below 2\^32; got 4294967296"),
        ({"seed": -1}, "seed must be an integer >= 0; got -1"),
        ({"times": [0.05]}, "times contains 0.05, which is off the grid"),
        ({"times": [0.0, 5.0]}, r"times must lie in \[0, 0.2.*; got 5"),
        ({"times": []}, "times.*non-empty"),
        ({"times": [NAN]}, "times.*finite"),
        ({"save_every": 0}, "save_every must be an integer >= 1; got 0"),
        ({"times": [0.0], "save_every": 1}, "times and save_every=1 cannot be used together"),
        ({"radius": 1.0}, r"radius must be larger than \|v0\| = 1.73.*; got 1.0"),
        ({"radius": NAN}, "radius must be positive and finite; got nan"),
        ({"radius": 1e31}, r"radius must be .*at most 1e\+30; got 1e\+31"),
        ({"device": "tpu"}, "device must be 'cpu', 'cuda' or .*; got 'tpu'"),
        ({"device": "meta"}, "device must be 'cpu', 'cuda' or .*; got 'meta'"),
        ({"dtype": "float16"}, "dtype must be 'float64' or 'float32'; got 'float16'"),
        ({"chunk": 0}, "chunk must be an integer >= 1; got 0"),
        (
            {"memory": 0},
            "memory must be a number of bytes >= 1, or a size in KiB, MiB, GiB, TiB; got 0",
        ),
        ({"layer": []}, r"layer must be a block or a non-empty list of blocks; got \[\]"),
        (
            {"layer": sa.ShapedAttention(0.5, mask=np.eye(2, dtype=bool))},
            r"mask must have shape \(3, 3\) for 3 tokens; got \(2, 2\)",
        ),
    ],
)
def test_options_that_samplers_share(sampler, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        sampler(**options)
    assert len(str(caught.value).splitlines()) == 1


@SAMPLERS
def test_times_must_increase(sampler):
    end = 0.25 if sampler is not sde else 0.2
    with pytest.raises(ValueError, match=r"times must be strictly increasing; got 0 after "):
        sampler(times=[end, 0.0])


@pytest.mark.parametrize("sampler", [network, chain])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 2}, "width must be at least 3 for v0 of rank 3; got 2"),
        ({"width": 0}, "width must be an integer >= 1; got 0"),
        ({"depth": 0}, "depth must be an integer >= 1; got 0"),
        ({"layer": sa.ShapedMLP(0.5, -3.0, -3.0), "width": 9}, "at width 9 both slopes"),
    ],
)
def test_width_and_depth(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(**options)


test_horizon_and_step = refused(
    ({"horizon": 0.0}, "horizon must be positive and finite; got 0.0"),
    ({"step": -0.1}, "step must be positive and finite; got -0.1"),
    ({"step": 0.15}, "step must be .*horizon=0.2, such as the nearest, 0.2; got 0.15$"),
    ({"step": 0.3}, r"step must be a divisor of horizon=0.2, .*; got 0.3"),
    by=lambda options: sde(**options),
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, r"^gamma must be in \[0, 1\]; got 1.5$"),
        ({"tau0": 0.0}, "tau0 must be positive.*; got 0.0"),
        ({"heads": 0}, "heads must be an integer >= 1; got 0"),
        ({"query_bias": -1.0}, r"query_bias must be in \[0, 1e\+100\]; got -1.0"),
        ({"key_bias": NAN}, "key_bias must be .*; got nan"),
        ({"key_size": 0}, "key_size must be an integer >= 1; got 0"),
        ({"mask": "lower"}, "mask must be None, 'causal', 'causal:W'.*; got 'lower'$"),
        ({"mask": "casual"}, r"mask must be None, .*; got 'casual' \(did you mean 'causal'\?\)"),
        ({"mask": np.ones((2, 2))}, "mask must have boolean entries; got entries of type float64"),
        ({"mask": np.ones((2, 3), dtype=bool)}, r"mask must have shape \(m, m\).*; got \(2, 3\)"),
        ({"mask": np.zeros((2, 2), dtype=bool)}, "mask must let each token see at least one"),
        ({"c_plus": NAN}, "c_plus must be a finite number; got nan"),
    ],
)
def test_fields_of_blocks(options, message):
    block = sa.ShapedMLP if options.keys() & {"c_plus", "c_minus"} else sa.ShapedAttention
    with pytest.raises(ValueError, match=message):
        block(**{"gamma": 0.5} | options)


test_functions = refused(
    (lambda: sa.equicorrelated(3, -0.6), r"rho must be in \[-0.5, 1\] .* 3 tokens; got -0.6"),
    (lambda: sa.equicorrelated(0, 0.1), "tokens must be an integer >= 1; got 0"),
    (lambda: sa.equicorrelated(2, 0.1, 0.0), "scale must be positive and finite; got 0.0"),
    (lambda: sa.covariance_of(np.ones(3)), r"tokens must be an array .*; got shape \(3,\)"),
    (lambda: sa.covariance_of([[1.0, NAN]]), "tokens must be finite; they have NaN"),
    (lambda: sa.covariance_of([[1.0, 1j]]), "tokens must be real"),
    (
        lambda: sa.covariance_of([[1e200, 1.0]]),
        "tokens must have .* they have entries up to 1e.2",
    ),
    (lambda: sa.drift(LAYER, np.ones((2, 3))), r"^v must be of shape .*; got \(2, 3\)"),
    (lambda: sa.drift(LAYER, np.full((2, 2), NAN)), "v must be finite; it has NaN"),
    (lambda: sa.drift(LAYER, ASYMMETRIC), "v must be symmetric; .* up to 0.1$"),
    (lambda: sa.diffusion(LAYER, np.stack([np.eye(2), ASYMMETRIC])), "v must be symmetric"),
    (lambda: sa.diffusion([], np.eye(2)), r"layer must be .*; got \[\]"),
)


WITH_GRADIENT = torch.eye(2, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    "call",
    [
        network,
        chain,
        sde,
        lambda v0: sa.distances_by_width(LAYER, v0, (8, 16), samples=4),
        lambda v0: sa.stopping.stopping_map(v0, [0.5], [1.0], width=8, samples=4),
        lambda v0: sa.vech(v0),
        lambda v0: sa.correlations(v0),
        lambda v0: sa.covariance_of(v0),
    ],
)
def test_gradients_are_not_dropped(call):
    """They would be lost without a word."""
    with pytest.raises(
        ValueError, match=r"^\w+ must not require gradients, .*; pass \w+\.detach\(\)$"
    ):
        call(v0=WITH_GRADIENT)


def test_more_tokens_than_features_are_warned_of():
    with pytest.warns(
        UserWarning, match=r"tokens has shape \(5, 2\): rows are tokens .* transposed"
    ):
        v = sa.covariance_of(np.ones((5, 2)))
    np.testing.assert_array_equal(v, np.ones((5, 5)))
    sa.covariance_of(np.ones((2, 2)))


def test_unknown_keywords_are_refused():
    """Python would name only the argument that is missing, or none that is near."""
    message = r"^simulate_chain\(\) has no argument 'widht'; did you mean 'width'\?$"
    with pytest.raises(TypeError, match=message):
        sa.simulate_chain(sa.ShapedAttention(0.3), V0, widht=3)


def test_the_error_of_a_text_asks_for_a_number():
    """Its value could be in the range; the tests check the types of blocks before their values."""
    with pytest.raises(ValueError, match=r"^gamma must be a number in \[0, 1\]; got '0.3'$"):
        check_fraction("gamma", "0.3")
    with pytest.raises(ValueError, match=r"^level must be a number in \(0, 1\); got '0.3'$"):
        check_inside("level", "0.3")
    with pytest.raises(ValueError, match=r"^gamma must be in \[0, 1\]; got nan$"):
        check_fraction("gamma", NAN)


def test_a_near_name_of_the_package_is_suggested():
    with pytest.raises(AttributeError, match=r"'simulate_chains'; did you mean 'simulate_chain'\?"):
        sa.simulate_chains  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'qqqq'$"):
        sa.qqqq  # noqa: B018


@SAMPLERS
@pytest.mark.parametrize("present", [0, 2])
def test_cuda_devices_that_are_absent(sampler, present, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: present)
    device = f"cuda:{present}" if present else "cuda"
    message = f"^device '{device}': torch finds no CUDA device here$"
    if present:
        message = (
            f"^device must be .* {present} CUDA devices that torch finds here; got '{device}'$"
        )
    with pytest.raises(ValueError, match=message):
        sampler(device=device)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 59, 10**6 + 1, 2**40 + 7])
def test_slopes_that_vanish_to_rounding(width):
    """``1 + c / sqrt n`` is rarely exactly 0 for c = -sqrt n rounded in binary or in decimals."""
    root = width**0.5
    for c in (-root, -float(np.nextafter(root, 0.0)), float(f"{-root:.15g}")):
        with pytest.raises(ValueError, match=f"^c_plus={c!r}, c_minus=.* width {width} both"):
            sa.ShapedMLP(0.5, c, c).check(1, width)
    sa.ShapedMLP(0.5, -root, 0.0).check(1, width)


@SAMPLERS
def test_tensors_without_entries(sampler):
    with pytest.raises(ValueError, match=r"^v0 must have entries; got a tensor on the meta device"):
        sampler(v0=torch.eye(3, device="meta"))
    with pytest.raises(ValueError, match=r"^v must have entries; got a tensor on the meta device"):
        sa.drift(sa.ShapedMLP(0.5), torch.eye(3, device="meta"))
    with pytest.raises(ValueError, match=r"^tokens must have entries; got a tensor on the meta"):
        sa.covariance_of(torch.ones(3, 4, device="meta"))


def broken(v):
    """A function of V with an error of its own."""
    return v["rho"]


@SAMPLERS
@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("os:system", r"^keep must be 'V', .*; got 'os:system' \(of Python's library\)$"),
        ("shutil:rmtree", r"^keep must be .* \(of Python's library\)$"),
        ("tests.test_bad_input:NAN", r"^keep must be .* \(not a function\)$"),
        ("tests.test_bad_input:broken", r"^keep='tests.*:broken' failed for V of shape .*IndexErr"),
    ],
)
def test_functions_that_cannot_be_kept(sampler, keep, message):
    with pytest.raises(ValueError, match=message):
        sampler(keep=keep)


@pytest.mark.parametrize("call", [sa.specification, sa.layer_of, sa.rerun])
def test_records_that_are_none(call):
    made = chain()
    for record in ([1, 2], "[1, 2]", "{", "3"):
        with pytest.raises(ValueError, match=r"^result has a record that is not valid; it needs"):
            call(made.assign_attrs(specification=record))
    for wrong in ([1, 2], [made], None):
        with pytest.raises(ValueError, match=r"^result must be a Dataset that shaped_attention"):
            call(wrong)


def test_more_hidden_units_than_numbers():
    with pytest.raises(ValueError, match=r"^hidden must be an integer in \[1, 2\^53\]; got 1000"):
        sa.ShapedMLP(0.5, hidden=10**30)
    with pytest.raises(ValueError, match=r"^hidden_ratio must be at most 2\^53 / 8, .* got 1e"):
        chain(sa.ShapedMLP(0.5, hidden_ratio=1e30))
    with pytest.raises(ValueError, match=r"an integer in \[1, 2\^53\]"):
        sa.model_from_config("gpt2", n_inner=10**30)
