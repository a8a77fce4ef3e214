"""A file that is damaged or made by a stranger gives a sentence, never a wrong number or code."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3

import numpy as np
import pytest

from shaped_attention.sweep import (
    SweepFileError,
    open_sweep,
    read_sweep,
    run_sweep,
    sweep_status,
)
from shaped_attention.sweep.data import Drawn, digest_of, encode
from shaped_attention.sweep.file import SweepFile
from shaped_attention.sweep.specification import Unit
from tests.sweep_examples import bits, small


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file of 48 units, a few on each page, and its Dataset."""
    path = tmp_path_factory.mktemp("whole") / "a.sweep"
    run_sweep(small({"gamma": [0.1, 0.2, 0.3, 0.4]}, samples=48), path, progress=False)
    return path, open_sweep(path)


@pytest.fixture
def copy(whole, tmp_path):
    """A copy to be damaged."""
    return shutil.copy(whole[0], tmp_path / "b.sweep")


def damage(path, place, data):
    """Write bytes at a place of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:place] + data + content[place + len(data) :])


def change(path, *statements):
    """Execute statements in a file, as its owner could."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = on")
        for statement, *values in statements:
            db.execute(statement, values)


def specify(path, text):
    """Write a specification with its digest."""
    text = text.encode(errors="surrogateescape")
    digest = digest_of(text.decode(errors="replace"))
    change(path, ("UPDATE specification SET sweep = CAST(? AS TEXT), digest = ?", text, digest))


def write(path, unit, data):
    """Write the row of a unit with its digest."""
    with SweepFile(path, read_sweep(path)) as file:
        file.begin({}, [], 0)
        file.commit([(unit, Drawn(data, 1.0))])


def units_read(path, data):
    """Read a file; return how many units it has, all with the numbers of the original."""
    read = open_sweep(path)
    assert read.attrs["sweep"] == data.attrs["sweep"]
    values = read["values"].values
    there = np.isfinite(values)
    np.testing.assert_array_equal(values[there], data["values"].values[there])
    assert there.sum() == 8 * 8 * (48 - read.attrs["missing"])
    return 48 - read.attrs["missing"]


def test_no_bit_changes_a_number_in_silence(whole, copy):
    """What is read equals what was written, or is missing, or a sentence comes."""
    original, moments, noticed = whole[0].read_bytes(), random.Random(7), 0
    for _ in range(60):
        copy.write_bytes(original)
        place, bit = moments.randrange(len(original)), moments.randrange(8)
        damage(copy, place, bytes([original[place] ^ 1 << bit]))
        try:
            noticed += units_read(copy, whole[1]) < 48
        except SweepFileError as error:
            noticed += "\n" not in str(error)
    # Otherwise the flips would have hit nothing, or all would be refused.
    assert 20 < noticed < 60


def test_a_wrong_number_would_be_seen(whole, copy):
    """A control: with a digest of its own, another number is read."""
    change(copy, ("UPDATE unit SET data = ? WHERE block = 0", b"0"))
    assert open_sweep(copy).attrs["damaged"] == 8
    unit = Unit("chain", "0", 0, 8)
    with SweepFile(whole[0]) as file:
        records = next(records for found, _, records in file.units() if found == unit).copy()
    records["values"] += 1.0
    write(copy, unit, encode(records))
    read = open_sweep(copy)["values"].sel(sampler="chain", gamma=0.1).isel(sample=slice(8))
    np.testing.assert_array_equal(read.transpose("sample", ...), records["values"])


def test_damaged_units_are_drawn_again(whole, copy):
    change(copy, ("UPDATE unit SET samples = 7 WHERE block = 0",))
    change(copy, ("UPDATE unit SET seconds = 7.0 WHERE block = 1",))
    status = sweep_status(copy)
    assert (status.done, status.damaged) == (32, 8)
    assert open_sweep(copy).attrs["missing"] == 16
    run_sweep(read_sweep(copy), copy, progress=False)
    assert bits(copy) == bits(whole[0])
    assert open_sweep(copy).attrs["missing"] == 0


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "3", '{"format": 2, "tokens": 2, "fixed": {}}', "\udcff"],
)  # fmt: skip
def test_a_specification_of_a_stranger_is_refused_in_a_sentence(copy, text):
    specify(copy, text)
    for reading in (open_sweep, sweep_status, read_sweep):
        with pytest.raises(SweepFileError, match="specification is not") as caught:
            reading(copy)
        assert "\n" not in str(caught.value)
