"""All faults of a sweep are reported at once, in sentences, with the lines of the file."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.sweep import Sweep, SweepFaultsError, Target
from tests.sweep_examples import FIXED, small


def fixed(**changes):
    """A sweep whose fixed values are changed, or taken away by None."""
    own = FIXED | {"gamma": 0.3} | changes
    return {"fixed": {k: v for k, v in own.items() if v is not None}, "axes": {}}


CASES = {
    "samples": ({"samples": 0}, "samples must be an integer >= 1; got 0"),
    "seed": ({"seed": -1}, "seed must be an integer >= 0; got -1"),
    "device": ({"device": "gpu"}, "device='gpu': unknown; 'cpu'"),
    "dtype": ({"dtype": "float16"}, "dtype='float16': 'float64' or 'float32'"),
    "seconds": ({"seconds": 0}, "seconds must be positive and finite; got 0"),
    "keep": ({"keep": "all"}, "keep='all': one of observables, V, reductions"),
    "sampler": ({"samplers": ("ode",)}, r"samplers=\['ode'\]: some of network, chain, sde, once"),
    "twice a sampler": ({"samplers": ("sde", "sde")}, "samplers=.*: some of"),
    "samplers no list": ({"samplers": 5}, "samplers=.*5"),
    "fractions": ({"fractions": (0.5, 0.2)}, "fractions=.*: increasing numbers in"),
    "fractions out": ({"fractions": (0.5, 1.5)}, "fractions=.*: increasing numbers in"),
    "fractions NaN": ({"fractions": (float("nan"),)}, "fractions=.*: increasing numbers in"),
    "fractions no list": ({"fractions": 5}, "fractions=.*5"),
    "fractions off": ({"fractions": (0.33,)}, "fractions: 0.33 of the 10 steps of the chain"),
    "unknown": (fixed(gama=0.3), "gama: not a parameter; one of .*gamma"),
    "layer": (fixed(layer="rnn"), "layer='rnn': one of attention, mlp, transformer, sphere, model"),
    "layer misspelt": (fixed(layer="atention"), r"is needed \(did you mean 'attention'\?\)"),
    "layer of old files": (fixed(layer="both"), r"is needed \(did you mean 'transformer'\?\)"),
    "no module": (fixed(layer="nowhere:f"), "layer='nowhere:f': .*No module named"),
    "no function": (fixed(layer="math:f"), "layer='math:f': .*no attribute"),
    "relative": (fixed(layer=".a:f"), r"layer='\.a:f': a 'module:function' that can be"),
    "no signature": (fixed(layer="builtins:dict", gamma=None), "layer='builtins:dict'"),
    "both": ({"fixed": FIXED | {"gamma": 0.3}}, "gamma: both fixed and an axis"),
    "empty axis": ({"axes": {"gamma": []}}, r"gamma must be a list of distinct values; got \[\]"),
    "twice": ({"axes": {"gamma": [0.3, 0.3]}}, "gamma must be a list of distinct values"),
    "1 and 1.0": ({**fixed(), "axes": {"scale": [1, 1.0]}}, "scale must be a list of distinct"),
    "an axis of a number": ({"axes": {"gamma": 0.3}}, "gamma=0.3"),
    "cells": (
        {"axes": {"gamma": list(np.linspace(0.1, 0.2, 400)), "tau0": list(range(1, 401))}},
        "axes: 160000 cells; at most 100000",
    ),
    "gamma": (fixed(gamma=None), "gamma: a value is needed"),
    "width": (fixed(width=None), "width: a value is needed"),
    "wide": (fixed(width=10**400), "width=1000"),
    "tokens": (fixed(tokens=None), "tokens, covariance: one of the two"),
    "many tokens": (fixed(tokens=10**30), "tokens=10*: "),
    "tokens, covariance": (fixed(covariance=[[1.0]]), "tokens, covariance: one of the two"),
    "covariance": (fixed(tokens=None, covariance=[[1, 2], [3, 4]]), "covariance"),
    "depth": (fixed(depth=None), "depth, horizon: one of the two"),
    "depth, horizon": (fixed(horizon=0.5), "depth, horizon: one of the two"),
    "horizon": (fixed(depth=None, horizon=0.53), "horizon=0.53: a whole number of layers"),
    "step": (fixed(step=0.07), "step=0.07: horizon=0.5 is not a multiple"),
    "scale": (fixed(scale="big"), "scale must be .*; got 'big'"),
    "radius": (fixed(radius=1.0), "radius=1.0: it must be larger than"),
    "in a cell": ({"axes": {"gamma": [0.5, 1.5]}}, r"gamma=1.5: .*\(first at gamma=1.5\)"),
    "no V": ({**fixed(tokens=None), "axes": {"tokens": [2, 3]}, "keep": "V"}, "keep='V': cells"),
    "observable": ({"names": ("rho[0,7]",)}, r"observables: 'rho\[0,7\]' is not one.*log trace"),
    "of some cells": (
        {**fixed(tokens=None), "axes": {"tokens": [2, 3]}, "names": ("rho[0,2]",)},
        r"observables: 'rho\[0,2\]' is not one that all cells have",
    ),
    "target": ({"target": Target("rho", 0.1)}, "target.observable='rho': it is not among"),
    "target off": (
        {"names": ("rho[0,1]",), "target": Target("log trace V", 0.1)},
        "target.observable='log trace V': it is not among",
    ),
    "half_width": ({"target": Target("stopped", 0)}, "target.half_width=0: a positive finite"),
    "first": ({"target": Target("stopped", 0.1, first=0)}, "target.first=0: a whole number >="),
    "level": ({"target": Target("stopped", 0.1, level=2.0)}, "target.level=2.0: a float between 0"),
    "target's entry": ({"target": {"observable": "stopped", "width": 1}}, "target.*width"),
    "no target": ({"target": 5}, "target=5"),
    "no limit": (
        fixed(layer="tests.sweep_examples:no_limit", strength=0.3, gamma=None), "no limit",
    ),
    "no layer": (fixed(layer="tests.sweep_examples:no_layer", gamma=None), "layer|block"),
    "long block": ({"block": 21}, "block=21: at most samples=20 is needed"),
    "units": (
        {"samples": 300_000, "block": 1},
        r"block=1: 1200000 units \(2 cells, 2 samplers, 300000 blocks\); at most 1000000, so a",
    ),
    "no MLP": (fixed(c_plus=0.5), r"c_plus: no effect with layer='attention'"),
    "no MLP's axis": ({**fixed(), "axes": {"c_plus": [0.0, 0.5]}}, "c_plus: no effect with layer="),
    "a key bias without a chain": (
        {**fixed(), "axes": {"key_bias": [0.0, 1.0]}, "samplers": ("sde",)},
        r"key_bias: no effect with layer='attention' and samplers=\['sde'\]",
    ),
    "a width without a chain": (
        {**fixed(width=None, depth=None, horizon=0.5), "axes": {"width": [20, 40]},
         "samplers": ("sde",)},
        r"width=\[20, 40\]: this axis has no effect on samplers=\['sde'\]; leave it out",
    ),
    "a step without an SDE": (
        {**fixed(step=None), "axes": {"gamma": [0.3], "step": [0.05, 0.1]},
         "fixed": {k: v for k, v in FIXED.items() if k != "step"}, "samplers": ("chain",)},
        r"step=\[0.05, 0.1\]: this axis has no effect on samplers=\['chain'\]",
    ),
    "rho of a covariance": (
        {**fixed(tokens=None, covariance=[[1.0]]), "axes": {"rho": [0.1, 0.2]}},
        "rho: no effect with a covariance",
    ),
    "an ignored parameter": (
        {**fixed(layer="tests.sweep_examples:ignoring", gamma=None, strength=0.3),
         "axes": {"scale": [1.0, 2.0], "ignored": [1, 2, 3]}},
        r"ignored=\[1, 2, 3\]: this axis has no effect on samplers=\['chain', 'sde'\]",
    ),
    "no argument": (fixed(layer="tests.sweep_examples:scores", gamma=None), "strength"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_faults_of_a_sweep(case):
    changes, sentence = CASES[case]
    with pytest.raises(SweepFaultsError) as caught:
        small(**changes)
    (fault,) = caught.value.faults
    assert re.search(sentence, fault[1]), fault[1]


def test_a_chain_alone_needs_no_limit_and_an_sde_no_width():
    own = fixed(layer="tests.sweep_examples:no_limit", strength=0.3, gamma=None)
    assert small(**own, samplers=("chain",)).shape == ()
    assert small(**fixed(width=None, depth=None, horizon=0.5), samplers=("sde",)).shape == ()


@pytest.mark.parametrize(
    "changes",
    [
        {**fixed(layer="transformer"), "axes": {"c_plus": [0.0, 0.5]}},
        {**fixed(), "axes": {"layer": ["attention", "transformer"], "c_plus": [0.0, 0.5]}},
        {**fixed(), "axes": {"key_bias": [0.0, 1.0]}},
        {**fixed(), "axes": {"key_bias": [0.0, 1.0]}, "samplers": ("network",)},
        {**fixed(width=None, depth=None, horizon=0.5), "axes": {"width": [20, 40]}},
        {**fixed(width=None), "axes": {"width": [20, 40]}, "samplers": ("sde",)},
        {**fixed(step=None), "axes": {"step": [0.05, 0.1]}},
        {**fixed(layer="mlp"), "axes": {"rho": [0.1, 0.2]}},
        {"axes": {"gamma": [0.3]}, "samples": 250_000, "block": 1},
        {"block": 20},
    ],
)
def test_what_has_an_effect_is_accepted(changes):
    """Negative control: the same parameters where some sampler or layer sees them."""
    assert small(**changes).cell((0,) * len(changes.get("axes", "x"))).tokens == 2


def test_the_limit_sees_no_key_bias():
    """What `UNUSED_BY_LIMIT` says; a query bias changes both coefficients."""
    v = np.array([[1.0, 0.3, 0.1], [0.3, 2.0, 0.4], [0.1, 0.4, 1.5]])
    plain, keys, sizes, queries = (
        sa.ShapedAttention(0.5, **own)
        for own in ({}, {"key_bias": 1.0}, {"key_size": 3}, {"query_bias": 1.0})
    )
    for function in (sa.drift, sa.diffusion):
        for same in (keys, sizes):
            np.testing.assert_array_equal(function(same, v), function(plain, v))
        assert not np.allclose(function(queries, v), function(plain, v))


def test_a_block_is_by_default_all_samples_up_to_1024():
    assert Sweep(FIXED | {"gamma": 0.3}, samples=100).block == 100
    assert Sweep(FIXED | {"gamma": 0.3}, samples=4000).block == 1024


def test_a_fault_is_at_the_entry_with_its_whole_name():
    """A layer's parameter `h` does not begin the fault of `horizon`."""
    values = {"layer": "tests.sweep_examples:short", "h": 0.3, "tokens": 2, "horizon": -1.0}
    with pytest.raises(SweepFaultsError) as caught:
        Sweep(values, samplers="sde", samples=2)
    ((entry, sentence),) = caught.value.faults
    assert sentence.startswith("horizon=-1.0: ")
    assert entry == "horizon"
