"""A result carries a valid record of the call that made it, and is that call, made again."""

from __future__ import annotations

import inspect
import json
import warnings
from operator import attrgetter
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
import xarray as xr

import shaped_attention as sa
from shaped_attention import sphere
from shaped_attention.results.provenance import record, recorded
from tests.public_calls import calls

SCHEMA = json.loads(
    (Path(sa.__file__).parent / "data" / "provenance.schema.json").read_text(encoding="utf-8")
)
TOKENS = sphere.uniform_start(3, 4, 2, seed=1, reduced=False)
ATTENTION = sphere.SphereAttention(2.0, causal=True)
OMEGA = np.random.default_rng(0).normal(size=(40, 40))
READ_ONLY = {"load", "open_sweep", "rerun"}
"""They return what others made."""
RUN = {"width": 8, "depth": 2, "samples": 16, "progress": False}


def made_by(name):
    """A public function that returns a Dataset."""
    function = attrgetter(name)(sa)
    return (
        inspect.isfunction(function)
        and inspect.signature(function).return_annotation == "xr.Dataset"
        and name not in READ_ONLY
    )


NAMES = [
    *(name for name in sa.__all__ if made_by(name)),
    *(
        f"{module}.{name}"
        for module in ("scores", "sphere", "sphere.theory", "stopping")
        for name in attrgetter(module)(sa).__all__
        if made_by(f"{module}.{name}")
    ),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return calls(tmp_path_factory.mktemp("calls"))


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


def assert_same(first, second):
    """The same variables, coordinates and attributes, to the last bit and in the same types."""
    xr.testing.assert_identical(first, second)
    for name, variable in first.variables.items():
        assert variable.dtype == second.variables[name].dtype
        if variable.dtype.kind == "f":
            assert variable.to_numpy().tobytes() == second.variables[name].to_numpy().tobytes()


def without_time(result):
    """Without the seconds that a run took."""
    return result.assign_attrs(seconds=0.0)


def test_what_returns_a_dataset_is_found():
    assert {"simulate_chain", "compare", "sphere.sphere_flow", "sweep_summary"} <= {*NAMES}
    assert len(NAMES) > 25


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_valid_and_its_call_gives_the_same_bits(name, table, tmp_path):
    """Also from a file. What is not recorded (modules, Datasets) has to be given again."""
    function, arguments = table[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the few samples
        result = without_time(function(**arguments))
        jsonschema.validate(record(result), SCHEMA)
        given = {
            key: value
            for key, value in arguments.items()
            if isinstance(value, xr.Dataset | torch.nn.Module)
        }
        loaded = sa.load(sa.save(result, tmp_path / "result.nc"))
        assert_same(loaded, result)
        assert_same(without_time(sa.rerun(loaded, **given)), result)
        for key in given:
            others = {other: value for other, value in given.items() if other != key}
            with pytest.raises(ValueError, match=rf"lacks its argument {key} \(.*\); pass {key}="):
                sa.rerun(result, **others)
    with pytest.raises(ValueError, match=r"has no argument 'no_such'"):
        sa.rerun(result, no_such=3, **given)


def test_run_again_with_changes():
    layer = [sa.ShapedAttention(0.4, heads=2), sa.ShapedMLP(0.3)]
    result = sa.simulate_chain(layer, np.eye(2), times=[0.125, 0.25], **RUN)
    other = sa.rerun(result, seed=7)
    assert_same(other, sa.simulate_chain(layer, np.eye(2), times=[0.125, 0.25], seed=7, **RUN))
    assert not np.isclose(other.V, result.V).any()
    every = sa.rerun(result, save_every=1)
    np.testing.assert_array_equal(every.V.isel(time=[1, 2]), result.V)
    more = sa.rerun(result, samples=9, layer=layer[1], v0=np.eye(3))
    assert more.V.shape[1:] == (9, 3, 3)
    assert sa.layer_of(more) == [layer[1]]
    with pytest.raises(ValueError, match=r"^samples must be an integer >= 1; got 0"):
        sa.rerun(result, samples=0)


def test_the_specification_holds_every_argument():
    block = sa.ShapedAttention(0.5, 0.7, mask=np.tri(2, dtype=bool), key_size=4)
    stored = sa.specification(sa.simulate_chain(block, np.eye(2), times=[0.125], **RUN))
    (entry,) = stored.pop("layer")
    arguments = inspect.signature(type(block)).parameters
    defaults = {name: parameter.default for name, parameter in arguments.items()}
    given = {"gamma": 0.5, "tau0": 0.7, "mask": [[True, False], [True, True]], "key_size": 4}
    assert entry == defaults | given | {"block": "ShapedAttention"}
    assert stored == {
        "sampler": "chain", "v0": [[1.0, 0.0], [0.0, 1.0]], "width": 8, "depth": 2, "samples": 16,
        "seed": 0, "times": [0.125], "radius": stored["radius"], "device": "cpu",
        "dtype": "float64", "keep": "V",
    }  # fmt: skip


def test_numbers_among_the_arguments_are_attributes():
    data = sphere.mean_field(1.0, np.arange(1, 9) / (9 * np.pi), [0.1])
    shown = {name: data.attrs[name] for name in ("beta", "cells", "normalised")}
    assert shown == {"beta": 1.0, "cells": 512, "normalised": 1}
    assert not {"density", "times"} & data.attrs.keys()
    assert mine(3).attrs["own"] == 1


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


def test_a_function_that_is_not_recorded_has_to_be_given(tmp_path):
    def observe(gram):
        return gram[:, 0, 1]

    flow = sphere.sphere_flow(ATTENTION, TOKENS, [0.5], keep=observe)
    jsonschema.validate(record(flow), SCHEMA)
    loaded = sa.load(sa.save(flow, tmp_path / "flow.nc"))
    message = r"^result lacks its argument keep \(.*is a function, which is code.*\); pass keep=$"
    with pytest.raises(ValueError, match=message):
        sa.rerun(loaded)
    assert_same(sa.rerun(loaded, keep=observe), flow)


def test_a_result_that_was_cut_is_not_the_call_of_another():
    """Its start is an argument of the call: of fewer samples it would be that of another call."""
    flow = sphere.sphere_flow(ATTENTION, TOKENS, [0.5])
    cut = flow.isel(sample=slice(0, 1))
    message = r"^result lacks its argument start \(it had the shape \(2, 3, .*; pass start=$"
    with pytest.raises(ValueError, match=message):
        sa.rerun(cut)
    assert_same(sa.rerun(cut, start=TOKENS), flow)
