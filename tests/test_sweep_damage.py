"""Stores whose files were changed, lost or copied during a run: noticed, named, and mended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import shaped_attention as sa
from shaped_attention.commands.main import main
from shaped_attention.sweep import (
    open_sweep,
    run_sweep,
    store_layout,
    sweep_summary,
)
from shaped_attention.sweep.grid import Unit
from shaped_attention.sweep.store import Store, StoreError
from shaped_attention.sweep.work_units import run_unit
from tests import sweep_layers as layers
from tests.sweep_layers import extend_sweep, resume_sweep

SWEEP = layers.small({"rho": [0.1, 0.3, 0.5]}, samples=20, block=10)
"""Six units; a chunk holds those of three cells."""

RESUME = {"progress": False}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "whole"
    assert run_sweep(SWEEP, path, progress=False).left == 0
    return path


@pytest.fixture
def path(store, tmp_path):
    """A copy of the store, to be damaged."""
    return shutil.copytree(store, tmp_path / "copy")


def files(path):
    return sorted(str(f.relative_to(path)) for f in (path / "data.zarr").rglob("*") if f.is_file())


def mended(path, store):
    """Whether a resumed store is as it was."""
    assert resume_sweep(path, **RESUME).left == 0
    return layers.contents(path) == layers.contents(store)


def flip(file, bit=1):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= bit
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[:-1])


DAMAGE = {"flipped": flip, "shorter": truncate, "deleted": lambda file: file.unlink()}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_file_is_watched_and_mended(damage, store, path):
    """A bit of any file of the arrays, metadata and coordinates too: named, and as it was."""
    names = files(path)
    assert len(names) > 20
    for name in names if damage == "flipped" else names[::7]:
        DAMAGE[damage](path / name)
        assert Store(path).arrays.damaged() == {name.removeprefix("data.zarr/")}
        assert mended(path, store), name
        assert not Store(path).arrays.damaged()


def test_chunks_in_each_others_place_are_noticed(path):
    first, second = (path / f"data.zarr/values/0.0.0.{i}.0" for i in (0, 1))
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert len(Store(path).arrays.damaged()) == 2
    first.write_bytes(contents[0])
    second.write_bytes(contents[1])
    for file in (first, second):
        flip(file)
    assert len(Store(path).arrays.damaged()) == 2


def test_an_older_version_of_a_file_is_noticed(tmp_path):
    """As a backup may bring it back: the ledger knows it, but its last commit has replaced it."""
    path = tmp_path / "s"
    store, chunk = Store(path, SWEEP), path / "data.zarr/values/0.0.0.0.0"
    versions = []
    with store.locked():
        for cell in range(3):
            unit = Unit(0, cell, 0)
            store.commit([(unit, run_unit(SWEEP, unit), 0.1)])
            versions.append(chunk.read_bytes())
    assert not Store(path).arrays.damaged()
    assert len(set(versions)) == 3
    chunk.write_bytes(versions[0])
    assert Store(path).arrays.damaged() == {"values/0.0.0.0.0"}


def test_reading_refuses_what_is_damaged_and_reads_the_rest(store, path):
    flip(path / "data.zarr/values/0.0.0.1.0")
    with open_sweep(path) as data:
        assert np.isfinite(data["values"].isel(sample=slice(0, 10))).all()
        with pytest.raises(StoreError, match=r"values/0\.0\.0\.1\.0: damaged since it was written"):
            data["values"].isel(sample=15).load()
    with open_sweep(store) as whole:
        assert np.isfinite(whole["values"]).all()


def test_units_of_lost_files_are_not_finished(path):
    assert len(Store(path).finished()) == 6
    (path / "data.zarr/moments/0.0.1.0.0.0").unlink()
    assert {unit.block for unit in Store(path).finished()} == {0}
    result = CliRunner().invoke(main, ["sweep", "status", str(path)])
    assert "3 of 6 units" in result.output


def specified(content):
    """Damage of the specification: it is these bytes, or has these entries."""

    def damage(path):
        file = path / "sweep.json"
        edited = isinstance(content, dict) and json.dumps(json.loads(file.read_text()) | content)
        file.write_bytes(edited.encode() if edited else content)

    return damage


def begun_at(line):
    """Damage of the ledger: the lines before are gone."""
    return lambda path: (path / "ledger.jsonl").write_bytes(
        b"".join((path / "ledger.jsonl").read_bytes().splitlines(keepends=True)[line:])
    )


SAID = {
    "no folder": (shutil.rmtree, "there is no sweep here"),
    "no specification": (
        lambda path: (path / "sweep.json").unlink(),
        "there is no sweep here; the attribute `sweep` of data.zarr has a copy of sweep.json",
    ),
    **{
        repr(content): (specified(content), "the sweep here cannot be read (")
        for content in (b"", b"\xff\xfe", b"[1]", b"3", b'{"format": 5}', {"samples": -3})
    },
    "edited": (specified({"seed": 6}), "sweep.json has changed since it was written"),
    "another format": (specified({"format": 0}), "the format 0, and this version of the package"),
    "no checksums": (begun_at(2), "ledger.jsonl is damaged: a line with checksums is missing)"),
    "no chunks": (begun_at(1), ": the first line is missing or damaged, "),
    "no arrays": (
        lambda path: shutil.rmtree(path / "data.zarr"), "the arrays of the sweep cannot be read (",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_a_store_without_its_parts_says_so(case, path):
    """In one sentence, by its name; nothing is made in its place."""
    damage, sentence = SAID[case]
    damage(path)
    result = CliRunner().invoke(main, ["sweep", "export", str(path), str(path / "all.nc")])
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line.startswith(f"Error: {path}")
    assert sentence in line
    assert path.exists() == (case != "no folder")


def test_verify_and_repair(store, path):
    """`verify` has status 0 for a whole store and names each damaged file of another."""
    call = CliRunner().invoke
    result = call(main, ["sweep", "verify", str(path)])
    assert result.exit_code == 0
    assert "6 of 6 units are intact" in result.output
    flip(path / "data.zarr/stopping/0.0.0.0")
    result = call(main, ["sweep", "verify", str(path)])
    assert result.exit_code != 0
    assert f"{path / 'data.zarr/stopping/0.0.0.0'}: missing or damaged" in result.output
    assert "3 of 6 units" in result.output
    result = call(main, ["sweep", "repair", str(path)])
    assert result.exit_code == 0
    assert "1 files missing or damaged, 3 units to compute again" in result.output
    assert not (path / "data.zarr/stopping/0.0.0.0").exists()
    assert mended(path, store)


def test_copies_made_during_a_run_can_be_continued(tmp_path):
    """File by file while a run writes: torn between two commits, and mended."""
    sweep = layers.small({"rho": [0.1, 0.3]}, samples=200, block=10, seconds=0.005)
    whole, path = tmp_path / "whole", tmp_path / "run"
    Store(whole, sweep)
    assert layers.in_process(layers.commit_often, whole) == 0
    expected = layers.contents(whole)
    Store(path, sweep)
    process = layers.forks().Process(target=layers.commit_often, args=(path,))
    process.start()
    copies = []
    while process.is_alive() and len(copies) < 200:
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(path, copies[-1], ignore=shutil.ignore_patterns("*.draft"))
        time.sleep(0.01)
    process.join()
    assert process.exitcode == 0
    assert layers.contents(path) == expected
    torn = [copy for copy in copies if 0 < len(Store(copy).finished()) < 2 * sweep.blocks]
    assert torn
    for copy in torn[:: -(-len(torn) // 5)]:
        assert resume_sweep(copy, **RESUME).left == 0
        assert layers.contents(copy) == expected


def test_json_has_the_fields_of_the_documentation(store, path):
    """Of `status`, `summary` and `verify`; numbers are those of the library."""
    call = CliRunner().invoke
    status = json.loads(call(main, ["sweep", "status", str(store), "--json"]).output)
    assert status == {
        "store": str(store), "running": False, "finished": 6, "units": 6, "lost": 0, "wanted": 0,
        "seconds_left": 0.0, "code_changes": [], "reasons": {"samples": 3}, "failures": [],
    }  # fmt: skip
    rows = json.loads(call(main, ["sweep", "summary", str(store), "--json"]).output)
    with open_sweep(store) as data:
        means = sweep_summary(data)["mean"].sel(sampler="chain")
        assert len(rows) == means.size
        row = rows[-1]
        place = {name: row[name] for name in ("rho", "time", "observable")}
        assert row["mean"] == pytest.approx(float(means.sel(place)), rel=1e-9)
    table = call(main, ["sweep", "summary", str(store)]).output.splitlines()
    assert len(table) == len(rows) + 1
    flip(path / "data.zarr/moments/0.0.0.0.0.0")
    result = call(main, ["sweep", "verify", str(path), "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout) == {
        "store": str(path), "units": 6, "intact": 3, "damaged": ["moments/0.0.0.0.0.0"],
    }  # fmt: skip


def test_the_state_of_a_store_is_shown_without_torch_and_plots(store):
    """Importing them takes most of the time of `status`."""
    program = (
        "import sys; from shaped_attention.commands.main import main\n"
        f"main(['sweep', 'status', {str(store)!r}], standalone_mode=False)\n"
        "assert not {'torch', 'matplotlib', 'scipy.stats'} & set(sys.modules), 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 units" in done.stdout


def test_units_whose_checksums_are_lost_are_not_finished(store, path):
    """Lines of the ledger are damaged, and the files with them."""
    ledger = path / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(line for line in lines if '"values/0.0.0.1.0"' not in line))
    (path / "data.zarr/values/0.0.0.1.0").unlink()
    # A commit may have announced the files of other units in the same line.
    assert all(unit.block == 0 for unit in Store(path).finished())
    result = CliRunner().invoke(main, ["sweep", "verify", str(path)])
    assert result.exit_code == 3
    assert mended(path, store)


def test_a_damaged_chunk_does_not_stop_an_extension(tmp_path):
    """Its last block becomes larger, so that the chunk is written to."""
    sweep = layers.small({"rho": [0.1, 0.3]}, samples=15, block=10)
    assert run_sweep(sweep, tmp_path / "s", progress=False).left == 0
    flip(tmp_path / "s/data.zarr/values/0.0.0.1.0")
    extend_sweep(tmp_path / "s", samples=20)
    assert resume_sweep(tmp_path / "s", **RESUME).left == 0
    fresh = layers.small({"rho": [0.1, 0.3]}, samples=20, block=10)
    run_sweep(fresh, tmp_path / "fresh", progress=False)
    assert layers.numbers(tmp_path / "s") == layers.numbers(tmp_path / "fresh")


@pytest.mark.parametrize("lost", ["data.zarr/values", "data.zarr/rho"])
def test_a_whole_array_is_drawn_again(lost, store, path):
    shutil.rmtree(path / lost)
    assert CliRunner().invoke(main, ["sweep", "repair", str(path)]).exit_code == 0
    assert mended(path, store)


def test_repaired_metadata_may_differ(path, monkeypatch):
    """Another version of a library writes other bytes, which then have the checksums."""
    (path / "data.zarr/values/.zattrs").unlink()
    monkeypatch.setitem(store_layout._ABOUT, "values", "another text")
    assert CliRunner().invoke(main, ["sweep", "repair", str(path)]).exit_code == 0
    assert not Store(path).arrays.damaged()


def test_a_process_may_die_twice_between_announcing_and_writing(tmp_path):
    """What the first had written and not yet recorded is one of the versions that may be there."""
    path = tmp_path / "s"
    store = Store(path, SWEEP)
    with store.locked():
        store.commit([(Unit(0, 0, 0), run_unit(SWEEP, Unit(0, 0, 0)), 0.1)])
    for cell, written in ((1, True), (2, False)):
        again, unit = Store(path), Unit(0, cell, 0)
        again.arrays.write(unit, run_unit(SWEEP, unit))
        chunks = again.arrays.changed()
        (again.arrays.put if written else again.ledger.announce)(chunks)
    assert not Store(path).arrays.damaged()
    assert Store(path).finished().keys() == {Unit(0, 0, 0)}


def test_a_result_without_its_attributes_is_damaged(tmp_path):
    run = sa.simulate_chain(sa.ShapedMLP(0.5), np.eye(2), width=8, depth=2, samples=4)
    sa.save(run, tmp_path / "run.zarr")
    (tmp_path / "run.zarr" / ".zattrs").unlink()
    with pytest.raises(ValueError, match=r"\.zattrs is missing"):
        sa.load(tmp_path / "run.zarr")
