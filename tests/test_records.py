"""Records that are not valid are refused, and no file names code that runs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import jsonschema
import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention import sphere
from shaped_attention.results.provenance import record
from tests.test_provenance import ATTENTION, RUN, SCHEMA, TOKENS


def tampered(result, function=None, **arguments):
    """A result whose record was changed; "gone" takes an argument away."""
    stored = json.loads(result.attrs["specification"]) | arguments
    kept = {name: value for name, value in stored.items() if value != "gone"}
    name = function or result.attrs["function"]
    return result.assign_attrs(function=name, specification=json.dumps(kept))


def test_records_that_were_tampered_with_are_refused(tmp_path):
    """Each in one sentence, before anything that a file names is called."""
    flow = sphere.sphere_flow(ATTENTION, TOKENS, [0.5])
    assert sa.rerun(tampered(flow)).identical(flow)
    path = str(tmp_path / "called")
    unknown = "which is no function that records its calls"
    for wrong, message in (
        (tampered(flow, "os:mkdir", path=path), f"os:mkdir, {unknown}"),
        (tampered(flow, start="gone"), "the argument start of sphere_flow"),
        (
            tampered(flow, attention={"class": "Call", "beta": 1.0}),
            "the class Call, which this package does not have",
        ),
        (flow.assign_attrs(format=3), r"format 3; this version reads only 4$"),
        (flow.assign_attrs(specification="{"), "record that is not valid"),
        (xr.Dataset(), "without the record of a call"),
    ):
        with pytest.raises(ValueError, match=rf"^result .*{message}") as caught:
            sa.rerun(wrong)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Mine(sa.ShapedMLP):
    """A block of a user."""


def test_a_block_of_ones_own_is_given(tmp_path):
    """Also inside another block; a file holds its name and fields."""
    for layer in ([Mine(0.5), sa.ShapedMLP(0.3)], [sa.Normalised(Mine(0.5), "before")]):
        result = sa.simulate_chain(layer, np.eye(2), **RUN)
        loaded = sa.load(sa.save(result, tmp_path / "r.nc"))
        jsonschema.validate(record(loaded), SCHEMA)
        lacks = (
            r"^result lacks its argument layer \(its block Mine is not one of this package\); pass"
        )
        with pytest.raises(ValueError, match=f"{lacks} layer=$"):
            sa.rerun(loaded)
        with pytest.raises(ValueError, match=rf"{lacks} .* as blocks=\[\.\.\.\]$"):
            sa.layer_of(loaded)
        assert sa.layer_of(loaded, blocks=[Mine]) == layer
        assert sa.rerun(loaded, layer=layer).identical(result)


STRANGER = """
import pathlib

pathlib.Path(__file__).with_name("imported").touch()


def first(v):
    return v[:, 0, 0]
"""
MLP = sa.ShapedMLP(0.5, activation="gelu").specification()
NAMING = {
    "an activation": ("layer", [MLP | {"activation": "stranger:first"}]),
    "what is kept": ("keep", "stranger:first"),
    "a list": ("keep", ["stranger:first"]),
}


@pytest.mark.parametrize("naming", NAMING)
def test_nothing_is_imported_because_a_file_names_it(naming, tmp_path, monkeypatch):
    """Not to read a result, and not to make it again; what the caller names is imported."""
    (tmp_path / "stranger.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    argument, value = NAMING[naming]
    made = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), **RUN)
    result = sa.load(sa.save(tampered(made, **{argument: value}), tmp_path / "chain.nc"))
    sa.specification(result)
    sa.density(result, "rho[0,1]", bins=3)
    lacks = rf"^result lacks its argument {argument} \(it names stranger:\w+, which is code\)"
    with pytest.raises(ValueError, match=lacks):
        sa.rerun(result)
    assert not (tmp_path / "imported").exists()
    sa.rerun(made, keep="stranger:first")
    assert (tmp_path / "imported").exists()
    sys.modules.pop("stranger")


def test_the_schema_refuses_what_is_no_record():
    valid = record(sphere.sphere_flow(ATTENTION, TOKENS, [0.5]))
    for wrong in (
        {"format": 3},
        {"function": "simulate_chain"},
        {"versions": {"torch": 2}},
        {"specification": {"start": {"tensor": "float64"}}},
        {"specification": {"keep": {"function": "my_module:f"}}},
        {"command": "rm"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(valid | wrong, SCHEMA)
