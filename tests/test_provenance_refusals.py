"""Records that are not valid or not complete are refused, and none names code that runs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import jsonschema
import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention import sphere
from shaped_attention.results.provenance import record
from tests.test_provenance import ATTENTION, GENERAL, SCHEMA, TOKENS


def tampered(result, function=None, **arguments):
    """A result whose record was changed; None takes an argument away."""
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
        (tampered(flow, "tests.test_provenance:plain_function"), unknown),
        (tampered(flow, "shaped_attention:save"), unknown),
        (tampered(flow, "no_such_module:f"), unknown),
        (tampered(flow, "shaped_attention:gone"), unknown),
        (tampered(flow, "nothing"), unknown),
        (tampered(flow, start="gone"), "the argument start of sphere_flow"),
        (tampered(flow, path=path), "the argument path, which sphere_flow does not have"),
        (tampered(flow, progress=True), "the argument progress, which no record has"),
        (
            tampered(flow, start={"tensor": "float64", "variable": "W"}),
            "invalid argument start: 'W'",
        ),
        (tampered(flow, start={"other": 1}), "invalid argument start"),
        (tampered(flow, keep={"function": "shutil:rmtree"}), "invalid argument keep"),
        (
            tampered(flow, attention={"class": "Call", "beta": 1.0}),
            "the class Call, which this package does not have",
        ),
        (tampered(flow, attention={"class": "SphereAttention"}), "invalid argument attention"),
        (flow.assign_attrs(format=3), r"format 3; this version reads only 4$"),
    ):
        with pytest.raises(ValueError, match=rf"^result .*{message}") as caught:
            sa.rerun(wrong)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class Mine(sa.ShapedMLP):
    """A block of a user."""


def first(v):
    return v[:, 0, 0]


RUN = {"width": 8, "depth": 2, "samples": 16, "progress": False}


def test_a_block_of_ones_own_is_given(tmp_path):
    """Also inside another block; a file holds its name and fields."""
    for layer in ([Mine(0.5), sa.ShapedMLP(0.3)], [sa.Normalised(Mine(0.5), "before")]):
        result = sa.simulate_chain(layer, np.eye(2), **RUN)
        loaded = sa.load(sa.save(result, tmp_path / "r.nc"))
        assert '"custom": "Mine"' in loaded.attrs["specification"]
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
    with pytest.raises(ValueError, match="blocks must be a list of classes of blocks"):
        sa.layer_of(loaded, blocks=[first])


def test_a_name_of_this_package_is_that_of_its_own_block():
    """What a record says of a block with the name of a function, or of none, is refused."""
    result = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), **RUN)
    for name in ("Pattern", "Mine", "__init__", "os"):
        with pytest.raises(ValueError, match=f"^result has the block {name}, which this package d"):
            sa.layer_of(tampered(result, layer=[{"block": name, "gamma": 0.5}]))


STRANGER = """
import pathlib

pathlib.Path(__file__).with_name("imported").touch()


def curve(x):
    return x


def first(v):
    return v[:, 0, 0]
"""
MLP = sa.ShapedMLP(0.5, activation="gelu").specification()
NAMING = {
    "an activation": ("layer", [MLP | {"activation": "stranger:curve"}]),
    "what is kept": ("keep", "stranger:first"),
    "a list": ("keep", ["stranger:first"]),
    "a dictionary": ("layer", {"dict": {"module": "stranger:first"}}),
}


@pytest.mark.parametrize("naming", NAMING)
def test_nothing_is_imported_because_a_file_names_it(naming, tmp_path, monkeypatch):
    """Not to read a result, and not to make it again; what the caller names is imported."""
    (tmp_path / "stranger.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(tmp_path)
    argument, value = NAMING[naming]
    made = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), **RUN)
    path = sa.save(tampered(made, **{argument: value}), tmp_path / "chain.nc")
    result = sa.load(path)
    sa.specification(result)
    sa.compare(result, made, permutations=99)
    sa.density(result, "rho[0,1]", bins=3)
    lacks = rf"^result lacks its argument {argument} \(it names stranger:\w+, which is code\)"
    with pytest.raises(ValueError, match=lacks):
        sa.rerun(result)
    if argument == "layer":
        with pytest.raises(ValueError, match=f"{lacks}$"):
            sa.layer_of(result)
    assert not (tmp_path / "imported").exists()
    sa.rerun(made, keep="stranger:first")
    assert (tmp_path / "imported").exists()
    sys.modules.pop("stranger")


def test_a_position_bias_names_no_code():
    layer = sa.ShapedAttention(0.5, position_bias="alibi:bfloat16")
    result = sa.simulate_chain(layer, np.eye(2), **RUN)
    assert sa.layer_of(result) == [layer]


def test_the_schema_refuses_what_is_no_record():
    valid = record(sphere.sphere_flow(GENERAL, TOKENS, [0.5]))
    jsonschema.validate(valid, SCHEMA)
    for wrong in (
        {"format": 3},
        {"function": "simulate_chain"},
        {"function": None},
        {"versions": {"torch": 2}},
        {"specification": {"start": {"tensor": "float64"}}},
        {"specification": {"keep": {"lambda": "x"}}},
        {"specification": {"keep": {"function": "my_module:f"}}},
        {"command": "rm"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(valid | wrong, SCHEMA)
    del valid["function"]
    with pytest.raises(jsonschema.ValidationError, match="'function' is a required property"):
        jsonschema.validate(valid, SCHEMA)
