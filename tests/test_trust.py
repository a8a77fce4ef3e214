"""What lies on a disk chooses no code: a module that marks its import is not imported."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention import trust
from shaped_attention.commands.main import main
from shaped_attention.sweep.store_records import Ledger, StoreError

MODULE = """
import pathlib
from dataclasses import dataclass
import shaped_attention as sa

pathlib.Path(__file__).with_name("imported").touch()


@dataclass(frozen=True)
class Mine(sa.ShapedMLP):
    pass


def curve(x):
    return x


def first(v):
    return v[:, 0, 0]
"""
RUN = {"width": 8, "depth": 2, "samples": 16}


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module that nothing of this process has named, and the mark that its import leaves."""
    (tmp_path / "stranger.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(trust, "_used", set(trust._used))
    yield tmp_path / "imported"
    sys.modules.pop("stranger", None)


def from_file(tmp_path, **arguments):
    """A result, loaded from a file, whose record names something else."""
    chain = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), **RUN, keep_state=True, save_every=1)
    stored = sa.specification(chain) | arguments
    sa.save(chain.assign_attrs(specification=json.dumps(stored)), tmp_path / "chain.nc")
    return sa.load(tmp_path / "chain.nc")


MLP = sa.ShapedMLP(0.5, activation="gelu").specification()
NAMING = {
    "a block": {"layer": [{"block": "Mine", "module": "stranger", "gamma": 0.5}]},
    "an activation": {"layer": [MLP | {"activation": "stranger:curve"}]},
    "what is kept": {"keep": "stranger:first"},
}


@pytest.mark.parametrize("naming", NAMING)
def test_running_again_imports_only_what_the_caller_trusts(naming, stranger, tmp_path):
    result = from_file(tmp_path, **NAMING[naming])
    again = [lambda: sa.rerun(result), lambda: sa.continue_run(result, depth=4)]
    if "layer" in NAMING[naming]:
        again.append(lambda: sa.layer_of(result))
    for call in again:
        with pytest.raises(ValueError, match=r"^result names stranger:.* pass trust="):
            call()
    assert not stranger.exists()
    sa.rerun(result, trust=["stranger"])
    assert stranger.exists()


@pytest.mark.parametrize("naming", NAMING)
def test_reading_imports_nothing(naming, stranger, tmp_path):
    result = from_file(tmp_path, **NAMING[naming])
    sa.specification(result)
    sa.compare(result, sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), **RUN, seed=1))
    sa.stopping.exit_times(result)
    sa.density(result, "rho[0,1]", points=5)
    assert not stranger.exists()


def test_a_function_that_a_record_names_is_not_looked_up(stranger, tmp_path):
    result = from_file(tmp_path).assign_attrs(function="stranger:first")
    with pytest.raises(ValueError, match=r"^result was made by stranger:first, and no file may"):
        sa.rerun(result)
    assert not stranger.exists()


def test_what_this_process_named_needs_no_trust(stranger):
    run = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), **RUN, keep="stranger:first")
    assert sa.rerun(run).identical(run)


@pytest.mark.parametrize("wrong", ["stranger", [3]])
def test_trust_is_a_list_of_modules(wrong):
    with pytest.raises(ValueError, match=r"^trust must be a list of names of modules; got"):
        trust.check_modules(wrong)


def test_parts_of_a_trusted_package_are_trusted():
    assert trust.belongs("mine.layers", ["mine"])
    assert not trust.belongs("mineral", ["mine"])
    assert not trust.names_code("cuda:0")
    assert trust.names_code("my_module:layer")


LAYER = """
import pathlib
import shaped_attention as sa

pathlib.Path(__file__).with_name("imported").touch()


def layer(gamma):
    return sa.ShapedMLP(gamma)
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store that names a layer of a module that this process no longer knows."""
    (tmp_path / "archived.py").write_text(LAYER)
    monkeypatch.syspath_prepend(tmp_path)
    fixed = {"layer": "archived:layer", "tokens": 2, "width": 8, "depth": 2}
    sweep = sa.Sweep(fixed, {"gamma": [0.3, 0.5]}, ("chain", "network"), samples=40, block=20)
    sa.run_sweep(sweep, tmp_path / "store", progress=False)
    sys.modules.pop("archived")
    (tmp_path / "imported").unlink()
    monkeypatch.setattr(trust, "_used", set())
    yield tmp_path / "store"
    sys.modules.pop("archived", None)


def test_a_store_is_read_without_its_layer(store):
    """Also where the module is gone: status, summaries, distances, drawings and exports."""
    data = sa.open_sweep(store)
    sa.sweep_summary(data)
    sa.sweep_distances(data, "chain", "network")
    for words in (
        ["status", store], ["draw", store, "--figures", store.parent],
        ["export", store, store.parent / "all.nc"], ["export", store, store.parent / "all.csv"],
    ):  # fmt: skip
        result = CliRunner().invoke(main, ["sweep", *map(str, words)])
        assert result.exit_code == 0, result.output
    sa.sweep_distances(sa.load(store.parent / "all.nc"), "chain", "network")
    assert not (store.parent / "imported").exists()
    assert "archived" not in sys.modules


def test_a_store_goes_on_with_trusted_layers_alone(store):
    message = r"the store names archived:layer, .* pass trust=\['archived'\] \(--trust archived\)"
    for call in (
        lambda **trusted: sa.extend_sweep(store, samples=60, **trusted),
        lambda **trusted: sa.resume_sweep(store, progress=False, **trusted),
    ):
        with pytest.raises(ValueError, match=message):
            call()
        assert "archived" not in sys.modules
    assert CliRunner().invoke(main, ["sweep", "resume", str(store)]).exit_code == 2
    assert "archived" not in sys.modules
    words = ["sweep", "extend", str(store), "--samples", "60", "--trust", "archived"]
    extended = CliRunner().invoke(main, words)
    assert extended.exit_code == 0, extended.output
    assert f"sweep resume {store} --trust archived\n" in extended.output
    resumed = CliRunner().invoke(main, ["sweep", "resume", str(store), "--trust", "archived"])
    assert resumed.exit_code == 0, resumed.output
    assert int(sa.open_sweep(store)["drawn"].sum()) == 4 * 60


@pytest.mark.parametrize("name", ["os:system", "shutil:rmtree", "shaped_attention:save"])
def test_a_store_that_names_a_command_is_read_and_not_obeyed(store, name):
    """The layer of a store is called with what the store says: no name may be looked up.

    Checksums do not hinder whoever writes them too.
    """
    file = store / "sweep.json"
    file.write_text(file.read_text().replace("archived:layer", name))
    with pytest.raises(StoreError, match="has changed since it was written"):
        sa.open_sweep(store)
    forged(store, name)
    with pytest.raises(ValueError, match=f"the store names {name}"):
        sa.resume_sweep(store, progress=False)


HIDDEN = {
    "beside a key that stops the search": {"dict": {"unrecorded": "x", "a": "NAME"}},
    "under a key with another meaning": {"dict": {"module": "NAME"}},
}


@pytest.mark.parametrize("where", HIDDEN)
def test_names_cannot_be_hidden(where, stranger, tmp_path):
    text = json.dumps(HIDDEN[where]).replace('"NAME"', '{"function": "stranger:first"}')
    result = from_file(tmp_path, keep=json.loads(text))
    with pytest.raises(ValueError, match=r"^result names stranger:first"):
        sa.rerun(result)
    assert not stranger.exists()


def test_a_function_that_its_module_does_not_export_has_a_name(monkeypatch):
    """Only an outer package's `__all__` decides what it exports."""
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "__all__", ["main"], raising=False)
    assert trust.name_of(hidden_observable) == f"{__name__}:hidden_observable"


def hidden_observable(v):
    """An observable of a user, which `__all__` leaves out."""
    return v[:, 0, 0]


def test_names_of_another_form_are_not_imported(stranger, tmp_path):
    """As Python spells no module, but its import system would find one."""
    stranger.with_name("stranger-2.py").write_text(MODULE)
    with pytest.raises(ValueError, match="'stranger-2:first', which is not of the form module:na"):
        sa.rerun(from_file(tmp_path, keep={"function": "stranger-2:first"}))
    with pytest.raises(ValueError, match=r"layer must be .* got 'stranger-2:first'"):
        trust.function_named("stranger-2:first")
    assert not stranger.exists()


def forged(store, layer, **entries):
    """Let the specification in a store name another layer, with the checksum that is due."""
    text = (store / "sweep.json").read_text().replace("archived:layer", layer)
    text = json.dumps(json.loads(text) | entries)
    (store / "sweep.json").write_text(text)
    Ledger(store).announce({"sweep.json": text.encode()})


def test_an_extension_that_was_cut_off_is_completed_without_its_layer(store, monkeypatch):
    """By `status`, whoever wrote it; the coordinates too come from the file."""
    monkeypatch.setattr(trust, "_used", {"archived:layer"})
    larger = sa.extend_sweep(store, axes={"gamma": [0.7]})
    entries = {"sweep": larger.to_json(), "modules": {"archived": "0"}}  # of an older version
    (store.parent / "imported").unlink()
    sys.modules.pop("archived")
    (store / "extension.json").write_text(json.dumps(entries))
    assert CliRunner().invoke(main, ["sweep", "status", str(store)]).exit_code == 0
    assert not (store / "extension.json").exists()
    assert "archived" not in sys.modules


def test_repair_calls_no_layer(store):
    (store / "data.zarr" / ".zattrs").unlink()
    forged(store, "os:system")
    result = CliRunner().invoke(main, ["sweep", "repair", str(store)])
    assert result.exit_code == 0, result.output
    assert (store / "data.zarr" / ".zattrs").exists()


def test_a_forged_size_is_refused_before_anything_is_allocated(store):
    forged(store, "archived:layer", samples=10**12, block=1)
    result = CliRunner().invoke(main, ["sweep", "status", str(store)])
    assert result.exit_code == 2
    assert "units" in result.output
