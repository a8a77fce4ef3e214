"""Calls of `rare_event`: files of finished runs, bad input, runs without a survivor."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.io.records import append_records, read_records
from shaped_attention.samplers.specification import Options, specify
from shaped_attention.statistics import rare_event_runs, rare_events
from shaped_attention.statistics.rare_event_runs import Study, plain_run
from shaped_attention.statistics.reaction import Reaction
from tests.test_rare_events import CHAIN, COMMON, PAIR_V0


def test_an_interrupted_call_continues_where_it_was(tmp_path, monkeypatch):
    """Finished runs are not repeated, and the result is that of one call; so with more runs."""
    store = tmp_path / "runs"
    whole = sa.rare_event(**COMMON, **CHAIN)
    original, count = rare_event_runs.split, []

    def interrupted(*arguments):
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(rare_event_runs, "split", interrupted)
    monkeypatch.setattr(rare_event_runs, "thread_count", lambda place: 1)
    with pytest.raises(KeyboardInterrupt):
        sa.rare_event(**COMMON, **CHAIN, store=store)
    assert len(store.read_text().splitlines()) == 3  # The call, and two runs.
    resumed = sa.rare_event(**COMMON, **CHAIN, store=store)
    assert len(count) == 5
    assert resumed.equals(whole)
    more = sa.rare_event(**COMMON | {"runs": 5}, **CHAIN, store=store)
    assert len(count) == 6
    assert np.array_equal(more.run_probability[:4], whole.run_probability)


def test_a_torn_file_loses_its_last_run_alone(tmp_path):
    """As after a crash while it was written."""
    store = tmp_path / "runs"
    whole = sa.rare_event(**COMMON, **CHAIN, store=store)
    store.write_bytes(store.read_bytes()[:-20])
    assert sa.rare_event(**COMMON, **CHAIN, store=store).equals(whole)


def test_runs_in_a_file_are_known_by_their_numbers(tmp_path):
    """In any order, as threads finish them, and without one of them."""
    store = tmp_path / "runs"
    whole = sa.rare_event(**COMMON, **CHAIN, store=store)
    call, *runs = read_records(store)
    runs.sort(key=lambda record: record["run"])
    store.unlink()
    append_records(store, [call, *runs[:0:-1]])
    assert sa.rare_event(**COMMON, **CHAIN, store=store).equals(whole)


def test_plain_paths_of_all_blocks_are_different():
    """Thirty paths, for which there is memory in blocks of ten; the event is V_11 <= 1."""
    seen = []

    def value(v):
        seen.append(v)
        return v[:, 0, 0]

    spec = specify(
        sa.ShapedAttention(0.5), PAIR_V0, width=16, steps=12, dt=1 / 16, samples=10, seed=3,
        options=Options(radius=1000000.0, memory=10 * 16 * 4),
    )  # fmt: skip
    reaction = Reaction(value, 1.0, above=False, at_end=True, horizon=0.75, gap=lambda v, x: x)
    found = plain_run(Study(spec, 16), 5, 30, reaction)
    assert [len(v) for v in seen] == [10, 10, 10]
    firsts = np.concatenate(seen)[:, 0, 0]
    assert len(np.unique(firsts)) == 30
    assert (found.hits, found.probability) == ((firsts <= 1.0).sum(), (firsts <= 1.0).mean())
    assert found.steps == 30 * 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": math.nan}, "level must be a finite number; got nan"),
        ({"level": -1.0}, "level must be positive and finite; got -1.0"),
        ({"level": 1.0}, "level must be above the value of v0, 1.6; got 1.0"),
        ({"when": "evr"}, "when must be one of ever, end; got 'evr' .did you mean 'ever'"),
        ({"observable": "rho[1,0]"}, "did you mean 'rho.0,1.'"),
        (
            {"observable": "nowhere:f"},
            "observable must be a name, 'module:function' or a f.*; got 'nowhere:f'",
        ),
        ({"observable": lambda v: v}, "observable must return numbers .*; got shape .1, 2, 2."),
        ({"coordinate": "nowhere:f"}, "coordinate must be .*; got 'nowhere:f'"),
        ({"observable": "norm", "radius": 8.0}, "radius must be above 32 for level=8.0; got 8.0"),
        ({"replicas": 7}, "replicas must be an integer >= 8; got 7"),
        ({"runs": 1}, "runs must be an integer >= 2; got 1"),
        ({"confidence": 1.0}, "confidence must be in .0, 1.; got 1.0"),
        ({"memory": 15_000}, "replicas must be <= 24, which fit into 15000 bytes; got 50"),
        ({"depth": None}, "rare_event takes a horizon, "),
        ({"width": None}, "rare_event takes a horizon, "),
        ({"step": 0.1}, "or a width and a depth$"),
        ({"method": "euler"}, "method must be one of clock, direct; got 'euler'"),
        ({"v0": np.stack([PAIR_V0] * 50)}, "^v0 must be a matrix .m, m.; got"),
    ],
)
def test_bad_input(change, message):
    """One sentence that names the argument."""
    with pytest.raises(ValueError, match=message):
        sa.rare_event(**COMMON | CHAIN | change)


def test_the_store_of_another_call_is_refused(tmp_path):
    """And so is a file of something else, or a folder."""
    store = tmp_path / "runs"
    sa.rare_event(**COMMON, **CHAIN, store=store)
    with pytest.raises(ValueError, match="runs of a call with another level; got"):
        sa.rare_event(**COMMON | {"level": 9.0}, **CHAIN, store=store)
    with pytest.raises(ValueError, match="store must be a file, not a folder; got"):
        sa.rare_event(**COMMON, **CHAIN, store=tmp_path)
    store.write_text("something")
    with pytest.raises(ValueError, match="store must be a file from rare_event, or a new one; got"):
        sa.rare_event(**COMMON, **CHAIN, store=store)
    assert store.read_text() == "something"


def test_runs_without_a_survivor_are_reported():
    """An impossible event has the interval of plain Monte Carlo, from 0."""
    with pytest.warns(UserWarning, match="4 of 4 runs lost all replicas before the event"):
        result = sa.rare_event(
            sa.ShapedAttention(0.0), PAIR_V0, "u", 8.0, **CHAIN, replicas=50, runs=4, progress=False
        )
    assert float(result.probability) == 0.0
    lower, upper = result.interval.to_numpy()
    assert lower == 0.0
    assert upper == pytest.approx(1.0 - 0.025 ** (1 / 200))


def test_the_interval_is_that_of_the_mean_of_runs():
    """Student's for the mean, and the delta method; the quantile is t_3(0.975) = 3.1824."""
    estimates = np.array([0.9, 1.0, 1.1, 1.4]) * 1e-6
    lower, upper = rare_events.interval_of(estimates, 0, 100, 0.95)
    half = 3.182446 * estimates.std(ddof=1) / math.sqrt(4) / estimates.mean()
    assert lower == pytest.approx(estimates.mean() * math.exp(-half), rel=1e-6)
    assert upper == pytest.approx(estimates.mean() * math.exp(half), rel=1e-6)
