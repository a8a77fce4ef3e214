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
        "sweep-last-block-counted-as-full",
        _SPECIFICATION,
        "min(self.block, self.samples - block * self.block)",
        "self.block",
        ("test_sweep_reading.py::test_a_dataset_has_the_samples_of_the_samplers",),
    ),
    Mutant(
        "sweep-grows-at-any-end-of-an-axis",
        _SPECIFICATION,
        'mine["axes"].get(name, [])[: len(values)]',
        'mine["axes"].get(name, [])[-len(values) :]',
        (f"{_RUNS}::test_a_file_grows_into_a_larger_sweep",),
    ),
    Mutant(
        "sweep-takes-any-specification",
        _FILE,
        "if sweep and (differing := sweep.differing(held)):",
        "if differing := []:",
        (f"{_RUNS}::test_a_file_grows_into_a_larger_sweep",),
    ),
    Mutant(
        "sweep-specification-without-its-digest",
        _FILE,
        "if digest != digest_of(text):",
        "if False:",
        (f"{_FILES}::test_a_lost_specification_is_that_of_the_toml_file",),
    ),
    Mutant(
        "sweep-digest-of-the-data-alone",
        _FILE,
        "return bool(row[-1] == digest_of(self._seal(row[1]), *row[:-1]))",
        "return bool(row[-1] == digest_of(self._seal(row[1]), *row[:-1]) or row[4] == 7.0)",
        (f"{_FILES}::test_damaged_units_are_drawn_again",),
    ),
    Mutant(
        "sweep-damaged-units-are-finished",
        _RUN,
        "records in file.units() if records is not None}",
        "records in file.units()}",
        (f"{_FILES}::test_damaged_units_are_drawn_again",),
    ),
    Mutant(
        "sweep-decompresses-whatever-comes",
        _DATA,
        "raw = stream.decompress(data, size + 1)",
        "raw = stream.decompress(data)[: size + 1]",
        (f"{_FILES}::test_sizes_are_checked_before_anything_grows",),
    ),
    Mutant(
        "sweep-any-schema",
        _FILE,
        "if tables != {",
        "if not tables and tables != {",
        (f"{_FILES}::test_another_schema_is_refused",),
    ),
    Mutant(
        "sweep-follows-a-journal-of-others",
        _FILE,
        "return file.read(8) != _JOURNAL_OF_OTHERS",
        "return True",
        (f"{_FILES}::test_other_files_and_their_journals_are_refused",),
    ),
    Mutant(
        "sweep-imports-what-a-file-names",
        _CELLS,
        "if names_code(value):",
        "if name == 'layer' and names_code(value):",
        (f"{_FILES}::test_nothing_that_a_stranger_names_is_imported",),
    ),
    Mutant(
        "sweep-a-second-writer-may-come",
        _FILE,
        '        self._db.execute("COMMIT")\n        self._db.execute("BEGIN IMMEDIATE")',
        '        self._db.execute("COMMIT")',
        (f"{_RUNS}::test_two_runs_do_not_mix",),
    ),
    Mutant(
        "sweep-changed-code-is-the-same",
        "shaped_attention/sweep/units.py",
        "if before[name] != now[name]",
        "if not before[name]",
        (f"{_RUNS}::test_changed_code_is_refused_or_recorded",),
    ),
    Mutant(
        "sweep-neighbours-of-a-death-are-given-up",
        _RUN,
        "(1 if self.again or died else self.most)",
        "self.most",
        (f"{_RUNS}::test_a_unit_that_kills_its_worker_is_found",),
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
    Mutant(
        "record-names-code-in-lists",
        "shaped_attention/results/plain_arguments.py",
        "return [decoded(x, result, blocks) for x in value]",
        "return [x if isinstance(x, str) else decoded(x, result, blocks) for x in value]",
        ("test_records.py::test_nothing_is_imported_because_a_file_names_it[a list]",),
    ),
    Mutant(
        "record-takes-any-name-of-a-block",
        "shaped_attention/results/plain_arguments.py",
        "if not (isinstance(kind, type) and issubclass(kind, Block)):",
        "if kind is None:",
        ("test_records.py::test_a_name_of_this_package_is_that_of_its_own_block",),
    ),
]
