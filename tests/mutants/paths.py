"""Errors in the programs for one path: hidden units in tiles, and heads on threads."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HIDDEN = "shaped_attention/numerics/hidden_tiles.py"
_PATH_ALGEBRA = "shaped_attention/numerics/path_algebra.py"
_PATH_INTERPRETER = "shaped_attention/numerics/path_interpreter.py"
_PATH_PLAN = "shaped_attention/numerics/path_plan.py"
_PATH_SHARES = "shaped_attention/numerics/path_shares.py"
_VECTOR_PRODUCTS = "shaped_attention/numerics/vector_products.py"


PATHS = [
    Mutant(
        "paths-hidden-gram-without-the-last-vector",
        _HIDDEN,
        "vectors = LANES // VECTOR",
        "vectors = LANES // VECTOR - 1",
        ("test_paths.py::test_chain[mlp-1]",),
        blind=True,
    ),
    Mutant(
        "paths-hidden-copies-share-their-normals",
        _HIDDEN,
        "(normals + k * columns) * STRIDE",
        "normals * STRIDE",
        ("test_paths.py::test_chain[gated-1]",),
        blind=True,
    ),
    Mutant(
        "paths-hidden-odd-count-without-the-last-pair",
        _HIDDEN,
        "for k in range((each + 1) // 2):",
        "for k in range(each // 2):",
        ("test_paths.py::test_chain[mlp-1]",),
        blind=True,
    ),
    Mutant(
        "paths-triangle-starts-a-block-late",
        _VECTOR_PRODUCTS,
        "first = min(i, inner) if a_from",
        "first = min(i + high, inner) if a_from",
        ("test_paths.py::test_transposes_of_triangles_and_of_matrices_that_are_not_square",),
        blind=True,
    ),
    Mutant(
        "paths-inner-products-keep-old-sums",
        _VECTOR_PRODUCTS,
        "sums[: high * wide * VECTOR] = 0.0",
        "sums[: high * wide] = 0.0",
        ("test_paths.py::test_chain[attention-5]",),
        blind=True,
    ),
    Mutant(
        "paths-combinations-vectors-one-entry-apart",
        _VECTOR_PRODUCTS,
        "target = v.entry(out, (out_row, i), (j, VECTOR))",
        "target = v.entry(out, (out_row, i), (j, 1))",
        ("test_paths.py::test_chain[attention-16]",),
        blind=True,
    ),
    Mutant(
        "paths-transpose-wrong-stride",
        _PATH_ALGEBRA,
        "buf[a + j * rows + i]",
        "buf[a + j * columns + i]",
        ("test_paths.py::test_transposes_of_triangles_and_of_matrices_that_are_not_square",),
        blind=True,
    ),
    Mutant(
        "paths-cholesky-wrong-triangle",
        _PATH_ALGEBRA,
        "value -= buf[out + i * rows + k] * buf[out + j * rows + k]",
        "value -= buf[out + i * rows + k] * buf[out + k * rows + j]",
        ("test_paths.py::test_chain[mlp-5]",),
        blind=True,
    ),
    Mutant(
        "paths-lower-projection-wrong-stride",
        _PATH_ALGEBRA,
        "-buf[below + i * rows]",
        "-buf[below + i]",
        ("test_paths.py::test_chain[attention-5]",),
        blind=True,
    ),
    Mutant(
        "paths-softmax-shifted-by-the-last-logit",
        _PATH_ALGEBRA,
        "top = max(top, value)",
        "top = value",
        ("test_paths.py::test_chain[causal-5]",),
        blind=True,
    ),
    Mutant(
        "paths-columns-of-the-first-head",
        _PATH_INTERPRETER,
        "a + line[_COUNT], inner",
        "a, inner",
        ("test_paths.py::test_chain[after-1]",),
        blind=True,
    ),
    Mutant(
        "paths-chi-of-the-first-step",
        _PATH_INTERPRETER,
        "_, path[0] = counter(0, 0, sample, step)",
        "_, path[0] = counter(0, 0, sample, 0)",
        ("test_paths.py::test_chain[attention-1]",),
        blind=True,
    ),
    Mutant(
        "paths-activation-of-the-first-step",
        _PATH_PLAN,
        "rows, rows))\n        numbers = place.numbers(self._table)",
        "rows, rows))\n        numbers = self._table[0]",
        ("test_paths.py::test_an_activation_that_changes_with_depth",),
        blind=True,
    ),
    Mutant(
        "paths-hidden-normals-of-the-first-step",
        _PATH_PLAN,
        "path_words(place.sample, 1, place.step)",
        "path_words(place.sample, 1, 0)",
        ("test_paths.py::test_chain[mlp-1]",),
        blind=True,
    ),
    Mutant(
        "paths-shares-forget-the-final-results",
        _PATH_SHARES,
        "used = {id(x) for x in program.results}",
        "used = {id(x) for x in program.results[:0]}",
        ("test_paths.py::test_a_result_from_before_the_last_stage",),
        blind=True,
    ),
    Mutant(
        "paths-results-of-the-last-share-lost",
        _PATH_SHARES,
        "k // count for k in range(count + 1)",
        "k // count for k in range(count)",
        ("test_paths.py::test_a_result_from_before_the_last_stage",),
        blind=True,
    ),
    Mutant(
        "paths-wishart-one-degree-less",
        _PATH_INTERPRETER,
        "degrees[i] = dof - i",
        "degrees[i] = dof - 1 - i",
        ("test_paths.py::test_chain[attention-16]",),
    ),
    Mutant(
        "paths-softmax-ignores-mask",
        _PATH_ALGEBRA,
        "z[j] = weight if allowed[j] > 0.0 else 0.0",
        "z[j] = weight",
        ("test_paths.py::test_chain[causal-16]",),
    ),
    Mutant(
        "paths-sum-without-coefficient",
        _PATH_ALGEBRA,
        "z[j] = s * x[j] + t * y[j]",
        "z[j] = s * x[j] + y[j]",
        ("test_paths.py::test_chain[rope-16]",),
    ),
    Mutant(
        "paths-pivot-not-zero",
        _PATH_ALGEBRA,
        "zero = square - PIVOT * PIVOT * buf[original + j] <= 0.0",
        "zero = square <= 0.0",
        ("test_paths.py::test_singular_starts[attention-repeated tokens]",),
    ),
    Mutant(
        "paths-inner-products-without-the-rest",
        _VECTOR_PRODUCTS,
        "range(vectors * VECTOR, inner)",
        "range(inner, inner)",
        ("test_paths.py::test_chain[attention-5]",),
    ),
    Mutant(
        "paths-combinations-without-the-rest",
        _VECTOR_PRODUCTS,
        "for c in range(j, columns):",
        "for c in range(columns, columns):",
        ("test_paths.py::test_chain[attention-5]",),
    ),
    Mutant(
        "paths-hidden-units-of-a-pair-not-shifted",
        _HIDDEN,
        "if (unit + p) % 2 == 1:",
        "if (unit + p) % 2 == 2:",
        ("test_paths.py::test_chain[mlp-5]",),
    ),
    Mutant(
        "paths-last-tile-of-hidden-units-not-cut",
        _HIDDEN,
        "range(last - unit, LANES)",
        "range(LANES, LANES)",
        ("test_paths.py::test_more_hidden_units_than_a_tile_or_a_part",),
    ),
    Mutant(
        "paths-hidden-units-of-the-first-part-again",
        _HIDDEN,
        "each, key, path, slot, unit)\n        for",
        "each, key, path, slot, unit - first)\n        for",
        ("test_paths.py::test_more_hidden_units_than_a_tile_or_a_part",),
    ),
    Mutant(
        "paths-shares-without-their-inputs",
        _PATH_INTERPRETER,
        "    copy(before, buf, own)\n",
        "",
        ("test_paths.py::test_heads_are_divided_among_threads",),
    ),
]
