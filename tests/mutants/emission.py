"""Planted errors of emitted code: text, arithmetic, random numbers, products, bookkeeping."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TEXT = "shaped_attention/compiler/text.py"
_EMITTER = "shaped_attention/compiler/emitter.py"
_FUNCTIONS = "shaped_attention/compiler/functions.py"
_RANDOM = "shaped_attention/compiler/random.py"
_MATRICES = "shaped_attention/compiler/matrices.py"
_PROGRAM = "shaped_attention/numerics/program.py"
_STEP = "shaped_attention/numerics/step.py"
_EMISSION = "shaped_attention/numerics/emission.py"
_STEPS = "shaped_attention/numerics/fixed_steps.py"
_BURSTS = "shaped_attention/numerics/clock_bursts.py"
_BOOKKEEPING = "shaped_attention/numerics/bookkeeping.py"

EMISSION = [
    Mutant(
        "emitted-zero-times-is-the-other-factor",
        _EMITTER,
        "if a == 0.0 or b == 0.0:\n            return c",
        "if a == 0.0 or b == 0.0:\n            return 0.0",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "emitted-loop-stops-before-its-last-turn",
        _TEXT,
        'more = self.new(f"icmp ult i64 {following}, {end}")',
        'more = self.new(f"icmp ult i64 {self.add(following, step)}, {end}")',
        ("test_products.py::test_gram_matrices[rolled-9-6-False]",),
    ),
    Mutant(
        "emitted-functions-of-other-constants-are-one",
        _TEXT,
        "name or self._functions.setdefault(result + whole,",
        "name or self._functions.setdefault(result + str(len(whole)),",
        ("test_operations.py::test_executors_agree[products with two constants]",),
    ),
    Mutant(
        "emitted-registers-outlive-what-functions-write",
        _EMITTER,
        "self._here.registers.pop((base, row), None)",
        "self._here.registers.get((base, row), None)",
        ("test_oracles.py::test_one_token[chain]",),
    ),
    Mutant(
        "emitted-work-is-shared",
        _EMITTER,
        "return self._here.work - rows",
        "return 0 * rows",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "emitted-exp-of-single-precision-a-bit-off",
        _FUNCTIONS,
        '_BIAS = {"double": 1023, "float": 127}',
        '_BIAS = {"double": 1023, "float": 128}',
        ("test_numbers.py::test_functions_are_accurate_relative_to_their_values[exp]",),
    ),
    Mutant(
        "emitted-whole-exp-ends-early",
        _FUNCTIONS,
        '_WHOLE_EXP = {"double": (-746.0, 710.0)',
        '_WHOLE_EXP = {"double": (-746.0, 700.0)',
        ("test_elementwise.py::test_values_are_those_of_torch[exp-emitted]",),
    ),
    Mutant(
        "emitted-second-block-has-the-words-of-the-first",
        _RANDOM,
        'c0 = e.splat(str(e.add(e.add("%c0", b), k)), "i64")',
        'c0 = e.splat(str(e.add("%c0", b)), "i64")',
        ("test_numbers.py::test_normals_are_the_same_numbers_in_torch_and_compiled[19]",),
    ),
    Mutant(
        "emitted-single-normals-share-a-radius",
        _RANDOM,
        "_single(e, low, 31, 1.0), _single(e, top, 24, 0.0)",
        "_single(e, low, 31, 1.0), _single(e, low, 24, 0.0)",
        ("test_numbers.py::test_normals_are_normal_and_neighbours_independent[float32]",),
    ),
    Mutant(
        "emitted-chi-accepts-all",
        _RANDOM,
        "good = _accepted(e, normals[k], words[1][k], cube, d)",
        "good = _accepted(e, normals[k], words[1][k], 1.0, d)",
        ("test_numbers.py::test_wishart_factors_are_the_same_numbers_in_torch_and_compiled[7]",),
    ),
    Mutant(
        "emitted-constants-have-their-first-entry-alone",
        _MATRICES,
        "return e.number(base, row)",
        "return e.number(base, 0)",
        ("test_operations.py::test_executors_agree[products with two constants]",),
    ),
    Mutant(
        "emitted-parts-begin-at-the-whole",
        _PROGRAM,
        "self._offset[id(whole)] + column, whole.shape[1]",
        "self._offset[id(whole)], whole.shape[1]",
        ("test_compiled.py::test_chain[attention-4]",),
    ),
    Mutant(
        "emitted-known-zeros-on-the-diagonal",
        _STEP,
        "for j in range(i + 1, node.shape[1]):",
        "for j in range(i, node.shape[1]):",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "emitted-scalars-of-the-first-program",
        _EMISSION,
        "sum(len(p.scalars) for p in before)",
        "sum(0 * len(p.scalars) for p in before)",
        ("test_samplers.py::test_layout_of_the_result[sde]",),
    ),
    Mutant(
        "emitted-stopped-paths-move-on",
        _STEPS,
        "e.select(mask, new, before)",
        "new",
        ("test_compiled.py::test_stopping[chain]",),
    ),
    Mutant(
        "emitted-paths-of-a-block-share-their-numbers",
        _BOOKKEEPING,
        "{e.splat(str(first), 'i64')}, {e.lane_numbers()}",
        "{e.splat(str(first), 'i64')}, {e.splat('0', 'i64')}",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "emitted-overflow-is-never-an-error",
        _EMISSION,
        'e.compare("uno", total, total)',
        'e.compare("one", total, total)',
        ("test_custom_blocks.py::test_steps_that_are_not_numbers_are_errors",),
    ),
    Mutant(
        "emitted-clock-steps-are-not-counted",
        _BURSTS,
        'e.store_as("i64", e.new(f"add {e.of(\'i64\')} {taken}, {one}"), lane["taken"])',
        'e.store_as("i64", taken, lane["taken"])',
        ("test_clock.py::test_executors_follow_the_same_paths[full]",),
    ),
    Mutant(
        "emitted-clock-arrives-a-step-early",
        _BURSTS,
        'e.compare("oeq", pieces, 1.0)',
        'e.compare("ole", pieces, 2.0)',
        ("test_clock.py::test_executors_follow_the_same_paths[full]",),
    ),
    Mutant(
        "emitted-clock-keeps-states-of-the-first-lane",
        _BURSTS,
        'here, there = ("%buf", e.add(e.mul(j, lanes), p)),',
        'here, there = ("%buf", e.mul(j, lanes)),',
        ("test_clock.py::test_executors_follow_the_same_paths[full]",),
    ),
    Mutant(
        "rows-of-a-block-taken-off-as-if-orthogonal",
        "shaped_attention/numerics/operations/factorisations.py",
        "part = e.fma(e.neg(parts[x * wide + z]), angles[z, y], part)",
        "part = e.fma(0.0, angles[z, y], part)",
        ("test_paths.py::test_singular_starts[attention-rank 1]",),
    ),
    Mutant(
        "numbers-of-the-first-vector-again",
        "shaped_attention/numerics/fills.py",
        "(2 * v + h) * lanes",
        "2 * v * lanes",
        ("test_numbers.py::test_normals_are_the_same_numbers_in_torch_and_compiled",),
    ),
    Mutant(
        "weights-of-the-first-block-again",
        "shaped_attention/samplers/network.py",
        "min(start + starts.step, columns), start * fan_in // 2",
        "min(start + starts.step, columns), 0",
        ("test_samplers.py::test_weights_are_those_of_their_addresses[9-301-34-float64]",),
    ),
    Mutant(
        "entries-of-the-last-vector-are-left-out",
        "shaped_attention/numerics/array_code.py",
        'e.loop(most, "%size", 1, lambda i, _: put(i), may_be_empty=True)',
        "pass",
        ("test_operations.py::test_executors_agree[an odd number of entries]",),
    ),
]
