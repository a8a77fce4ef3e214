"""Records that are not valid or not complete are refused; those of earlier formats are read."""

from __future__ import annotations

import json

import jsonschema
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
    for wrong, message in (
        (tampered(flow, "os:mkdir", path=path), "mkdir of the module os: it does not record"),
        (tampered(flow, "tests.test_provenance:plain_function"), "plain_function .* not record"),
        (tampered(flow, "shaped_attention:save"), "save of the module .* it does not record"),
        (tampered(flow, "no_such_module:f"), "cannot be imported .No module named"),
        (tampered(flow, "shaped_attention:gone"), "cannot be imported"),
        (tampered(flow, "nothing"), "function 'nothing', which is not of the form module:name"),
        (tampered(flow, start="gone"), "the argument start of sphere_flow"),
        (tampered(flow, path=path), "the argument path, which sphere_flow does not have"),
        (
            tampered(flow, start={"tensor": "float64", "variable": "W"}),
            "invalid argument start: 'W'",
        ),
        (tampered(flow, start={"other": 1}), "invalid argument start"),
        (
            tampered(flow, keep={"function": "shutil:rmtree"}),
            "function rmtree .* not a function",
        ),
        (
            tampered(flow, keep={"function": "os:remove"}),
            "function remove .* it is not a function",
        ),
        (
            tampered(flow, attention={"class": "tests.test_provenance:Call", "beta": 1.0}),
            "class Call of the module tests.test_provenance: it is not storable",
        ),
        (
            tampered(flow, attention={"class": "shaped_attention.sphere:SphereAttention"}),
            "invalid argument attention",
        ),
        (flow.assign_attrs(format=4), r"format 4; this version reads only 3$"),
    ):
        with pytest.raises(ValueError, match=rf"^result .*{message}") as caught:
            sa.rerun(wrong, trust=["os", "shutil", "tests", "no_such_module", "nothing"])
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_schema_refuses_what_is_no_record():
    valid = record(sphere.sphere_flow(GENERAL, TOKENS, [0.5]))
    jsonschema.validate(valid, SCHEMA)
    for wrong in (
        {"format": 2},
        {"function": "simulate_chain"},
        {"function": None},
        {"versions": {"torch": 2}},
        {"specification": {"start": {"tensor": "float64"}}},
        {"specification": {"observe": {"lambda": "x"}}},
        {"command": "rm"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(valid | wrong, SCHEMA)
    del valid["function"]
    with pytest.raises(jsonschema.ValidationError, match="'function' is a required property"):
        jsonschema.validate(valid, SCHEMA)
