"""A sweep that grows in its store: the bits of a new store of the larger sweep, or none of it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
import xarray as xr

from shaped_attention.sweep import (
    open_sweep,
    run_sweep,
    sweep_distances,
    sweep_summary,
)
from shaped_attention.sweep import store as storing
from shaped_attention.sweep.plots import heat_maps, small_multiples
from shaped_attention.sweep.store import Store, StoreError
from tests import sweep_layers as layers
from tests.sweep_examples import FIXED, small
from tests.sweep_layers import extend_sweep, resume_sweep

TWO = {"gamma": [0.3, 0.5], "tau0": [1.0, 2.0]}
"""Two axes: a value appended to the second one moves the numbers of cells."""


def grid(**changes):
    return small(**({"axes": TWO, "fractions": (0.5, 1.0)} | changes))


def finish(path):
    """Draw what is missing; the numbers, and the units that the run drew."""
    before = len(Store(path).finished())
    report = resume_sweep(path, progress=False)
    assert report.left == report.failed == 0
    return layers.numbers(path), report.finished - before


def new(sweep, path):
    """The numbers of a new store."""
    assert run_sweep(sweep, path, progress=False).left == 0
    return layers.numbers(path)


LARGER = {
    "more samples": ({"samples": 40}, {"samples": 40}, {}),
    "a part of a block": ({"samples": 22}, {"samples": 22}, {}),
    "a last axis": ({"axes": {"tau0": [3.0]}}, {}, {"tau0": [1.0, 2.0, 3.0]}),
    "a first axis": ({"axes": {"gamma": np.array([0.6])}}, {}, {"gamma": [0.3, 0.5, 0.6]}),
    "all": (
        {"samples": 24, "axes": {"gamma": [0.1], "tau0": [0.5]}},
        {"samples": 24}, {"gamma": [0.3, 0.5, 0.1], "tau0": [1.0, 2.0, 0.5]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "keep"),
    [*((case, "observables") for case in LARGER), ("all", "V"), ("all", "reductions")],
)
def test_an_extended_store_is_a_new_one_of_the_larger_sweep(case, keep, tmp_path):
    """Every number of the arrays, of chain and SDE; only units that are missing are drawn."""
    extension, changes, axes = LARGER[case]
    larger = grid(keep=keep, axes=TWO | axes, **changes)
    run_sweep(grid(keep=keep), tmp_path / "s", progress=False)
    old = {unit for unit in Store(tmp_path / "s").finished() if unit.block < 2}
    assert extend_sweep(tmp_path / "s", **extension) == larger
    data = open_sweep(tmp_path / "s")
    assert dict(data["drawn"].sizes) == {
        "sampler": 2, **{name: len(values) for name, values in larger.axes.items()},
        "block": larger.blocks,
    }  # fmt: skip
    assert (data["moments"].notnull().all(("time", "observable", "power"))
            == (data["drawn"] > 0)).all()  # fmt: skip
    found, drawn = finish(tmp_path / "s")
    assert found == new(larger, tmp_path / "new")
    kept = len(old) if "samples" in extension else 3 * len(old) // 2
    assert drawn == 2 * np.prod(larger.shape) * larger.blocks - kept
    assert open_sweep(tmp_path / "s").load().identical(open_sweep(tmp_path / "new").load())


def test_extensions_in_a_row(tmp_path):
    """Twice without a run between them, and once after one; the target stays, reasons do not.

    Negative control: with another seed, the numbers differ.
    """
    run_sweep(replace(grid(), target={"observable": "rho[0,1]", "half_width": 9.0, "first": 1}),
              tmp_path / "s", progress=False)  # fmt: skip
    assert (open_sweep(tmp_path / "s")["reason"] == "target").all()
    larger = extend_sweep(tmp_path / "s", samples=22)
    assert larger.target == Store(tmp_path / "s").sweep.target is not None
    assert (open_sweep(tmp_path / "s")["reason"] == "").all()
    extend_sweep(tmp_path / "s", samples=30, axes={"tau0": [0.5]})
    run_sweep(replace(Store(tmp_path / "s").sweep, target=None), tmp_path / "s", progress=False)
    extend_sweep(tmp_path / "s", axes={"gamma": [0.4], "tau0": [0.7]})
    found, drawn = finish(tmp_path / "s")
    axes = {"gamma": [0.3, 0.5, 0.4], "tau0": [1.0, 2.0, 0.5, 0.7]}
    expected = new(grid(samples=30, axes=axes), tmp_path / "new")
    # The store keeps the target with which it was made.
    found.pop("attributes"), expected.pop("attributes")
    assert found == expected
    assert drawn == 6 * 2 * 4
    assert new(grid(samples=30, axes=axes, seed=1), tmp_path / "other") != found


def test_a_new_run_of_the_larger_sweep_goes_on(tmp_path):
    """A changed file runs in the store once it is extended; before, the error says how."""
    run_sweep(small(), tmp_path / "s", progress=False)
    larger = small(samples=40)
    with pytest.raises(
        StoreError, match=r"different: samples\); use `sweep extend` or another folder"
    ):
        run_sweep(larger, tmp_path / "s", progress=False)
    extend_sweep(tmp_path / "s", samples=40)
    assert run_sweep(larger, tmp_path / "s", progress=False).finished == 4 * 5
    with pytest.raises(StoreError, match=r"different: samples\); use another folder"):
        run_sweep(small(), tmp_path / "s", progress=False)


def test_failures_stay_with_their_cells(tmp_path):
    """They name cells along the axes."""
    axes = {"rho": [0.2, 0.5], "fault": ["none", "raise"]}
    sweep = layers.small(axes, samples=20, block=10, log=str(tmp_path))
    report = run_sweep(sweep, tmp_path / "s", retries=0, progress=False)
    assert report.reasons == {"samples": 2, "failed": 2}

    def failed(store):
        return [
            (store.sweep.index(record["unit"].cell), record["unit"].block)
            for record in store.failures()
        ]

    before = failed(Store(tmp_path / "s"))
    extend_sweep(tmp_path / "s", axes={"fault": ["other"]})
    assert failed(Store(tmp_path / "s")) == before


REFUSED = {
    "fewer": ({"samples": 19}, "samples must be more than the store's 20; got 19"),
    "as many": ({"samples": 20}, "samples must be more than the store's 20; got 20"),
    "a fraction": ({"samples": 20.5}, "samples must be an integer >= 1; got 20.5"),
    "nothing": ({}, "samples, axes: give at least one of the two"),
    "twice": ({"axes": {"gamma": [0.7, 0.7]}}, "gamma must be new to the axis; got 0.7"),
    "unknown": (
        {"axes": {"gama": [0.7]}},
        "gama is not an axis of the sweep; choose one of gamma (did you mean 'gamma'?)",
    ),
    "text": ({"axes": {"gamma": ["0.7"]}}, "gamma must be a number, as on the axis; got '0.7'"),
    "truth": ({"axes": {"gamma": [True]}}, "gamma must be a number, as on the axis; got True"),
    "a number": ({"axes": {"gamma": 0.7}}, "gamma must be a list of values; got 0.7"),
    "no values": ({"axes": {"gamma": []}}, "gamma must be a list of values; got []"),
    "a list": ({"axes": [0.7]}, "axes must be a mapping from names of axes to lists of values; got "
               "[0.7]"),
    "range": ({"axes": {"gamma": [1.5]}},
              "gamma must be in [0, 1]; got 1.5 (first at gamma=1.5)"),
    "units": ({"samples": 10**7}, "block=8 makes 5000000 units (2 cells, 2 samplers, 1250000 "
              "blocks); at most 1000000 are possible; use a larger block, fewer samples or fewer "
              "cells"),
}  # fmt: skip


def test_refused_extensions_leave_the_store_alone(tmp_path):
    Store(tmp_path / "s", small())
    before = layers.contents(tmp_path / "s")
    for extension, sentence in REFUSED.values():
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            extend_sweep(tmp_path / "s", **extension)
    assert layers.contents(tmp_path / "s") == before
    assert not Store(tmp_path / "s").extending


def test_smaller_covariances_are_refused_by_name(tmp_path):
    """A covariance has a number of tokens too; an axis that leaves it alone is not named."""
    fixed = {k: v for k, v in FIXED.items() if k != "tokens"}
    axes = {"gamma": [0.3], "covariance": [np.eye(3)]}
    Store(tmp_path / "s", small(fixed=fixed, axes=axes))
    smaller = {"gamma": [0.5], "covariance": [np.eye(2)]}
    with pytest.raises(ValueError, match="the store keeps") as caught:
        extend_sweep(tmp_path / "s", axes=smaller)
    assert str(caught.value) == (
        "covariance=[[[1.0, 0.0], [0.0, 1.0]]]: the store keeps 'log V[2,2]', which these cells "
        "lack"
    )
    same = smaller | {"covariance": [2 * np.eye(3)]}
    assert extend_sweep(tmp_path / "s", axes=same).shape == (2, 2)


def test_a_dataset_opened_before_is_refused(tmp_path, monkeypatch):
    """A selection and a loaded copy, from any folder; that of a resumed store is not."""
    path = tmp_path / "s"
    Store(path, small())
    monkeypatch.chdir(tmp_path)
    old = open_sweep("s")
    resume_sweep(path, progress=False)
    full = open_sweep(path)
    assert int(sweep_summary(full)["samples"].sum()) == 4 * 20
    monkeypatch.chdir("/")
    extend_sweep(path, samples=40)
    resume_sweep(path, progress=False)
    for data in (old, full, full.isel(gamma=[0]), full.load()):
        for function in (sweep_summary, sweep_distances):
            with pytest.raises(
                ValueError, match=f"at {path} has been extended since it was opened"
            ):
                function(data)
    assert int(sweep_summary(open_sweep(path))["samples"].sum()) == 4 * 40


def test_a_full_disk_leaves_the_store_as_it_is(tmp_path, monkeypatch):
    """While no draft fits on the disk, the store opens as before; then it is extended."""
    run_sweep(small(), tmp_path / "s", progress=False)
    before = layers.contents(tmp_path / "s")
    draft_arrays = storing.draft_arrays

    def full(draft, *arguments):
        draft_arrays(draft, *arguments)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(storing, "draft_arrays", full)
        with pytest.raises(StoreError, match=r"cannot be written \(No space left on device\)"):
            extend_sweep(tmp_path / "s", samples=40)
        assert int(sweep_summary(open_sweep(tmp_path / "s"))["samples"].sum()) == 4 * 20
    assert layers.contents(tmp_path / "s") == before
    assert not (tmp_path / "s" / ".data.zarr.draft").exists()
    extend_sweep(tmp_path / "s", samples=40)
    assert finish(tmp_path / "s")[0] == new(small(samples=40), tmp_path / "new")


def test_figures_sort_the_values_of_an_extended_axis():
    """Curves run from left to right, and the columns of heat maps too, each with its numbers."""
    gamma, tau0 = [0.3, 0.5, 0.1], [2.0, 1.0]
    coords = {"sampler": ["chain"], "tau0": tau0, "gamma": gamma}
    numbers = np.array(gamma) + 10 * np.array(tau0)[:, None]
    values = xr.DataArray(numbers[None], coords, tuple(coords))
    first, second = heat_maps(values[0].T).axes[0], small_multiples(values, error=values / 100)
    assert [text.get_text() for text in first.get_xticklabels()] == ["0.1", "0.3", "0.5"]
    found = np.asarray(first.collections[0].get_array()).reshape(2, 3)
    np.testing.assert_array_equal(found, [[20.1, 20.3, 20.5], [10.1, 10.3, 10.5]])
    for axis, height in zip(second.axes, (10, 20), strict=True):
        line, _, (bars,) = axis.containers[0]
        np.testing.assert_array_equal(line.get_xdata(), [0.1, 0.3, 0.5])
        np.testing.assert_array_equal(line.get_ydata(), height + np.array([0.1, 0.3, 0.5]))
        sizes = [np.ptp(bar[:, 1]) / 2 for bar in bars.get_segments()]
        np.testing.assert_allclose(sizes, line.get_ydata() / 100)


def test_a_heat_map_says_what_is_not_resolved_and_leaves_zeros_blank():
    """A cell with a bound is grey and has its bound; with colours of the logarithm, 0 is blank."""
    coords = {"gamma": [0.3, 0.1], "tau0": [1.0, 2.0]}
    values = xr.DataArray([[0.5, 0.0], [0.25, 0.125]], coords, tuple(coords))
    bound = xr.DataArray([[np.nan, 0.1], [np.nan, np.nan]], coords, tuple(coords))
    for axis, colour, texts in (
        (heat_maps(values, bound=bound).axes[0], 0.85, ["0.12", "0.25", "0.5", "≤ 0.1"]),
        (heat_maps(values, logarithmic=True).axes[0], 1.0, ["0.12", "0.25", "0.5"]),
    ):
        assert sorted(text.get_text() for text in axis.texts) == texts
        assert axis.get_facecolor()[:3] == (colour,) * 3
        masked = np.ma.getmaskarray(axis.collections[0].get_array()).reshape(2, 2)
        assert masked.tolist() == [[False, True], [False, False]]


def test_a_running_store_is_not_extended(tmp_path):
    """And a store that was extended since it was opened is not run."""
    store = Store(tmp_path / "s", small())
    with store.locked(), pytest.raises(StoreError, match="another run is writing to this store"):
        extend_sweep(tmp_path / "s", samples=40)
    extend_sweep(tmp_path / "s", samples=40)
    with store.locked(), pytest.raises(StoreError, match="has just been extended; try again"):
        store.check_current()


def test_death_at_every_moment_of_an_extension(tmp_path):
    """Before every fsync and deletion, and before and after every move of a file.

    Plain xarray opens the store as it is. What is opened next has the files of the old store, or
    those of an extension in one go.
    """
    torch.set_num_threads(1)
    extension = {"samples": 24, "axes": {"gamma": [0.7]}}
    run_sweep(small(samplers="chain"), tmp_path / "old", progress=False)
    shutil.copytree(tmp_path / "old", tmp_path / "extended")
    extend_sweep(tmp_path / "extended", **extension)
    files = [layers.contents(tmp_path / name) for name in ("old", "extended")]
    axes = [[0.3, 0.5], [0.3, 0.5, 0.7]]
    seen = []
    for k in count(1):
        path = tmp_path / f"dead{k}"
        shutil.copytree(tmp_path / "old", path)
        status = layers.in_process(layers.extend_and_die, path, extension, k)
        if status == 0:
            break
        assert status == -signal.SIGKILL
        plain = xr.open_zarr(path / "data.zarr").load()
        assert plain["gamma"].values.tolist() in axes
        done = len(Store(path).finished())
        seen.append(files.index(layers.contents(path)))
        assert done == (6, 4)[seen[-1]]
        assert not (path / "extension.json").exists()
        assert open_sweep(path).sizes["gamma"] == (2, 3)[seen[-1]]
    assert seen == sorted(seen)
    assert seen.count(0) >= 2
    assert seen.count(1) >= 15


def test_an_extension_that_is_not_finished_would_be_noticed(tmp_path, monkeypatch):
    """Negative control of the test of deaths: without the look for it, the sizes disagree.

    After a run that was cut off: blocks that were never drawn are drawn once.
    """
    assert run_sweep(small(), tmp_path / "s", seconds=1e-9, progress=False).left > 0
    Store(tmp_path / "s").announce(small(samples=40))
    with monkeypatch.context() as patched:
        patched.setattr(Store, "_finish_extension", lambda self: None)
        assert int(open_sweep(tmp_path / "s").sizes["sample"]) == 20
        with pytest.raises(StoreError, match="has just been extended"):
            resume_sweep(tmp_path / "s", progress=False)
    assert int(open_sweep(tmp_path / "s").sizes["sample"]) == 40
    for _ in range(2):
        Store(tmp_path / "s").announce(small(samples=48))
    assert finish(tmp_path / "s")[0] == new(small(samples=48), tmp_path / "new")
