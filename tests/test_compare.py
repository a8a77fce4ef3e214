"""`compare`: what is resolved and what is not, stopped laws, the verdict and its table."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from shaped_attention import ShapedAttention, equicorrelated, integrate_sde, simulate_chain
from shaped_attention.numerics.observables import observables
from shaped_attention.statistics.compare import compare
from shaped_attention.statistics.comparison_text import format_comparison
from shaped_attention.statistics.distances import ks_distance, ks_margin, least_resolved_ks
from shaped_attention.statistics.proportions import equality_p_value
from tests.refusals import refused


def made(
    seed: int,
    samples: int = 300,
    tokens: int = 3,
    *,
    times: tuple[float, ...] = (0.0, 0.5, 0.75),
    scale: float = 1.0,
    shared: float = 0.0,
    stopped: float = 0.0,
    dtype: str = "float64",
) -> xr.Dataset:
    """A stand-in for a sampler's result: Wishart covariances at every time."""
    rng = np.random.default_rng(seed)
    shape = (len(times), samples, tokens, 20)
    factor = rng.normal(size=shape) + shared * rng.normal(size=(*shape[:2], 1, 20))
    V = scale * (factor @ np.swapaxes(factor, -1, -2)) / 20
    stops = np.where(rng.random(samples) < stopped, rng.uniform(0, times[-1], samples), np.inf)
    return xr.Dataset(
        {
            "V": (("time", "sample", "row", "col"), V.astype(dtype)),
            "stopping_time": ("sample", stops),
        },
        coords={"time": list(times)},
    )


def quick(first: xr.Dataset, second: xr.Dataset, **options: Any) -> xr.Dataset:
    return compare(first, second, **{"permutations": 99, **options})


def test_equal_laws_are_not_resolved() -> None:
    tables = [quick(made(2 * k), made(2 * k + 1), seed=k) for k in range(20)]
    assert sum(bool(t["resolved"].any()) for t in tables) <= 1
    assert all((t["ks_low"] == 0).mean() > 0.7 for t in tables)
    assert np.mean([float(t["joint_p_value"]) <= 0.05 for t in tables]) <= 0.2
    verdict = tables[0].attrs["verdict"]
    assert verdict.startswith("Not resolved: with 300 and 300 samples")
    assert f"distances below {least_resolved_ks(300, 300, 0.05 / 11):.3f} cannot be" in verdict
    assert " corrected for 11 tests; " in verdict


def test_a_difference_of_scale_is_resolved_where_it_is() -> None:
    table = quick(made(1, 2000), made(2, 2000, scale=1.2))
    resolved = table["observable"].to_numpy()[table["resolved"].to_numpy()].tolist()
    assert {"log V[0,0]", "log det V", "log trace V"} <= set(resolved)
    assert not {"rho[0,1]", "effective rank", "stopping time"} & set(resolved)
    assert float(table["joint_p_value"]) == 0.01
    verdict = table.attrs["verdict"]
    assert verdict.startswith("Resolved: with 2000 and 2000 samples, at simultaneous confidence")
    assert "The joint test detects the difference too (p = 0.01)." in verdict
    assert f"The largest KS distance is {float(table['ks'].max()):.3f} (log trace V)" in verdict


def test_a_difference_that_only_the_joint_test_sees_is_said() -> None:
    names = ["rho[0,1]", "rho[0,2]", "rho[1,2]"]
    table = quick(made(1, 1500), made(2, 1500, shared=0.11), observables=names)
    assert not table["resolved"].any()
    assert float(table["joint_p_value"]) <= 0.05
    up_to = float(table["ks"].max()) + ks_margin(1500, 1500, 1 - 0.05 / 3)
    open_up_to = f"an observable may differ by up to {min(1.0, up_to):.3f} in the KS"
    assert open_up_to in table.attrs["verdict"]


def test_results_that_differ_by_what_was_asked_for_are_reported() -> None:
    """In the verdict, in what is printed and as an attribute; like results have none of it."""
    block, v0 = ShapedAttention(gamma=0.35), equicorrelated(2, 0.2)
    run: dict[str, Any] = {"horizon": 0.5, "step": 0.25, "samples": 20}
    first = integrate_sde(block, v0, seed=1, **run)
    chain = simulate_chain([block], v0 * (1 + 1e-12), width=8, depth=4, samples=20, seed=1)
    common = ("independent", "same_start", "same_layer", "same_radius")
    same = quick(first, chain)
    assert [same.attrs[name] for name in common] == [1, 1, 1, 1]
    assert "NOTE" not in same.attrs["verdict"]
    for other, note, attribute in (
        (equicorrelated(2, 0.3), "start from different covariances", "same_start"),
        ([block, block], "have different layers", "same_layer"),
        (1.5, "stop at different radii", "same_radius"),
    ):
        layer = other if isinstance(other, list) else block
        start = other if isinstance(other, np.ndarray) else v0
        radius = other if isinstance(other, float) else None
        table = quick(first, integrate_sde(layer, start, seed=2, radius=radius, **run))
        assert table.attrs["verdict"].endswith(f" NOTE: the results {note}.")
        assert f"NOTE: the results {note}." in " ".join(format_comparison(table).split())
        assert [table.attrs[name] for name in common] == [int(x != attribute) for x in common]


def test_resolution_pays_for_the_number_of_observables() -> None:
    """The verdict is that of the p-values, times the number of tests."""
    first, second = made(1, 500), made(2, 500, scale=1.04)
    names = [*observables(first["V"][-1])]
    alone = quick(first, second, observables="log V[0,0]")
    among = quick(first, second, observables=names)
    for table, count in ((alone, 1), (among, len(names))):
        least = least_resolved_ks(500, 500, 0.05 / count)
        assert table.attrs["smallest_resolvable_ks"] == pytest.approx(least)
    assert (alone.attrs["tests"], among.attrs["tests"]) == (1, len(names))
    one = among.sel(observable="log V[0,0]")
    assert float(one["p_value"]) == float(alone["p_value"][0])
    assert 0.05 / len(names) < float(one["p_value"]) <= 0.05
    assert bool(alone["resolved"][0])
    assert not bool(one["resolved"])
    for table in (alone, among):
        reached = table["ks"] >= table.attrs["smallest_resolvable_ks"]
        assert table["resolved"].equals(reached)


def test_stopped_laws_are_compared() -> None:
    first, second = made(1, 1000), made(2, 1000, stopped=0.4)
    late, early = quick(first, second), quick(first, second, time=0.5)
    assert bool(late["resolved"].sel(observable="stopping time"))
    stops = second["stopping_time"].to_numpy()
    assert float(late["stopped_second"]) == np.mean(stops <= 0.75)
    assert float(early["stopped_second"]) == np.mean(stops <= 0.5)
    assert float(late["stopped_first"]) == 0.0
    row = early.sel(observable="stopping time")
    assert float(row["q95_first"]) == float(row["q95_second"]) == 0.5


def stopping(stopped: int) -> xr.Dataset:
    """Of 200 paths, some that stop at random times, all with the law of `made`."""
    times = np.random.default_rng(2).uniform(0.0, 0.75, stopped)
    return made(2, 200).assign(stopping_time=("sample", [*times, *[np.inf] * (200 - stopped)]))


def test_rare_stops_are_resolved_by_their_fraction() -> None:
    """0 of 200 against 19: the KS distance of 0.1 is far below the least that is resolved.

    Negative control: 4 of 200 (p = 0.12) are not.
    """
    table, few = quick(made(1, 200), stopping(19)), quick(made(1, 200), stopping(4))
    row = table.sel(observable="stopping time")
    assert bool(row["resolved"])
    assert int(table["resolved"].sum()) == 1
    assert float(row["ks"]) < table.attrs["smallest_resolvable_ks"]
    assert float(table["stopped_p_value"]) == pytest.approx(fisher(0, 19, 200), rel=1e-9)
    said = "1 of 12 observables (stopping time). The fractions stopped, 0.00% and 9.50%, differ"
    assert said in table.attrs["verdict"]
    assert not few["resolved"].any()
    assert float(few["stopped_p_value"]) == pytest.approx(fisher(0, 4, 200), rel=1e-9)


def fisher(first: int, second: int, count: int) -> float:
    """The p-value from the hypergeometric law: as improbable as what was seen, or less probable."""
    total = first + second
    law = [math.comb(count, k) * math.comb(count, total - k) for k in range(total + 1)]
    return sum(x for x in law if x <= law[first]) / math.comb(2 * count, total)


def test_fractions_of_equal_laws_are_resolved_at_their_level() -> None:
    """Of all pairs of counts, by their exact law; fractions that differ are resolved."""
    count, level = 60, 0.05 / 13
    counts = np.arange(count + 1)
    p_values = [
        [equality_p_value((int(a), int(b)), (count, count)) for b in counts] for a in counts
    ]
    rejected = np.array(p_values) <= level
    for fraction in (0.03, 0.2, 0.5):
        law, other = (stats.binom(count, x).pmf(counts) for x in (fraction, fraction + 0.35))
        assert law @ rejected @ law <= level
        assert law @ rejected @ other > 0.8


def test_rounding_is_not_a_difference_of_laws() -> None:
    """The same paths in single precision, with a repeated token so that V is singular."""
    double = made(1, 400)
    V = double["V"].to_numpy().copy()
    V[:, :, 1], V[:, :, :, 1] = V[:, :, 0], V[:, :, :, 0]
    V[:, :, 1, 1] = V[:, :, 0, 0]
    double["V"] = double["V"].dims, V
    single = double.assign(V=double["V"].astype(np.float32))
    assert float(quick(double, single)["ks"].max()) < 0.02
    careless = [observables(r["V"].to_numpy()[-1])["log det V"] for r in (double, single)]
    assert ks_distance(*careless).distance > 0.5
    computed = single.assign(V=single["V"].astype(np.float64))
    computed.attrs["specification"] = json.dumps({"dtype": "float32"})
    assert float(quick(double, computed)["ks"].max()) < 0.02


def test_any_token_can_be_asked_for_by_name() -> None:
    names = ["rho[2,8]", "log V[8,8]", "stopping time"]
    table = quick(made(1, 20, 11), made(2, 20, 11), observables=names)
    assert table["observable"].to_numpy().tolist() == names


def test_format_is_readable() -> None:
    """It has the numbers of the table, the verdict, and of many correlations the farthest."""
    table = quick(made(1, 50, 8), made(2, 50, 8, scale=1e4, stopped=0.2))
    lines = format_comparison(table).splitlines()
    assert max(map(len, lines)) <= 110
    assert len(lines) < 45
    text = "\n".join(lines)
    assert " ".join(text.split()).endswith(table.attrs["verdict"])
    row = table.sel(observable="log trace V")
    line = next(s for s in lines if s.startswith("log trace V"))
    ks, low, high = (float(row[k]) for k in ("ks", "ks_low", "ks_high"))
    assert f" {ks:.3f} [{low:.3f},{high:.3f}]" in line
    assert line.endswith("*") == bool(row["resolved"])
    shown = [line.split()[0] for line in lines if line.startswith("rho[")]
    pairs = table.isel(observable=table["observable"].str.startswith("rho"))
    assert len(shown) == 8
    rest = pairs.drop_sel(observable=shown)
    assert float(pairs.sel(observable=shown)["ks"].min()) >= float(rest["ks"].max())


test_refused_settings = refused(
    ({"confidence": 1.0}, r"confidence must be in \(0, 1\); got 1.0"),
    ({"observables": "log det v"}, r"observables must be one of .*\(did you mean 'log det V'\?\)$"),
    ({"time": 0.6}, r"time must be one of those saved in .*\[0, 0\.5, 0\.75\]; got 0\.6"),
    by=lambda options: quick(made(1, 10), made(2, 10), **options),
)


test_refused_results = refused(
    (lambda: compare(made(1, 10), made(2, 10, 4)), "the same number of tokens; got 3 and 4"),
    (
        lambda: compare(made(1, 10), made(2, 10, times=(0.1, 0.2))),
        r"no time in common; they have \[0, 0\.5, 0\.75\] and",
    ),
    (lambda: format_comparison(made(1, 10)), r"^table must be a result of compare; got a"),
)
