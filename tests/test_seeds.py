"""Seeds of cells, widths and models: keyed, so that no two parts of a study share numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.numerics.seeds import derived_seed
from shaped_attention.statistics import rates, stopping
from shaped_attention.statistics.stopping import explosion_table, stopping_map

BLOCK, V0 = sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2)


def test_derived_seeds_are_keyed_by_seed_values_and_integers():
    """1,000 of them are different; neither the order of the values nor their type matters."""
    keys = itertools.product(range(10), range(10), (0.5, 1.0, 2.0, 3.0, 4.0), (0, 1))
    found = {derived_seed(s, {"study": "test", "a": a, "b": b}, i) for s, a, b, i in keys}
    assert len(found) == 1000
    assert min(found) >= 0
    assert max(found) < 2**63
    one = derived_seed(3, {"a": 1, "b": 2.5})
    assert one == derived_seed(np.int64(3), {"b": np.float64(2.5), "a": np.int64(1)})
    assert one == derived_seed(3, {"a": 1.0, "b": 2.5})
    assert one != derived_seed(3, {"a": 2.5, "b": 1})
    with pytest.raises(ValueError, match=r"seed must be an integer >= 0; got -1"):
        derived_seed(-1, {})


def cells(seed, gammas, tau0s, width=20):
    """Exit times (sampler, gamma, tau0, sample) from a narrow range, so that most paths leave."""
    start = sa.equicorrelated(2, 0.2, 100.0)
    return stopping_map(
        start, gammas, tau0s, width=width, samples=20, step=0.05, seed=seed,
        smallest=40.0, largest=250.0,
    )["exit_time"].values  # fmt: skip


def test_cells_of_a_map_share_no_numbers():
    """Cells with next to the same parameters would give the same times from the same numbers.

    Nor is a cell that of its neighbour at the next seed; it is the same cell in every grid.
    """
    near = [0.5, 0.5 * (1 + 1e-12)]
    times = cells(0, near, [40.0, 40.0 * (1 + 1e-12)]).reshape(2, 4, 20)
    following = cells(1, near, [40.0, 40.0 * (1 + 1e-12)]).reshape(2, 4, 20)
    for sampler in range(2):
        rows = {row.tobytes() for row in (*times[sampler], *following[sampler])}
        assert len(rows) == 8
        assert len(np.unique(times[sampler, 0])) > 3
    np.testing.assert_array_equal(cells(0, [0.7, 0.5], [40.0])[:, 1, 0], times[:, 0])


STUDIES = {
    "map": lambda seed: stopping_map(V0, [0.1, 0.2], [1.0, 2.0], width=10, samples=2, step=0.1,
                                     seed=seed),
    "curves": lambda seed: explosion_table(BLOCK, V0, (10, 20), step=0.05, samples=2, seed=seed),
    "distances": lambda seed: sa.distances_by_width(BLOCK, V0, (8, 16), samples=2, seed=seed),
}  # fmt: skip


def seeds_of(study, monkeypatch):
    """The seeds with which a study calls each sampler, at the seeds 0, 1 and 2 of the study."""
    used: dict[str, list[int]] = {"simulate_chain": [], "integrate_sde": []}

    def spied(name):
        sampler = getattr(sa, name)

        def sample(*arguments, **options):
            used[name].append(options["seed"])
            return sampler(*arguments, **options)

        return sample

    for module, name in itertools.product((stopping, rates), used):
        monkeypatch.setattr(module, name, spied(name))
    for seed in range(3):
        study(seed)
    return used


@pytest.mark.parametrize("name", STUDIES)
def test_no_two_runs_of_a_sampler_have_one_seed(name, monkeypatch):
    """Over the cells of a study and three seeds of it; `seed` plus a number would repeat them."""
    used = seeds_of(STUDIES[name], monkeypatch)
    assert len(used["simulate_chain"]) >= 6
    for seeds in used.values():
        assert len(set(seeds)) == len(seeds)
