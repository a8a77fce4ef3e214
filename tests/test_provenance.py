"""Every result carries a valid record of the call that made it, which can be made again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
import xarray as xr

import shaped_attention as sa
from shaped_attention import sphere
from shaped_attention.architectures.layer_summary import model_summary
from shaped_attention.results import provenance
from shaped_attention.results.provenance import record, recorded
from shaped_attention.statistics import stopping
from shaped_attention.theory.explosion.scalar_law import ScalarLaw
from tests.test_results import assert_same

SCHEMA = json.loads(
    (Path(sa.__file__).parent / "data" / "provenance.schema.json").read_text(encoding="utf-8")
)

V0 = sa.equicorrelated(2, 0.2)
BLOCK = sa.ShapedAttention(sa.Schedule([(0.0, 0.2), (1.0, 0.5)]))
LAYER = [sa.ShapedAttention(0.4, heads=2), sa.ShapedMLP(0.3)]
TOKENS = sphere.uniform_start(3, 4, 2, seed=1, reduced=False)
ATTENTION = sphere.SphereAttention(2.0, causal=True)
SQUARES = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
GENERAL = sphere.TokenAttention(1.0, SQUARES, SQUARES[:1], None)
OMEGA = np.random.default_rng(0).normal(size=(40, 40))

CONFIG = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 8, "vocab_size": 9, "rope_parameters": {"rope_theta": 1e4},
}  # fmt: skip

run = partial(sa.simulate_chain, width=8, depth=2, samples=8)


def first_cosine(gram):
    return gram[:, 0, 1]


def plain_function(count):
    return xr.Dataset({"x": count})


@recorded()
def mine(count, omega=None):
    """What a user decorates; it may hand on the result of another recorded function."""
    if omega is not None:
        return sa.scores.leading_directions(omega, count)
    return xr.Dataset({"x": ("i", np.arange(count) / 7.0)}, attrs={"own": 1})


@recorded()
def thrice(number):
    """In the precision of the number."""
    return xr.Dataset({"x": number * 3.0})


def sweep_data(folder):
    fixed = {"layer": "attention", "tokens": 2, "rho": 0.2, "width": 8, "depth": 2, "step": 0.125}
    sa.run_sweep(sa.Sweep(fixed=fixed, axes={"gamma": [0.2]}, samples=64), folder, progress=False)
    return sa.open_sweep(folder)


@dataclass(frozen=True)
class Call:
    """A small call of a function, and a change of an argument that is seen in the result.

    `given` are the arguments that are not recorded: a function of no arguments for each.
    """

    function: Callable[..., xr.Dataset]
    arguments: dict[str, Any]
    change: dict[str, Any]
    given: dict[str, Any] = field(default_factory=dict)

    def result(self):
        return self.function(**self.arguments, **self.given)


def call(function, change, /, **arguments):
    return Call(function, arguments, change)


_SIZE = {"width": 8, "depth": 2, "samples": 3, "seed": 2**70}
_START = {"start": TOKENS, "seed": 3, "step": 0.1, "layers": 3, "sigma": 1.0}
_SEED = {"seed": 5}

CALLS = [
    call(sa.simulate_network, _SEED, layer=LAYER, v0=V0, **_SIZE),
    call(sa.simulate_chain, {"radius": 1.5}, layer=BLOCK, v0=V0, **_SIZE),
    call(sa.simulate_chain, _SEED, layer=sa.Pattern([LAYER, BLOCK]), v0=V0, save_every=1, **_SIZE),
    call(sa.integrate_sde, _SEED, layer=LAYER, v0=V0, horizon=0.25, step=0.125, samples=3,
         method="direct", keep="observables"),
    call(sa.distances_by_width, _SEED, layer=BLOCK, v0=V0, widths=[4, 8], samples=8,
         steps_per_layer=1),
    call(stopping.explosion_table, {"radius": 3.0}, layer=BLOCK, v0=V0.tolist(), widths=[8, 16],
         horizon=0.25, step=0.125, samples=4, radius=1.5),
    call(sa.stopping.stopping_map, {"gammas": [0.7]}, v0=V0.tolist(), gammas=[0.5, 0.6],
         tau0s=(1.0,), width=4, step=0.25, samples=2),
    call(sa.scores.leading_directions, {"rank": 1}, omega=OMEGA, rank=np.int64(2)),
    call(sa.scores.truncation_cost, {"ranks": [2]}, omega=OMEGA, tokens=OMEGA[:3, :39],
         ranks=range(1, 3)),
    Call(sa.stopping.explosion_curve, {"times": [0.1, 0.2]}, {"confidence": 0.9},
         {"result": run(BLOCK, V0, radius=1.5)}),
    Call(sa.stopping.explosion_probability, {"confidence": 0.9}, {"confidence": 0.5},
         {"result": sa.integrate_sde(sa.ShapedAttention(0.6, 0.5), sa.equicorrelated(2, 0.2),
                                     samples=2000, horizon=0.75, step=0.05, radius=1e13)}),
    Call(sa.compare, {"permutations": 99}, {"confidence": 0.9},
         {"first": run(BLOCK, V0), "second": run(BLOCK, V0, seed=1)}),
    Call(sa.record_covariances, {"inputs": torch.ones(2, 3)}, {"inputs": torch.ones(4, 3)},
         {"model": torch.nn.Linear(3, 3), "choose": lambda _name, _module: True}),
    call(sphere.sphere_flow, {"tolerance": 0.1}, attention=ATTENTION, start=TOKENS, times=[0.5]),
    call(sphere.sphere_flow, {"attention": sphere.TokenAttention(2.0)}, attention=GENERAL,
         start=TOKENS.float(), times=(0.25, 0.5), keep_tokens=True),
    call(sphere.sphere_network, {"step": 0.6}, attention=ATTENTION, start=TOKENS, step=0.5,
         layers=3, normalise="before", save_every=2),
    call(sphere.sphere_network, {"layers": 2}, attention=GENERAL, start=TOKENS, step=0.5, layers=3),
    call(sphere.noisy_chain, _SEED, attention=ATTENTION, dimension=9, **_START),
    call(sphere.theory.two_tokens, {"sigma": 2.0}, attention=sphere.SphereAttention(2.0),
         dimension=3, sigma=1.0, cosine=[-0.5, 0.0]),
    call(sphere.mean_field, {"normalised": False}, beta=np.float32(1.3), times=[0.1],
         density=np.arange(1, 9) / (9 * np.pi)),
    call(sa.gradient_norms, _SEED, layer=LAYER, v0=V0.tolist(), width=8, depth=2, samples=3),
    call(sa.lyapunov, _SEED, layer=LAYER, v0=V0.tolist(), width=8, depth=2, samples=3),
    call(sa.neural_tangent_kernel, _SEED, layer=LAYER, v0=V0.tolist(), width=8, depth=2, samples=3),
    call(sa.simulate_training, _SEED, layer=LAYER, tokens=V0.tolist(), targets=[0, 1], width=8,
         depth=2, samples=3, steps=1, optimizer=sa.Muon({"*": 0.1})),
    call(sa.simulate_model, _SEED, model=CONFIG, tokens=np.array([1, 2, 1]), samples=3),
    call(sa.coordinate_check, _SEED, model=CONFIG, tokens=np.array([1, 2, 1]), widths=(16, 32, 48),
         steps=1, samples=2, init="mup", optimizer=sa.Muon(0.1)),
    Call(model_summary, {}, {"result": sa.simulate_model(CONFIG, 2, samples=4, seed=1)},
         {"result": sa.simulate_model(CONFIG, 2, samples=4)}),
    call(mine, {"count": 2}, count=3),
    Call(sa.density, {"observable": "rho[0,1]", "bins": 3, "window": (-1.0, 1.0)}, {"bins": 4},
         {"result": sa.simulate_chain(BLOCK, V0, width=8, depth=2, samples=9)}),
]  # fmt: skip
NAMES = [
    f"{i}-{call.function.__name__}" if i in (2, 14, 17) else call.function.__name__
    for i, call in enumerate(CALLS)
]
ALL = pytest.mark.parametrize("made", CALLS, ids=NAMES)

READ_ONLY = {"load", "open_sweep", "read_sweep"}
"""They return what others wrote."""

HAND_ON = {"rerun"}
"""They return what a recorded function returns."""

OF_SWEEPS = {"sweep_summary", "sweep_distances"}
"""Of the table of a store; see the test of it."""


PROBABILITY = cache(ScalarLaw.probability)


@pytest.fixture(autouse=True)
def exact_probabilities_once(monkeypatch):
    """Exact probabilities once."""
    monkeypatch.setattr(ScalarLaw, "probability", PROBABILITY)


def without_time(result):
    """Without the seconds that a run took."""
    return result.assign_attrs(seconds=0.0)


def test_every_public_function_that_returns_a_dataset_is_in_the_table():
    """And everything else in the package that records its calls, such as the data of a sweep."""
    public = {
        name
        for module in (sa, sphere)
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
        and inspect.signature(getattr(module, name)).return_annotation == "xr.Dataset"
    }
    assert {"simulate_chain", "compare", "sphere_flow", "open_sweep"} <= public
    tried = {call.function for call in CALLS}
    names = {function.__name__ for function in tried}
    assert public <= names | READ_ONLY | HAND_ON | OF_SWEEPS
    inside = {
        f for f in provenance._functions.values() if f.__module__.startswith("shaped_attention")
    }
    assert {function.__name__ for function in inside - tried} == OF_SWEEPS


@ALL
def test_a_record_is_valid_and_its_call_gives_the_same_bits(made, tmp_path):
    """Also from a file; a change takes effect, and an unknown one is refused."""
    result = without_time(made.result())
    jsonschema.validate(record(result), SCHEMA)
    assert provenance.function_of(result) is made.function
    assert_same(without_time(sa.rerun(result, **made.given)), result)
    loaded = sa.load(sa.save(result, tmp_path / "result.nc"))
    xr.testing.assert_identical(loaded, result)
    assert_same(without_time(sa.rerun(loaded, **made.given)), result)
    changed = sa.rerun(result, **made.given | made.change)
    jsonschema.validate(record(changed), SCHEMA)
    assert not changed.drop_attrs().identical(result.drop_attrs())
    with pytest.raises(ValueError, match=rf"^{made.function.__name__} has no argument 'no_such'"):
        sa.rerun(result, no_such=3, **made.given)
    for name in made.given:
        others = {other: value for other, value in made.given.items() if other != name}
        with pytest.raises(
            ValueError, match=rf"^result lacks its argument {name} \(.*\); pass {name}="
        ):
            sa.rerun(result, **others)


def test_summaries_of_a_sweep_name_the_store_as_what_they_lack(tmp_path):
    data = sweep_data(tmp_path / "store")
    for function in (sa.sweep_summary, sa.sweep_distances):
        found = function(data, confidence=0.9)
        jsonschema.validate(record(found), SCHEMA)
        with pytest.raises(ValueError, match=r"^result lacks its argument data \(a Dataset is no"):
            sa.rerun(found)
        xr.testing.assert_identical(sa.rerun(found, data=data), found)
        assert sa.rerun(found, data=data, confidence=0.8).attrs["confidence"] == 0.8


def test_numbers_among_the_arguments_are_attributes():
    data = sphere.mean_field(1.0, np.arange(1, 9) / (9 * np.pi), [0.1])
    shown = {name: data.attrs[name] for name in ("beta", "cells", "normalised")}
    assert shown == {"beta": 1.0, "cells": 512, "normalised": 1}
    assert data.attrs["attention"] == "SA"
    assert not {"density", "times"} & data.attrs.keys()
    assert mine(3).attrs["own"] == 1
    assert sa.specification(mine(3)) == {"count": 3, "omega": None}


def test_a_call_computes_with_the_numbers_that_are_recorded():
    """In single precision, which NumPy's number alone would bring, 3 times 0.1 differs."""
    found = thrice(np.float32(0.1))
    assert float(found["x"]) == 3.0 * float(np.float32(0.1))
    assert float(found["x"]) != float(np.float32(0.1) * np.float32(3.0))
    assert sa.rerun(found).identical(found)


def test_large_arrays_are_variables_and_those_of_inner_calls_are_not_kept():
    found = sa.scores.leading_directions(OMEGA, 1)
    np.testing.assert_array_equal(found["arguments.omega"], OMEGA)
    entry = {"array": "float64", "variable": "arguments.omega", "shape": [40, 40]}
    assert sa.specification(found)["omega"] == entry
    outer = mine(1, OMEGA * 2.0)
    np.testing.assert_array_equal(outer["arguments.omega"], OMEGA * 2.0)
    assert outer.attrs["function"] == "tests.test_provenance:mine"
    assert sa.rerun(outer).identical(outer)
    assert not [x for x in mine(1, OMEGA[:5, :5]).variables if str(x).startswith("arguments.")]
    before = OMEGA.copy()
    later = sa.scores.leading_directions(before, 1)
    before[:] = 0.0
    np.testing.assert_array_equal(later["arguments.omega"], OMEGA)


@pytest.mark.parametrize(
    ("observe", "reason"),
    [
        (lambda gram: gram[:, 0, 1], "<lambda> is a function, which is code"),
        (partial(first_cosine), "a partial is not plain data"),
        (first_cosine, "first_cosine is a function, which is code"),
        (ATTENTION.energy, "a method is not plain data"),
    ],
    ids=["lambda", "partial", "function", "method"],
)
def test_a_function_that_is_not_recorded_has_to_be_given(observe, reason, tmp_path):
    flow = sphere.sphere_flow(ATTENTION, TOKENS, [0.5], keep=observe)
    jsonschema.validate(record(flow), SCHEMA)
    loaded = sa.load(sa.save(flow, tmp_path / "flow.nc"))
    message = rf"^result lacks its argument keep \({reason}.*\); pass keep=$"
    with pytest.raises(ValueError, match=message):
        sa.rerun(loaded)
    assert_same(sa.rerun(loaded, keep=observe), flow)
    assert sa.rerun(loaded, keep="V")["V"].dims == ("time", "sample", "row", "col")


def test_a_result_that_was_cut_is_not_the_call_of_another():
    """Its start is an argument of the call: of fewer samples it would be that of another call."""
    flow = sphere.sphere_flow(ATTENTION, TOKENS, [0.5])
    cut = flow.isel(sample=slice(0, 1))
    message = r"^result lacks its argument start \(it had the shape \(2, 3, .*; pass start=$"
    with pytest.raises(ValueError, match=message):
        sa.rerun(cut)
    assert_same(sa.rerun(cut, start=TOKENS), flow)


def test_a_function_without_a_name_of_its_own_keeps_what_it_computed():
    """It is in the record by the name that it has, under which nothing can be imported."""

    @recorded()
    def inner(count):
        return xr.Dataset({"x": ("i", np.arange(count))})

    data = inner(3)
    assert data.sizes["i"] == 3
    with pytest.raises(ValueError, match=r"^result .*inner"):
        sa.rerun(data)


def test_functions_inside_arguments_are_seen():
    moving = sphere.TokenAttention(1.0, lambda time: torch.ones(len(time), 1, 4, 4) * time[0])
    flow = sphere.sphere_flow(moving, TOKENS, [0.5])
    with pytest.raises(ValueError, match=r"^result lacks its argument attention \(.*is a function"):
        sa.rerun(flow)
    assert sa.rerun(flow, attention=moving).identical(flow)
    with pytest.raises(ValueError, match=r"^result lacks its argument density \(.*is a function"):
        sa.rerun(sphere.mean_field(1.0, lambda a: 0.5 / np.pi + 0.0 * a, [0.1], cells=8))
