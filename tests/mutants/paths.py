"""Errors in stacks of samples with few tokens: hidden units in tiles, and products of rows."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PATHS = [
    Mutant(
        "paths-hidden-gram-without-the-last-vector",
        "shaped_attention/numerics/operations/hidden.py",
        "hidden[0].mT, (rows, units, rows)",
        "hidden[0].mT, (rows, units - 1, rows)",
        ("test_paths.py::test_chain[mlp-1]",),
    ),
    Mutant(
        "paths-hidden-copies-share-their-normals",
        "shaped_attention/numerics/operations/hidden.py",
        "normals.rows(k * inner)",
        "normals.rows(0)",
        ("test_paths.py::test_chain[gated-1]",),
    ),
    Mutant(
        "paths-hidden-odd-count-without-the-last-pair",
        "shaped_attention/numerics/operations/hidden.py",
        "each // 2 + 1 if each % 2 else each // 2",
        "each // 2",
        ("test_paths.py::test_chain[mlp-1]",),
    ),
    Mutant(
        "paths-chi-of-the-first-step",
        "shaped_attention/numerics/fills.py",
        "fill_chi(diagonal, dof, key, paths, slots[1])",
        "fill_chi(diagonal, dof, key, paths & ~np.uint64(7), slots[1])",
        ("test_numbers.py::test_draws_are_the_same_with_and_without_the_compiled_generator[1]",),
    ),
    Mutant(
        "paths-activation-of-the-first-step",
        "shaped_attention/numerics/plan.py",
        "self.scalars[row if len(self.scalars) > 1 else 0]",
        "self.scalars[0]",
        ("test_paths.py::test_an_activation_that_changes_with_depth",),
    ),
    Mutant(
        "paths-wishart-one-degree-less",
        "shaped_attention/numerics/operations/random.py",
        "int(call.scalars[0]),",
        "int(call.scalars[0]) - 1,",
        ("test_paths.py::test_chain[attention-16]",),
    ),
    Mutant(
        "paths-hidden-units-of-a-pair-not-shifted",
        "shaped_attention/numerics/operations/hidden.py",
        'odd = e.new(f"and {kind} {start}, {e.word(1, 64)}")',
        'odd = e.new(f"and {kind} {start}, {e.word(0, 64)}")',
        ("test_paths.py::test_chain[mlp-5]",),
    ),
    Mutant(
        "paths-last-tile-of-hidden-units-not-cut",
        "shaped_attention/numerics/operations/hidden.py",
        "e.select(inside[v], act(values), 0.0)",
        "act(values)",
        ("test_paths.py::test_more_hidden_units_than_a_tile_or_a_part",),
    ),
    Mutant(
        "paths-hidden-units-of-the-first-part-again",
        "shaped_attention/numerics/operations/hidden.py",
        'start = e.new(f"mul {kind} {units}, {e.word(each, 64)}")',
        'start = e.new(f"mul {kind} {lanes}, {e.word(each, 64)}")',
        ("test_paths.py::test_more_hidden_units_than_a_tile_or_a_part",),
    ),
]
