"""Errors in sweeps: seeds of units, what is counted, and the summaries of cells."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_READING = "shaped_attention/sweep/reading.py"
_UNITS = "shaped_attention/sweep/work_units.py"
_WORK_ORDER = "shaped_attention/sweep/work_order.py"

SWEEPS = [
    Mutant(
        "sweep-blocks-share-a-seed",
        _UNITS,
        "derived_seed(sweep.seed, values, unit.block)",
        "derived_seed(sweep.seed, values, 0)",
        ("test_sweep.py::test_a_unit_is_a_pure_function[0-observables]",),
        blind=True,
    ),
    Mutant(
        "sweep-seed-of-the-place-in-the-grid",
        _UNITS,
        "values = DEFAULTS | sweep.values(sweep.index(unit.cell))",
        'values = {"cell": unit.cell}',
        ("test_sweep.py::test_a_cell_has_the_same_numbers_in_every_grid[axes1-3]",),
        blind=True,
    ),
    Mutant(
        "sweep-stopping-bins-open-on-the-right",
        _UNITS,
        "np.ceil(finite / horizon * STOPPING_BINS - 1e-6) - 1",
        "np.floor(finite / horizon * STOPPING_BINS + 1e-6)",
        ("test_sweep_summaries.py::test_summaries_are_those_of_the_values[0.95]",),
        blind=True,
    ),
    Mutant(
        "sweep-half-of-an-asymmetric-interval",
        _WORK_ORDER,
        "np.fmax(high - m, m - low)",
        "0.5 * (high - low)",
        ("test_sweep_summaries.py::test_intervals_of_fractions_are_exact[0-40000]",),
        blind=True,
    ),
    Mutant(
        "sweep-last-block-counted-as-full",
        _READING,
        "= sweep.block_samples(unit.block)",
        "= sweep.block",
        ("test_sweep_reading.py::test_counts_are_whole_numbers",),
        blind=True,
    ),
]
