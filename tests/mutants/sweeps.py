"""Errors in sweeps: seeds of units, what is counted, stores, and the summaries of cells."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_READING = "shaped_attention/sweep/reading.py"
_UNITS = "shaped_attention/sweep/work_units.py"
_WORK_ORDER = "shaped_attention/sweep/work_order.py"

_STORE = "shaped_attention/sweep/store.py"
_ARRAYS = "shaped_attention/sweep/store_arrays.py"
_LEDGER = "shaped_attention/sweep/store_records.py"
_LOOP = "shaped_attention/sweep/run_loop.py"
_DAMAGE = "test_sweep_damage.py"
_PROGRESS = "test_sweep_progress.py"

SWEEPS = [
    Mutant(
        "store-lost-files-count-as-there",
        _STORE,
        "lost = self.ledger.missing() if lost is None else lost",
        "lost = () if lost is None else lost",
        (f"{_DAMAGE}::test_units_of_lost_files_are_not_finished",),
    ),
    Mutant(
        "store-damage-of-the-first-file-only",
        _ARRAYS,
        "if not any(ledger.matches(name",
        "if not lost and not any(ledger.matches(name",
        (f"{_DAMAGE}::test_chunks_in_each_others_place_are_noticed",),
    ),
    Mutant(
        "store-resumes-without-looking-for-damage",
        "shaped_attention/sweep/run.py",
        "if lost := store.arrays.damaged():",
        "if lost := store.ledger.missing():",
        (f"{_DAMAGE}::test_every_file_is_watched_and_mended[flipped]",),
    ),
    Mutant(
        "store-takes-any-specification",
        _STORE,
        "if not self.ledger.matches(SPECIFICATION, (self.path / SPECIFICATION).read_bytes()):",
        "if False:",
        (f"{_DAMAGE}::test_a_store_without_its_parts_says_so[edited]",),
    ),
    Mutant(
        "store-keeps-all-checksums-of-a-file",
        _LEDGER,
        "self._sums |= {name: (entry,) for name, entry in pending.items()}",
        "pass",
        (f"{_DAMAGE}::test_an_older_version_of_a_file_is_noticed",),
    ),
    Mutant(
        "sweep-units-drawn-without-the-package-digest",
        "shaped_attention/sweep/code_identity.py",
        'modules = {"shaped_attention": sources_digest()}',
        "modules: dict[str, str] = {}",
        ("test_sweep_code.py::test_an_edit_of_the_package_is_refused",),
    ),
    Mutant(
        "sweep-cheapest-cells-first",
        _WORK_ORDER,
        "np.argsort(-sweep.costs",
        "np.argsort(sweep.costs",
        (f"{_PROGRESS}::test_the_dearest_cells_come_first",),
    ),
    Mutant(
        "sweep-time-left-by-numbers-of-units",
        _WORK_ORDER,
        "self._costs = sweep.costs[:, :, None] * np.array(samples, dtype=float)",
        "self._costs = np.ones((*sweep.costs.shape, sweep.blocks))",
        (f"{_PROGRESS}::test_the_remaining_time_weighs_units_by_their_cost",),
    ),
    Mutant(
        "sweep-time-limit-between-units-only",
        _LOOP,
        "passed > self.seconds or passed + expected > _OVERTIME * self.seconds",
        "passed > self.seconds",
        (f"{_PROGRESS}::test_a_time_limit_is_kept_within_a_tenth[60.0]",),
    ),
    Mutant(
        "plan-of-the-cheapest-cell",
        "shaped_attention/sweep/plan.py",
        "np.interp(costs, costs[chosen], np.log(seconds) - costs[chosen])",
        "np.full(costs.shape, np.log(seconds[0]) - costs[chosen[0]])",
        (f"{_PROGRESS}::test_a_plan_is_within_a_factor_of_two",),
    ),
    Mutant(
        "sweep-blocks-share-a-seed",
        _UNITS,
        "derived_seed(sweep.seed, values, unit.block)",
        "derived_seed(sweep.seed, values, 0)",
        ("test_sweep.py::test_a_unit_is_a_pure_function[0]",),
    ),
    Mutant(
        "sweep-seed-of-the-place-in-the-grid",
        _UNITS,
        "values = DEFAULTS | sweep.values(sweep.index(unit.cell))",
        'values = {"cell": unit.cell}',
        ("test_sweep.py::test_a_cell_has_the_same_numbers_in_every_grid[axes1-3]",),
    ),
    Mutant(
        "sweep-stopping-bins-open-on-the-right",
        _UNITS,
        "np.ceil(finite / horizon * STOPPING_BINS - 1e-6) - 1",
        "np.floor(finite / horizon * STOPPING_BINS + 1e-6)",
        ("test_sweep_summaries.py::test_summaries_are_those_of_the_values[0.95]",),
    ),
    Mutant(
        "sweep-half-of-an-asymmetric-interval",
        "shaped_attention/sweep/summaries.py",
        "np.fmax(high - m, m - low)",
        "0.5 * (high - low)",
        ("test_sweep_summaries.py::test_intervals_of_fractions_are_exact[0-40000]",),
    ),
    Mutant(
        "sweep-last-block-counted-as-full",
        _READING,
        "= sweep.block_samples(unit.block)",
        "= sweep.block",
        ("test_sweep_reading.py::test_counts_are_whole_numbers",),
    ),
    Mutant(
        "store-units-without-checksums-count",
        _STORE,
        "and there.issuperset(self.arrays.keys(unit))",
        "and set(lost).isdisjoint(self.arrays.keys(unit))",
        (f"{_DAMAGE}::test_units_whose_checksums_are_lost_are_not_finished",),
    ),
    Mutant(
        "store-forgets-what-was-announced-before",
        _LEDGER,
        "(*self._sums.get(name, ()), tuple(entry))",
        "(*self._sums.get(name, ())[:1], tuple(entry))",
        (f"{_DAMAGE}::test_a_process_may_die_twice_between_announcing_and_writing",),
    ),
    Mutant(
        "store-repairs-without-announcing",
        _STORE,
        "        self.ledger.announce(files | further)\n",
        "",
        (f"{_DAMAGE}::test_repaired_metadata_may_differ",),
    ),
    Mutant(
        "record-names-code-in-lists",
        "shaped_attention/results/plain_arguments.py",
        "return [decoded(x, result, blocks) for x in value]",
        "return [x if isinstance(x, str) else decoded(x, result, blocks) for x in value]",
        ("test_provenance_refusals.py::test_nothing_is_imported_because_a_file_names_it[a list]",),
    ),
    Mutant(
        "record-takes-any-name-of-a-block",
        "shaped_attention/results/plain_arguments.py",
        "if not (isinstance(kind, type) and issubclass(kind, Block)):",
        "if kind is None:",
        ("test_provenance_refusals.py::test_a_name_of_this_package_is_that_of_its_own_block",),
    ),
    Mutant(
        "load-without-the-files-of-a-store",
        "shaped_attention/results/files.py",
        "            _check_metadata(path)\n",
        "",
        (f"{_DAMAGE}::test_a_result_without_its_attributes_is_damaged",),
    ),
]
