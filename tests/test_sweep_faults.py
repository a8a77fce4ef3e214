"""All faults of a sweep are reported at once, in sentences; axes and matrices of TOML files."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.sweep import Sweep, SweepFaultsError, Target, read_sweep
from shaped_attention.sweep.toml import axis_values, read_axis
from tests.sweep_examples import FIXED, small


def fixed(**changes):
    """A sweep whose fixed values are changed, or taken away by None."""
    values = FIXED | {"gamma": 0.3} | changes
    return {"fixed": {k: v for k, v in values.items() if v is not None}, "axes": {}}


CASES = {
    "samples": ({"samples": 0}, "samples must be an integer >= 1; got 0"),
    "device": ({"device": "gpu"}, "device.*'gpu'"),
    "seconds": ({"seconds": 0}, "seconds must be positive and finite; got 0"),
    "sampler": ({"samplers": ("ode",)},
                r"samplers must be some of network, chain, sde, once each, .*; got \['ode'\]"),
    "samplers no list": ({"samplers": 5}, "samplers must be a list of names; got 5"),
    "fractions": ({"fractions": (0.5, 0.2)}, "fractions must be increasing numbers in"),
    "fractions no list": ({"fractions": 5}, "fractions must be a list of numbers; got 5"),
    "fractions off": ({"fractions": (0.33,)}, "fractions: 0.33 of the 10 steps of the chain"),
    "unknown": (fixed(gama=0.3), "gama is not a parameter; choose one of .*gamma"),
    "layer": (fixed(layer="rnn"), "layer must be one of attention, mlp, .* model, .* got 'rnn'"),
    "layer misspelt": (fixed(layer="atention"), r"got 'atention' \(did you mean 'attention'\?\)"),
    "no module": (fixed(layer="nowhere:f"), r"layer must be .* got 'nowhere:f' \(No module named"),
    "no signature": (fixed(layer="builtins:dict", gamma=None), "layer must be .*'builtins:dict'"),
    "empty axis": ({"axes": {"gamma": []}}, r"gamma must be a list of distinct values; got \[\]"),
    "an axis of a number": ({"axes": {"gamma": 0.3}}, "gamma must be a list of values; got 0.3"),
    "an axis of a reserved name": (
        {"fixed": FIXED | {"layer": "tests.sweep_examples:clashing"}, "axes": {"block": [0.3]}},
        "block is a name that the store reserves",
    ),
    "cells": (
        {"axes": {"gamma": list(np.linspace(0.1, 0.2, 400)), "tau0": list(range(1, 401))}},
        "axes have 160000 cells; at most 100000",
    ),
    "gamma": (fixed(gamma=None), "gamma must be given, fixed or as an axis"),
    "width": (fixed(width=None), "width must be given"),
    "tokens": (fixed(tokens=None), "tokens, covariance: give exactly one of the two"),
    "depth": (fixed(depth=None), "depth, horizon: give exactly one of the two"),
    "horizon": (fixed(depth=None, horizon=0.53), "horizon must be a whole number of layers"),
    "radius": (fixed(radius=1.0), "radius.*1.0"),
    "no V": ({**fixed(tokens=None), "axes": {"tokens": [2, 3]}, "keep": "V"}, "keep='V': cells"),
    "observable": ({"names": ("rho[0,7]",)}, r"observables: 'rho\[0,7\]' is not among .*log trace"),
    "of some cells": (
        {**fixed(tokens=None), "axes": {"tokens": [2, 3]}, "names": ("rho[0,2]",)},
        r"observables: 'rho\[0,2\]' is not among those that all cells have",
    ),
    "target": ({"target": Target("rho", 0.1)}, "target.observable must be one of .* got 'rho'"),
    "level": ({"target": Target("stopped", 0.1, level=2.0)}, r"target.level must be in \(0, 1\)"),
    "target's entry": ({"target": {"observable": "stopped", "halfwidth": 1}},
                       "target.halfwidth is not an entry.*did you mean 'half_width'"),
    "no target": ({"target": 5}, "target must be a table .* got 5"),
    "no limit": (
        fixed(layer="tests.sweep_examples:no_limit", strength=0.3, gamma=None), "no limit",
    ),
    "no layer": (fixed(layer="tests.sweep_examples:no_layer", gamma=None), "layer|block"),
    "long block": ({"block": 21}, "block must be at most samples=20; got 21"),
    "units": (
        {"samples": 300_000, "block": 1},
        r"block=1 makes 1200000 units \(2 cells, 2 samplers, 300000 blocks\); at most 1000000",
    ),
    "no MLP": (fixed(c_plus=0.5), r"c_plus has no effect with layer='attention'"),
    "a key bias without a chain": (
        {**fixed(), "axes": {"key_bias": [0.0, 1.0]}, "samplers": ("sde",)},
        r"key_bias has no effect with layer='attention' and samplers=\['sde'\]",
    ),
    "a width without a chain": (
        {**fixed(width=None, depth=None, horizon=0.5), "axes": {"width": [20, 40]},
         "samplers": ("sde",)},
        r"width=\[20, 40\] has no effect on samplers=\['sde'\]; leave this axis out",
    ),
    "rho of a covariance": (
        {**fixed(tokens=None, covariance=[[1.0]]), "axes": {"rho": [0.1, 0.2]}},
        "rho has no effect with a covariance",
    ),
    "an ignored parameter": (
        {**fixed(layer="tests.sweep_examples:ignoring", gamma=None, strength=0.3),
         "axes": {"scale": [1.0, 2.0], "ignored": [1, 2, 3]}},
        r"ignored=\[1, 2, 3\] has no effect on samplers=\['chain', 'sde'\]",
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


def test_a_fault_is_at_the_entry_with_its_whole_name():
    """A layer's parameter `h` does not begin the fault of `horizon`."""
    values = {"layer": "tests.sweep_examples:short", "h": 0.3, "tokens": 2, "horizon": -1.0}
    with pytest.raises(SweepFaultsError) as caught:
        Sweep(values, samplers="sde", samples=2)
    ((entry, sentence),) = caught.value.faults
    assert (entry, sentence) == ("horizon", "horizon must be positive and finite; got -1.0")


@pytest.mark.parametrize(
    "changes",
    [
        {**fixed(layer="tests.sweep_examples:no_limit", strength=0.3, gamma=None),
         "samplers": ("chain",)},
        {**fixed(width=None, depth=None, horizon=0.5), "samplers": ("sde",)},
        {**fixed(), "axes": {"layer": ["attention", "transformer"], "c_plus": [0.0, 0.5]}},
        {**fixed(), "axes": {"key_bias": [0.0, 1.0]}},
        {**fixed(width=None, depth=None, horizon=0.5), "axes": {"width": [20, 40]}},
        {**fixed(step=None), "axes": {"step": [0.05, 0.1]}},
        {**fixed(layer="mlp"), "axes": {"rho": [0.1, 0.2]}},
        {"axes": {"gamma": [0.3]}, "samples": 250_000, "block": 1},
    ],
)  # fmt: skip
def test_what_has_an_effect_is_accepted(changes):
    """Negative control: the same parameters where some sampler or layer sees them."""
    assert small(**changes).cell((0,) * len(changes["axes"])).tokens == 2


def test_the_limit_sees_no_key_bias():
    """What `UNUSED_BY_LIMIT` says; a query bias changes both coefficients."""
    v = np.array([[1.0, 0.3, 0.1], [0.3, 2.0, 0.4], [0.1, 0.4, 1.5]])
    plain, keys, sizes, queries = (
        sa.ShapedAttention(0.5, **options)
        for options in ({}, {"key_bias": 1.0}, {"key_size": 3}, {"query_bias": 1.0})
    )
    for function in (sa.drift, sa.diffusion):
        for same in (keys, sizes):
            np.testing.assert_array_equal(function(same, v), function(plain, v))
        assert not np.allclose(function(queries, v), function(plain, v))


def test_a_block_is_by_default_all_samples_up_to_1024():
    assert Sweep(FIXED | {"gamma": 0.3}, samples=100).block == 100
    assert Sweep(FIXED | {"gamma": 0.3}, samples=4000).block == 1024


START = "[fixed]\ntokens = 2\nwidth = 20\ndepth = 10\nstep = 0.05\nlayer = 'attention'\n"
GAMMA = START + "gamma = 0.3\n"

VALID = """\
samplers = ["chain", "sde"]
samples = 20
block = 8
seed = 3
keep = "observables"
observables = ["rho[0,1]"]
fractions = [0.5, 1.0]
device = "cpu"
dtype = "float64"
seconds = 60.0
[fixed]
layer = "transformer"
tokens = 2
rho = 0.3
depth = 10
step = 0.025
mask = "causal"
[axes]
width = [20, 40]
gamma = { linspace = [0.1, 0.3, 3] }
tau0 = { logspace = [0.5, 2.0, 3] }
[target]
observable = "stopped"
half_width = 0.1
level = 0.95
first = 2
"""


def faults_of(text, folder):
    path = folder / "sweep.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SweepFaultsError) as caught:
        read_sweep(path)
    count = len(caught.value.faults)
    expected = f"{path}: {count} faults\n" if count > 1 else f"{path}: "
    assert str(caught.value).startswith(expected)
    return [sentence for _, sentence in caught.value.faults]


def test_a_valid_file(tmp_path):
    """Every entry arrives; the values of the axes print as they are meant."""
    (tmp_path / "sweep.toml").write_text(VALID)
    sweep = read_sweep(tmp_path / "sweep.toml")
    axes = {"width": [20, 40], "gamma": [0.1, 0.2, 0.3], "tau0": [0.5, 1.0, 2.0]}
    assert (sweep.axes, list(sweep.axes)) == (axes, list(axes))
    assert sweep.fixed == {
        "layer": "transformer", "tokens": 2, "rho": 0.3, "depth": 10, "step": 0.025,
        "mask": "causal",
    }  # fmt: skip
    assert sweep == Sweep(
        sweep.fixed, axes, ("chain", "sde"), 20, 8, 3, "observables", ("rho[0,1]",), (0.5, 1.0),
        "cpu", "float64", Target("stopped", 0.1, 0.95, 2), 60.0,
    )  # fmt: skip


def test_misspelt_keys_and_values_in_one_round(tmp_path):
    """Settings, keys at top level and in tables, and values of all parameters, with their keys."""
    text = """\
sample = 20
seed = -1
keep = "all"
[fixed]
layer = "attention"
tokens = 2
width = 20
depth = 10
step = 0.05
key_sise = 3
gamma = 1.5
heads = 0
[axes]
tau = [0.5, 1.0]
tau0 = [1.0, -2.0]
heads = [1, 2]
"""
    expected = [
        "sample is not an entry of a sweep; .*did you mean 'samples'",
        "seed must be an integer >= 0; got -1",
        "keep must be one of observables, V, reductions; got 'all'",
        "fixed.key_sise is not a parameter; .*did you mean 'key_size'",
        r"fixed.gamma must be in \[0, 1\]; got 1.5",
        "axes.heads is both fixed and an axis",
        "axes.tau is not a parameter; .*did you mean 'tau0'",
        "axes.tau0 must be positive and finite; got -2.0",
    ]
    faults = faults_of(text, tmp_path)
    for sentence in expected:
        assert sum(bool(re.match(sentence, fault)) for fault in faults) == 1, (sentence, faults)
    assert len(faults) == len(expected)


FILES = {
    "layer": (GAMMA.replace("layer = 'attention'\n", ""), "^layer must be given, fixed or as"),
    "twice": (GAMMA + "gamma = 0.2\n", "Cannot overwrite a value"),
    "space": (START + "[axes]\ngamma = { linspace = [0.1, 0.2] }\n", "gamma must be {linspace = "),
    "infinite": (START + "[axes]\ngamma = { linspace = [0.1, inf, 3] }\n", "an end must be"),
    "fixed": ("samples = 9\nfixed = 3\n", r"fixed must be a table \[fixed\]; got 3"),
    "no covariance": (START.replace("tokens = 2", "covariance = 'no.npy'") + "gamma = 0.3\n",
                      r"no\.npy: there is no such file"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_faults_of_a_file(case, tmp_path):
    """Each fault is reported once."""
    text, sentence = FILES[case]
    (fault,) = faults_of(text, tmp_path)
    assert re.search(sentence, fault), fault


def test_matrices_beside_the_file(tmp_path, monkeypatch):
    """Found from any folder; a start given twice is refused."""
    monkeypatch.chdir("/")
    tokens = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    np.save(tmp_path / "x.npy", tokens)
    np.save(tmp_path / "v.npy", tokens @ tokens.T / 3)
    for line in ("token_file = 'x.npy'", "covariance = 'v.npy'"):
        path = tmp_path / "sweep.toml"
        path.write_text(GAMMA.replace("tokens = 2", line))
        np.testing.assert_allclose(read_sweep(path).cell(()).v0, tokens @ tokens.T / 3)
    both = "token_file = 'x.npy'\ncovariance = [[1.0]]"
    assert len(faults_of(GAMMA.replace("tokens = 2", both), tmp_path)) == 1


JUNK = ("0", "-1", "1e300", "nan", "inf", '""', '"x"', "[]", "[[1]]", "{}", "true", "[1, 'a']",
        "1979-05-27", "{linspace = [1, 2]}", "{logspace = [0, nan, 3]}", "9223372036854775807",
        "{linspace = 3}", "{linspace = [inf, 1, 2]}", '"a:b"', '".:b"')  # fmt: skip


def test_nothing_but_faults_comes_of_a_corrupted_file(tmp_path):
    """A value put in the place of another, a hundred times and more."""
    lines, refused = VALID.splitlines(), 0
    entries = [i for i, line in enumerate(lines) if "=" in line]
    path, wrong = tmp_path / "sweep.toml", set()
    for i, junk in [(i, junk) for i in entries for junk in JUNK][::3]:
        changed = [*lines[:i], f"{lines[i].partition('=')[0]}= {junk}", *lines[i + 1 :]]
        path.write_text("\n".join(changed))
        try:
            read_sweep(path)
        except SweepFaultsError:
            refused += 1
        except Exception as error:
            wrong.add(f"{lines[i]} {junk}: {error!r}"[:300])
    assert refused > 50
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    ("space", "values"),
    [
        ({"linspace": [0, 1, 4]}, [0, 1 / 3, 2 / 3, 1]),
        ({"linspace": [0.1, 0.7, 7]}, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
        ({"linspace": [20, 40, 3]}, [20, 30, 40]),
        ({"logspace": [0.5, 2.0, 3]}, [0.5, 1.0, 2.0]),
        ({"logspace": [1e-8, 1e-6, 3]}, [1e-8, 1e-7, 1e-6]),
        ({"logspace": [0.5, 2.0, 6]}, list(np.geomspace(0.5, 2.0, 6))),
    ],
)
def test_values_of_axes_are_those_that_are_meant(space, values):
    """As one would write them, so that they select exactly; otherwise NumPy's."""
    listed = axis_values("gamma", space)
    assert listed == values
    assert set(map(type, listed)) == {int if values == [20, 30, 40] else float}


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("gamma=0.7,0.8", ("gamma", [0.7, 0.8])),
        ("mask=causal", ("mask", ["causal"])),
        ("layer=tests.sweep_examples:scores,mlp",
         ("layer", ["tests.sweep_examples:scores", "mlp"])),
        ("output_projection=true", ("output_projection", [True])),
        ("tau0={ logspace = [3, 5, 3] }", ("tau0", [3.0, float(np.geomspace(3, 5, 3)[1]), 5.0])),
        ("width={ linspace = [20, 40, 3] }", ("width", [20, 30, 40])),
        ("gamma={ schedule = [[0, 0.1], [1, 0.5]] }",
         ("gamma", [{"schedule": [[0, 0.1], [1, 0.5]]}])),
        ("covariance=[[1, 0], [0, 1]]", ("covariance", [[[1, 0], [0, 1]]])),
    ],
)  # fmt: skip
def test_axes_on_the_command_line(text, axis):
    name, values = read_axis(text)
    assert (name, values) == axis
    assert list(map(type, values)) == list(map(type, axis[1]))


@pytest.mark.parametrize(
    "text", ["gamma", "=0.7", "gamma=", "gamma=0.7;0.8", "gamma={linspac=[1]}"]
)
def test_axes_that_cannot_be_read(text):
    message = r"must have the form gamma=0\.7,0\.8|must be a list, \{linspace"
    with pytest.raises(ValueError, match=message):
        read_axis(text)
