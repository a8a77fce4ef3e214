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
        "stopping-depth-rounded-down",
        _STOPPING,
        "math.ceil(width * horizon - 1e-9)",
        "math.floor(width * horizon + 1e-9)",
        ("test_stopping.py::test_chains_reach_the_horizon[10-0.25-3]",),
    ),
]
