"""Errors in stopping times."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FRACTIONS = "shaped_attention/statistics/proportions.py"
_STOPPING = "shaped_attention/statistics/stopping.py"

STOPPING = [
    Mutant(
        "stopping-bounds-one-sided",
        _FRACTIONS,
        "tail = (1.0 - confidence) / 2.0",
        "tail = 1.0 - confidence",
        ("test_stopping.py::test_explosion_curve_counts_and_bounds",),
    ),
    Mutant(
        "stopping-exit-below-only",
        _STOPPING,
        "(eigenvalues[..., 0] < smallest) | (eigenvalues[..., -1] > largest)",
        "(eigenvalues[..., 0] < smallest) | (eigenvalues[..., 0] > largest)",
        ("test_stopping.py::test_exit_times_by_hand",),
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
        "upper-bound-of-a-proportion-from-k",
        "shaped_attention/statistics/proportions.py",
        "betainccinv(k + 1.0, np.maximum(n - k, 1.0), tail)",
        "betainccinv(k, np.maximum(n - k, 1.0), tail)",
        ("test_stopping.py::test_explosion_curve_counts_and_bounds",),
    ),
]
