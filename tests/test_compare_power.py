"""Power and false alarms of the verdict of `compare`, on chains that differ by 3 % in gamma."""

from __future__ import annotations

import pytest
import xarray as xr

import shaped_attention as sa
from shaped_attention.statistics.distances import ks_margin

V0 = sa.equicorrelated(3, 0.2)


def chain(gamma: float, seed: int) -> xr.Dataset:
    return sa.simulate_chain(
        sa.ShapedAttention(gamma), V0, width=100, depth=50, samples=6000, seed=seed, progress=False
    )


@pytest.mark.parametrize(
    ("pairs", "fewest", "most"),
    [(8, 4, 3), pytest.param(200, 160, 19, marks=pytest.mark.validation)],
)
def test_a_small_difference_is_resolved_and_none_is_not(pairs: int, fewest: int, most: int) -> None:
    """gamma = 0.5 against 0.515, and against itself, with the seeds s and 1000 + s, s = 0, 1, ...

    The power is 0.84: of 8 pairs fewer than 4 are resolved with probability 0.4 %, and a power of
    0.2 gives 4 or more with 6 %. The many pairs show a power of at least 0.8: 165 are resolved, of
    the first 40 29. Of equal laws at most 5 % are resolved, hence more than 3 of 8, or 19 of 200,
    with probability below 0.3 %; it is 5 of 200.

    Negative control: simultaneous bands, which hold for any two laws, exclude 0 in less than half
    of the pairs that are resolved.
    """
    resolved, alarms, bands = 0, 0, 0
    for s in range(pairs):
        first, other, same = chain(0.5, s), chain(0.515, 1000 + s), chain(0.5, 1000 + s)
        found, none = (sa.compare(first, x, permutations=99) for x in (other, same))
        assert f"{found.attrs['smallest_resolvable_ks']:.3f}" == "0.032"
        for table in (found, none):
            least = 0.05 / table.attrs["tests"]
            assert bool(table["resolved"].any()) == (float(table["p_value"].min()) <= least)
            assert table.attrs["verdict"].startswith("Resolved") == bool(table["resolved"].any())
        resolved += bool(found["resolved"].any())
        alarms += bool(none["resolved"].any())
        margin = ks_margin(6000, 6000, 1.0 - 0.05 / found.attrs["tests"])
        bands += bool((found["ks"] > margin).any())
    assert resolved >= fewest
    assert alarms <= most
    assert bands < 0.5 * resolved
