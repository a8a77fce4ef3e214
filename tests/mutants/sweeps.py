"""Errors in sweeps: seeds and units, what counts as finished, what a file may say, summaries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CELLS = "shaped_attention/sweep/cells.py"
_DATA = "shaped_attention/sweep/data.py"
_FILE = "shaped_attention/sweep/file.py"
_READING = "shaped_attention/sweep/reading.py"
_RUN = "shaped_attention/sweep/run.py"
_SPECIFICATION = "shaped_attention/sweep/specification.py"
_FILES = "test_sweep_file.py"
_RUNS = "test_sweep_run.py"
_SPECIFICATIONS = "test_sweep_specification.py"
_PURE = f"{_SPECIFICATIONS}::test_a_unit_depends_on_values_and_not_on_places"

SWEEPS = [
    Mutant(
        "sweep-blocks-share-a-seed",
        _SPECIFICATION,
        "self._hashes[unit.cell], unit.block)",
        "self._hashes[unit.cell], 0)",
        (_PURE,),
    ),
    Mutant(
        "sweep-seed-of-the-place-in-the-grid",
        _SPECIFICATION,
        "hashed(DEFAULTS | each(named, self._values(unit.cell)))",
        'hashed({"cell": unit.cell})',
        (_PURE,),
    ),
    Mutant(
        "sweep-grows-at-any-end-of-an-axis",
        _SPECIFICATION,
        'mine["axes"].get(name, [])[: len(values)]',
        'mine["axes"].get(name, [])[-len(values) :]',
        (f"{_RUNS}::test_a_file_grows_into_a_larger_sweep",),
    ),
    Mutant(
        "sweep-digest-of-the-data-alone",
        _FILE,
        "return bool(row[-1] == digest_of(self._seal(row[1]), *row[:-1]))",
        "return bool(row[-1] == digest_of(self._seal(row[1]), *row[:-1]) or row[4] == 7.0)",
        (f"{_FILES}::test_damaged_units_are_drawn_again",),
    ),
    Mutant(
        "sweep-a-second-writer-may-come",
        _FILE,
        '        self._db.execute("COMMIT")\n        self._db.execute("BEGIN IMMEDIATE")',
        '        self._db.execute("COMMIT")',
        (f"{_RUNS}::test_two_runs_do_not_mix",),
    ),
    Mutant(
        "sweep-samples-of-the-first-block-again",
        _READING,
        "span = slice(unit.block * sweep.block, unit.block * sweep.block + unit.samples)",
        "span = slice(0, unit.samples)",
        ("test_sweep_reading.py::test_a_dataset_has_the_samples_of_the_samplers",),
    ),
    Mutant(
        "sweep-interval-of-a-sample",
        _READING,
        "* deviation / np.sqrt(counted)",
        "* deviation",
        ("test_sweep_reading.py::test_summaries_are_those_of_the_samples",),
    ),
]
