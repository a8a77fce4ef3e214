"""Nothing that a sweep's ledger has is lost or changed, however a run dies."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from shaped_attention.io.records import read_records
from shaped_attention.sweep import open_sweep, run_sweep
from shaped_attention.sweep.store import Store, StoreError
from shaped_attention.sweep.store_arrays import Arrays
from shaped_attention.sweep.store_layout import layouts
from tests import sweep_layers as layers
from tests.sweep_layers import resume_sweep

SMALL = {"samples": 20, "block": 10}
"""Two units."""


def whole(sweep, path):
    """What an uninterrupted run keeps."""
    report = run_sweep(sweep, path, progress=False)
    assert report.left == report.failed == 0
    return layers.contents(path)


def samples_of(path, units):
    """The bytes of all arrays of these units."""
    store = Store(path)
    return {
        (unit, name): store.arrays.read(name, unit).tobytes()
        for unit in units
        for name in layouts(store.sweep)
    }


def units_in(ledger):
    """The number of times that the ledger has a unit."""
    return sum("unit" in record for record in read_records(ledger))


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    assert layers.in_process(layers.ready) == 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_kills_at_random_moments(tmp_path):
    """More than eight kills -9 while it writes: bit-identical to an uninterrupted run.

    After each, the ledger has what it had, with the same samples, and no unit was drawn twice.
    """
    sweep = layers.small({"rho": [0.2, 0.5]}, samples=360, block=24, seconds=0.005)
    total = 2 * sweep.blocks
    Store(tmp_path / "whole", sweep)
    began = time.monotonic()
    assert layers.in_process(layers.commit_often, tmp_path / "whole") == 0
    lasts = 0.8 * (time.monotonic() - began)
    expected = layers.contents(tmp_path / "whole")
    rng = np.random.default_rng(11)
    inside = kills = 0
    for k in itertools.count():
        path = tmp_path / f"killed{k}"
        Store(path, sweep)
        before: set = set()
        files: dict = {}
        while True:
            status = layers.in_process(layers.commit_often, path, seconds=rng.uniform(0, lasts))
            done = set(Store(path).finished())
            assert done >= before
            assert files.items() <= samples_of(path, done).items()
            before, files = done, samples_of(path, done)
            if status == 0:
                break
            assert status == -signal.SIGKILL
            kills += 1
            inside += 0 < len(done) < total
        assert layers.contents(path) == expected
        assert units_in(path / "ledger.jsonl") == len(before) == total
        with open_sweep(path) as found, open_sweep(tmp_path / "whole") as other:
            xr.testing.assert_identical(found.load(), other.load())
        if kills >= 8 and inside >= 5:
            break


def deaths(tmp_path, sweep, wrong=False):
    """What a death at each moment about a write leaves."""
    for k in itertools.count(1):
        path = tmp_path / f"dead{k}"
        status = layers.in_process(layers.die_at, path, sweep, k, wrong)
        if status == 0:
            return
        assert status == -signal.SIGKILL
        yield path


def test_death_at_every_moment_of_a_write(tmp_path):
    """Before every fsync, before and after every move of a file: resumed, it is the same.

    First of all while the store is made, when the folder is not yet a store.
    """
    sweep = layers.small(**SMALL)
    expected = whole(sweep, tmp_path / "whole")
    seen = []
    for path in deaths(tmp_path, sweep):
        there = (path / "sweep.json").exists()
        done = Store(path).finished() if there else {}
        seen.append(len(done) if there else None)
        before = samples_of(path, done) if there else {}
        assert whole(sweep, path) == expected
        assert before.items() <= samples_of(path, Store(path).finished()).items()
    assert list(dict.fromkeys(seen)) == [None, 0, 1, 2]


def test_a_ledger_that_comes_first_would_be_noticed(tmp_path, monkeypatch):
    """Negative control of the test of deaths: a unit is lost whose line comes before its files.

    It takes a store that believes the ledger; otherwise the unit has no checksums, and is missing.
    """
    sweep = layers.small(samples=10, block=10)
    expected = whole(sweep, tmp_path / "whole")
    monkeypatch.setattr(Arrays, "damaged", lambda arrays: set())
    monkeypatch.setattr(
        Store, "finished", lambda store: dict.fromkeys(store.ledger.units(sweep), 1)
    )
    dead = (p for p in deaths(tmp_path, sweep, wrong=True) if (p / "sweep.json").exists())
    assert not all(whole(sweep, path) == expected for path in dead)


def test_torn_ledger(tmp_path):
    """A last line cut anywhere, or filled with garbage: that unit is drawn again, and no other."""
    sweep = layers.small(**SMALL)
    path = tmp_path / "store"
    expected = whole(sweep, path)
    ledger = path / "ledger.jsonl"
    *first, last = ledger.read_bytes().splitlines(keepends=True)
    start = b"".join(first)
    kept, torn = Store(path).finished()
    assert zlib.crc32(last[9:-1]) == int(last[:8], 16)
    endings = [last[:cut] for cut in range(len(last) - 1)]
    endings += [b"\x00" * len(last), b"\xff" * 40 + b"\n", last.replace(b"1", b"2"), b"\n\n"]
    for ending in endings:
        ledger.write_bytes(start + ending)
        assert list(Store(path).finished()) == [kept]
        assert whole(sweep, path) == expected
        assert ledger.read_bytes().startswith(start)
        assert list(Store(path).finished()) == [kept, torn]
        assert units_in(ledger) == 2
    # Without its newline a line is whole; another is not glued to it.
    ledger.write_bytes(start[:-1])
    assert whole(sweep, path) == expected
    assert list(Store(path).finished()) == [kept, torn]


def test_full_disk(tmp_path, monkeypatch):
    """At each fsync in turn: one error that says what to do, nothing lost, and the same result."""
    sweep = layers.small(**SMALL)
    expected = whole(sweep, tmp_path / "whole")
    fsync = os.fsync
    for k in itertools.count(1):
        path = tmp_path / f"full{k}"
        Store(path, sweep)
        left = itertools.count(1)

        def full(descriptor, left=left, k=k):
            if next(left) >= k:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                run_sweep(sweep, path, progress=False)
                break
            except StoreError as error:
                sentence = str(error)
        assert sentence == (
            f"{path}: cannot be written (No space left on device); the units in the ledger are "
            "intact, and the run can be resumed"
        )
        before = samples_of(path, Store(path).finished())
        assert whole(sweep, path) == expected
        assert before.items() <= samples_of(path, Store(path).finished()).items()
    assert k > 10


@pytest.mark.parametrize("cut", ["chunks", "ledger"])
def test_files_that_may_not_grow(tmp_path, cut):
    """The system's own limit cuts the chunks (100 bytes), or the ledger in a line."""
    sweep = layers.small(samples=160, block=8)
    expected = whole(sweep, tmp_path / "whole")
    path = tmp_path / "limited"
    Store(path, sweep)
    most = 100 if cut == "chunks" else (path / "ledger.jsonl").stat().st_size + 700
    assert layers.in_process(layers.small_files, path, most) == 3
    assert path.with_suffix(".said").read_text().endswith("the run can be resumed")
    done = Store(path).finished()
    assert (len(done) > 0) == (cut == "ledger")
    before = samples_of(path, done)
    assert whole(sweep, path) == expected
    assert before.items() <= samples_of(path, Store(path).finished()).items()


def test_places_that_cannot_be_written(tmp_path):
    """A file in the folder's place, and a folder below a file: a sentence, and the file as it was.

    A lock that cannot be opened is such a case too.
    """
    sweep = layers.small(**SMALL)
    file = tmp_path / "file"
    file.write_text("precious")
    for path in (file, file / "below"):
        with pytest.raises(StoreError, match=r"a sweep cannot be stored here \(.+\)"):
            run_sweep(sweep, path, progress=False)
        with pytest.raises(StoreError, match="there is no sweep here"):
            resume_sweep(path, progress=False)
    assert file.read_text() == "precious"
    whole(sweep, tmp_path / "store")
    (tmp_path / "store" / "lock").unlink()
    (tmp_path / "store" / "lock").mkdir()
    with pytest.raises(StoreError):
        resume_sweep(tmp_path / "store", progress=False)


def test_stores_of_others_are_refused_and_left_alone(tmp_path):
    """That of a sweep with another seed, and a folder with something else in it."""
    sweep, other = layers.small(**SMALL), layers.small(**SMALL, seed=6)
    path = tmp_path / "store"
    expected = whole(sweep, path)
    ledger = (path / "ledger.jsonl").read_bytes()
    message = r"belongs to another sweep \(different: seed\); use another folder"
    with pytest.raises(StoreError, match=message):
        run_sweep(other, path, progress=False)
    assert layers.contents(path) == expected
    assert (path / "ledger.jsonl").read_bytes() == ledger
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="the folder is neither empty nor the store of a sweep"):
        run_sweep(sweep, foreign, progress=False)
    assert [f.name for f in foreign.iterdir()] == ["thesis.tex"]
    assert (foreign / "thesis.tex").read_text() == "precious"
    zarr = tmp_path / "zarr" / "data.zarr"
    xr.Dataset({"x": ("i", np.arange(3.0))}).to_zarr(zarr, zarr_format=2, consolidated=False)
    with pytest.raises(StoreError, match="the folder is neither empty nor the store of a sweep"):
        run_sweep(sweep, zarr.parent, progress=False)
    assert xr.open_zarr(zarr, consolidated=False)["x"].values.tolist() == [0, 1, 2]


def test_two_runs_at_once(tmp_path):
    """The second is refused while the first is, and not after its death."""
    sweep = layers.small(**SMALL)
    expected = whole(sweep, tmp_path / "whole")
    path: Path = tmp_path / "store"
    Store(path, sweep)
    process = layers.forks().Process(target=layers.hold, args=(path, 60))
    process.start()
    try:
        while not path.with_suffix(".held").exists():
            assert process.is_alive()
            time.sleep(0.01)
        assert Store(path).running
        with pytest.raises(StoreError, match="another run is writing to this store"):
            run_sweep(sweep, path, progress=False)
        assert Store(path).finished() == {}
    finally:
        process.kill()
        process.join()
    assert not Store(path).running
    assert whole(sweep, path) == expected


def test_the_lock_ends_with_a_killed_run_that_has_forked(tmp_path):
    """kill -9 of the holder while a child that it forked lives on."""
    code = (
        "import os, sys, time\n"
        "from shaped_attention.sweep.store import Store\n"
        "with Store(sys.argv[1]).locked():\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.close(1)\n"
        "        time.sleep(30)\n"
        "        os._exit(0)\n"
        "    time.sleep(0.5)\n"
        "    print(child, flush=True)\n"
        "    time.sleep(30)\n"
    )
    store = Store(tmp_path / "s", layers.small(**SMALL))
    command = [sys.executable, "-c", code, str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        child = int(run.stdout.readline())
        assert store.running
        run.kill()
    try:
        assert not store.running
    finally:
        os.kill(child, signal.SIGKILL)
