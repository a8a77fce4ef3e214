"""Errors in stopping times and rare events."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FRACTIONS = "shaped_attention/statistics/proportions.py"
_RARE = "shaped_attention/statistics/rare_events.py"
_RARE_RUNS = "shaped_attention/statistics/rare_event_runs.py"
_SPLITTING = "shaped_attention/statistics/splitting.py"
_STOPPING = "shaped_attention/statistics/stopping.py"

RARE_EVENTS = [
    Mutant(
        "stopping-bounds-one-sided",
        _FRACTIONS,
        "tail = (1.0 - confidence) / 2.0",
        "tail = 1.0 - confidence",
        ("test_stopping.py::test_explosion_curve_counts_and_bounds",),
        blind=True,
    ),
    Mutant(
        "quantile-bound-one-rank-up",
        _FRACTIONS,
        "return ranked[..., below]",
        "return ranked[..., below + 1]",
        ("test_stopping.py::test_intervals_of_quantiles_cover",),
    ),
    Mutant(
        "stopping-exit-below-only",
        _STOPPING,
        "(eigenvalues[..., 0] < smallest) | (eigenvalues[..., -1] > largest)",
        "(eigenvalues[..., 0] < smallest) | (eigenvalues[..., 0] > largest)",
        ("test_stopping.py::test_exit_times_by_hand",),
        blind=True,
    ),
    Mutant(
        "stopping-map-one-seed",
        _STOPPING,
        'derived_seed(seed, {"study": "stopping_map", "gamma": gamma, "tau0": tau0})',
        'derived_seed(seed, {"study": "stopping_map"})',
        ("test_seeds.py::test_cells_of_a_map_share_no_numbers",),
    ),
    Mutant(
        "stopping-depth-rounded-down",
        _STOPPING,
        "math.ceil(width * horizon - 1e-9)",
        "math.floor(width * horizon + 1e-9)",
        ("test_stopping.py::test_chains_reach_the_horizon[10-0.25-3]",),
    ),
    Mutant(
        "splitting-ties-survive",
        _SPLITTING,
        "dead = np.flatnonzero(best <= level)\n        alive = np.flatnonzero(best > level)",
        "dead = np.argsort(best)[: rank + 1]\n        alive = np.argsort(best)[rank + 1 :]",
        ("test_rare_events.py::test_the_mean_of_many_small_runs_is_the_probability[ties-ever]",),
        hangs=True,
    ),
    Mutant(
        "splitting-parents-among-all",
        _SPLITTING,
        "weight *= len(alive) / count",
        "weight *= 1.0 - (rank + 1) / count",
        ("test_rare_events.py::test_the_mean_of_many_small_runs_is_the_probability[None-ever]",),
    ),
    Mutant(
        "splitting-branches-with-old-numbers",
        _SPLITTING,
        "self._born += len(which)",
        "self._born += 0",
        ("test_rare_events.py::test_probabilities_down_to_a_billionth[chain-3.4-ever]",),
    ),
    Mutant(
        "splitting-branches-off-after-the-end",
        _SPLITTING,
        "np.where(ended & (scores < np.inf), -np.inf, scores)",
        "scores",
        ("test_rare_events.py::test_a_path_outside_the_radius_keeps_its_value[splitting]",),
    ),
    Mutant(
        "splitting-stopped-share-of-the-killed",
        _SPLITTING,
        "        self._early[dead] = self._early[parents]\n",
        "",
        ("test_rare_events.py::test_a_path_outside_the_radius_keeps_its_value[splitting]",),
    ),
    Mutant(
        "plain-paths-stopped-in-the-last-step-count",
        _RARE_RUNS,
        'result["stopping_time"].to_numpy() < (1.0 - 1e-9) * study.spec.steps * dt',
        'np.isfinite(result["stopping_time"].to_numpy())',
        ("test_rare_events.py::test_a_path_outside_the_radius_keeps_its_value[plain]",),
    ),
    Mutant(
        "rare-event-runs-with-one-seed",
        _RARE_RUNS,
        "study.seed(run=number)",
        "study.seed(run=0)",
        ("test_rare_events.py::test_probabilities_down_to_a_billionth[chain-3.4-ever]",),
    ),
    Mutant(
        "rare-event-interval-of-a-run",
        _RARE,
        "/ math.sqrt(count)",
        "/ count",
        ("test_rare_event_runs.py::test_the_interval_is_that_of_the_mean_of_runs",),
    ),
    Mutant(
        "rare-event-barrier-on-the-grid",
        _RARE,
        "(shift if above else -shift)",
        "0.0 * shift",
        ("test_rare_event_clock.py::test_passing_the_level_between_steps_counts",),
    ),
    Mutant(
        "upper-bound-of-a-proportion-from-k",
        "shaped_attention/statistics/proportions.py",
        "betainccinv(k + 1.0, np.maximum(n - k, 1.0), tail)",
        "betainccinv(k, np.maximum(n - k, 1.0), tail)",
        (
            "test_rare_events.py",
            "test_stopping.py",
            "test_sphere_phase.py",
        ),
        blind=True,
    ),
    Mutant(
        "hits-counted-once-a-batch",
        "shaped_attention/statistics/rare_event_runs.py",
        "hits += int(event.sum())",
        "hits += int(event.any())",
        (
            "test_rare_event_runs.py",
            "test_rare_events.py",
        ),
        blind=True,
    ),
]
