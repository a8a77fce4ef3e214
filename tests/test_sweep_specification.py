"""Sweeps are checked before they run: entries, names, and every cell."""

from __future__ import annotations

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.sweep import Sweep, SweepFaultsError, read_sweep
from shaped_attention.sweep.data import decode, record_of
from shaped_attention.sweep.specification import Unit
from shaped_attention.sweep.units import tasks_of
from tests.sweep_examples import TOML, Faulty, faulty, small

GRID = {"width": 20, "depth": 4, "step": 0.05}


def test_a_file_is_the_sweep_of_its_entries(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(TOML)
    assert read_sweep(path) == small()


def test_all_faults_are_listed_at_once_with_the_first_cell():
    with pytest.raises(SweepFaultsError) as caught:
        Sweep({"layer": lambda: None}, samples=0, blok=3)
    assert len(caught.value.faults) == 3
    assert "did you mean 'block'?" in str(caught.value)
    with pytest.raises(SweepFaultsError) as caught:
        small({"gamma": [0.5, 1.5, 2.5], "tau0": [1.0, -1.0]})
    assert caught.value.faults == [
        "tau0 must be positive and finite; got -1.0 (first at gamma=0.5, tau0=-1.0)",
        "gamma must be in [0, 1]; got 1.5 (first at gamma=1.5, tau0=1.0)",
        "gamma must be in [0, 1]; got 2.5 (first at gamma=2.5, tau0=1.0)",
    ]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"axes": {"gama": [0.5]}}, "did you mean 'gamma'?"),
        ({"axes": {"gamma": [0.5, 0.5]}}, "a list of distinct values"),
        ({"samplers": ["chian"]}, "some of network, chain, sde"),
        ({"fractions": [0.3]}, "not a whole number of steps"),
        ({"fixed": GRID, "axes": {"gamma": [0.5], "tokens": [2, 3]}, "keep": "V"}, "no common V"),
        ({"seed": -1}, "seed must be greater than or equal to 0"),
        ({"axes": {"layer": ["os:system"]}}, "or a function that returns a layer"),
    ],
)
def test_each_fault_is_a_sentence(entries, words):
    with pytest.raises(SweepFaultsError, match="fault") as caught:
        small(**entries)
    assert words in str(caught.value)


def test_a_module_is_imported_by_a_toml_file_alone(tmp_path):
    path = tmp_path / "grid.toml"
    text = TOML.replace('"attention"', '"tests.sweep_examples:faulty"')
    path.write_text(text.replace('["chain", "sde"]', '["network"]'))
    sweep = read_sweep(path)
    assert sweep.functions() == {"tests.sweep_examples:faulty": faulty}
    again = Sweep.from_json(sweep.to_json())
    assert not again.functions()
    assert again.with_layer(faulty).cell("0").layer == sweep.cell("0").layer == (Faulty(0.3),)


def test_spaces_have_the_ends_that_are_given():
    axes = {"gamma": {"linspace": [0.1, 0.7, 7]}, "tau0": {"logspace": [0.5, 8.0, 5]}}
    axes["width"] = {"linspace": [10, 40, 4]}
    sweep = Sweep({"tokens": 2, "depth": 4}, axes, samplers="chain")
    assert sweep.axes["gamma"] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    np.testing.assert_allclose(sweep.axes["tau0"], [0.5, 1.0, 2.0, 4.0, 8.0], rtol=1e-12)
    assert sweep.axes["width"] == [10, 20, 30, 40]


def test_a_unit_depends_on_values_and_not_on_places():
    """The same cell in two grids; other blocks and cells have other numbers."""
    sweep, other = small(), small({"tau0": [0.5, 1.0], "gamma": [0.1, 0.5]})
    unit, same = Unit("chain", "1", 0, 8), Unit("chain", "1,1", 0, 8)
    assert sweep.unit_seed(unit) != other.unit_seed(same)  # tau0 is given here
    alone = small({"gamma": [0.5]})
    first = tasks_of(sweep)(unit)().data
    assert first == tasks_of(alone)(Unit("chain", "0", 0, 8))().data
    assert first != tasks_of(sweep)(unit._replace(block=1))().data
    assert first != tasks_of(sweep)(unit._replace(cell="0"))().data


def test_kinds_of_cells_are_those_of_the_samplers():
    """A unit of each kind holds the numbers of a direct call with its seed."""
    models = Sweep(
        {"layer": "model", "config": "gpt2", "tokens": 4, "n_layer": 2}, {"n_embd": [48, 96]},
        samplers="model", samples=3, keep="V",
    )  # fmt: skip
    unit = Unit("model", "0", 0, 3)
    drawn = decode(record_of(models), 3, tasks_of(models)(unit)().data)
    model = sa.model_from_config("gpt2", n_layer=2, n_embd=48)
    seed = models.unit_seed(unit)
    direct = sa.simulate_model(model, 4, samples=3, seed=seed, progress=False)
    np.testing.assert_array_equal(drawn["V"][:, 0], direct["V"].isel(position=-1).values)
    sphere = Sweep(
        {"layer": "sphere", "beta": 1.0, "tokens": 3, "dimension": 4, "horizon": 1.0},
        samplers="sphere", samples=2, fractions=(0.0, 1.0),
    )  # fmt: skip
    unit = Unit("sphere", "", 0, 2)
    values = decode(record_of(sphere), 2, tasks_of(sphere)(unit)().data)["values"]
    assert values.shape == (2, 2, len(sphere.observables))
    assert np.isfinite(values).all()
