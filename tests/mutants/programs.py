"""Errors in the executors: tracing, programs on tiles, and library routines."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ALGEBRA = "shaped_attention/numerics/tile_algebra.py"
_BLAS = "shaped_attention/numerics/blas_operations.py"
_FACTOR = "shaped_attention/numerics/factor.py"
_GRAPH = "shaped_attention/numerics/graph.py"
_LARGE = "shaped_attention/samplers/steppers/blas.py"
_PRIMITIVES = "shaped_attention/numerics/primitives.py"
_PRODUCTS = "shaped_attention/numerics/products.py"
_PROGRAM = "shaped_attention/numerics/program.py"
_TANGENTS = "shaped_attention/numerics/tangents.py"
_TRACED_NUMBERS = "shaped_attention/numerics/traced_numbers.py"
_VECTORMATH = "shaped_attention/numerics/vectormath.py"
_TILES = "shaped_attention/numerics/tiles.py"
_INTERPRETER = "shaped_attention/numerics/tile_interpreter.py"


PROGRAMS = [
    Mutant(
        "tiles-wishart-one-degree-less",
        _INTERPRETER,
        "buf, line[_OUT], line[_ROWS], line[_COUNT], line[_WORK]",
        "buf, line[_OUT], line[_ROWS], line[_COUNT] - 1, line[_WORK]",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "tiles-hidden-columns-reused",
        _INTERPRETER,
        "line[_SLOT], start * each // 2,",
        "line[_SLOT], 0,",
        ("test_compiled.py::test_chain[mlp-40]",),
    ),
    Mutant(
        "tiles-norm-without-mirror-entries",
        _TILES,
        "times = 1.0 if i == j else 2.0",
        "times = 1.0",
        ("test_compiled.py::test_stopping[chain]",),
    ),
    Mutant(
        "tiles-schedule-of-the-first-step",
        _TILES,
        "            numbers = table[step if",
        "            numbers = table[begin if",
        ("test_compiled.py::test_a_schedule_in_both_executors",),
    ),
    Mutant(
        "tiles-product-of-triangles-starts-late",
        _PRODUCTS,
        "first = max(first_i, j if b_from else 0)",
        "first = max(first_i, j if b_to else 0)",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "tiles-transposed-product-stops-early",
        _PRODUCTS,
        "stop = min(stop_i, j + wide) if b_to else stop_i",
        "stop = min(stop_i, j) if b_to else stop_i",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "tiles-product-without-the-second-lanes",
        _PRODUCTS,
        "fixed(0), fixed(LANES), fixed(_VECTOR)",
        "fixed(0), fixed(LANES - _VECTOR), fixed(_VECTOR)",
        ("test_products.py::test_products[1-1-1-triangles0]",),
    ),
    Mutant(
        "tiles-gram-of-columns-as-of-rows",
        _INTERPRETER,
        "turned_a = op == codes.COGRAM",
        "turned_a = op == codes.GRAM",
        ("test_compiled.py::test_sde[attention-5]",),
    ),
    Mutant(
        "tiles-increments-of-the-first-tile",
        _INTERPRETER,
        "count_paths(paths, first + tile * LANES, step)",
        "count_paths(paths, first, step)",
        (
            "test_sde.py::test_torchsde_and_the_direct_method_give_the_same_bits"
            "[layer0-None-float64]",
        ),
    ),
    Mutant(
        "trace-shares-operations-of-other-scalars",
        _GRAPH,
        "tuple(name_of(x) for x in scalars)",
        "tuple(0 for x in scalars)",
        ("test_tracing.py::test_equal_operations_are_done_once",),
    ),
    Mutant(
        "trace-factorises-in-place-of-a-copy",
        _PROGRAM,
        'return self.uses[id(node)] > 1 or node.kind in ("input", "constant")',
        'return self.uses[id(node)] > 9 or node.kind in ("input", "constant")',
        ("test_tracing.py::test_traced_and_torch_agree[twice]",),
    ),
    Mutant(
        "trace-column-times-row-transposed",
        _GRAPH,
        "flat = flat @ flat.graph.constant(np.ones((1, shape[1])))",
        "flat = (flat @ flat.graph.constant(np.ones((1, shape[1])))).mT",
        ("test_tracing.py::test_traced_and_torch_agree[broadcast]",),
    ),
    Mutant(
        "tiles-gram-not-added-up",
        _PRODUCTS,
        "builder.select(adding, before, zero)",
        "builder.select(adding, zero, zero)",
        ("test_compiled.py::test_chain[mlp-40]",),
    ),
    Mutant(
        "tiles-softmax-logits-unscaled",
        _ALGEBRA,
        "weight = exp(s * buf[a + i * columns + j, p] - buf[top, p])",
        "weight = exp(buf[a + i * columns + j, p] - buf[top, p])",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "tiles-symmetric-noise-diagonal",
        _ALGEBRA,
        "weight = math.sqrt(2.0) if i == j else 1.0",
        "weight = 1.0",
        ("test_compiled.py::test_sde[attention-5]",),
    ),
    Mutant(
        "tiles-arc-cosine-angle",
        _ALGEBRA,
        "r * (math.pi - arccos(r))",
        "r * arccos(r)",
        ("test_compiled.py::test_sde[mlp-5]",),
    ),
    Mutant(
        "tiles-exponential-of-large-arguments-clamped",
        _VECTORMATH,
        "x = 710.0 if x > 710.0 else x",
        "x = 700.0 if x > 700.0 else x",
        ("test_elementwise.py::test_values_are_those_of_torch[exp-on_tiles]",),
    ),
    Mutant(
        "tiles-tanh-cancels-near-zero",
        _VECTORMATH,
        "size = near if a < _TANH_STOP else",
        "size = near if a < 0.0 else",
        ("test_elementwise.py::test_descriptions_that_use_them[zero-96]",),
    ),
    Mutant(
        "tiles-slopes-swapped",
        _ALGEBRA,
        "(s if buf[x, p] > 0.0 else t) * buf[x, p]",
        "(t if buf[x, p] > 0.0 else s) * buf[x, p]",
        ("test_compiled.py::test_chain[mlp-40]",),
    ),
    Mutant(
        "tiles-lower-level-of-squares",
        _ALGEBRA,
        "zero = square - PIVOT * PIVOT * buf",
        "zero = square - PIVOT * buf",
        ("test_compiled.py::test_the_level_of_a_pivot[100.0-True]",),
    ),
    Mutant(
        "tiles-lower-rows-not-reduced",
        _ALGEBRA,
        "buf[a + i * columns + c, p] -= buf[y, p] * buf",
        "buf[a + i * columns + c, p] -= 0.5 * buf[y, p] * buf",
        ("test_compiled.py::test_rows_without_a_direction_of_their_own_have_a_zero_column[2]",),
    ),
    Mutant(
        "tiles-cholesky-without-level",
        _ALGEBRA,
        "zero = buf[pivot, p] - PIVOT * buf[a + j * rows + j, p] <= 0.0",
        "zero = buf[pivot, p] <= 0.0",
        ("test_compiled.py::test_the_level_of_a_pivot[30.0-False]",),
    ),
    Mutant(
        "tiles-cholesky-adds-products",
        _ALGEBRA,
        "buf[y, p] -= buf[out + i * rows + k, p]",
        "buf[y, p] += buf[out + i * rows + k, p]",
        ("test_compiled.py::test_rows_without_a_direction_of_their_own_have_a_zero_column[2]",),
    ),
    Mutant(
        "torch-lower-level-of-zero",
        _FACTOR,
        "zero = length - level * original[..., j] <= 0.0",
        "zero = length <= 0.0",
        ("test_compiled.py::test_the_level_of_a_pivot[30.0-False]",),
    ),
    Mutant(
        "torch-cholesky-pivot-not-rooted",
        _FACTOR,
        "torch.where(zero, 1.0, pivot).sqrt()",
        "torch.where(zero, 1.0, pivot)",
        ("test_compiled.py::test_rows_without_a_direction_of_their_own_have_a_zero_column[2]",),
    ),
    Mutant(
        "graph-any-product-is-triangular",
        _GRAPH,
        'kind == "nn" and a.node.lower and other.node.lower',
        'kind == "nn" and (a.node.lower or other.node.lower)',
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "graph-sum-with-a-triangle-is-one",
        _GRAPH,
        "a.node.lower and b.node.lower and a.shape == b.shape",
        "(a.node.lower or b.node.lower) and a.shape == b.shape",
        ("test_compiled.py::test_chain[attention-40]",),
    ),
    Mutant(
        "graph-product-forgets-a-coefficient",
        _GRAPH,
        "coefficient = product(a.coefficient, other.coefficient)",
        "coefficient = a.coefficient",
        ("test_compiled.py::test_sde[attention-5]",),
    ),
    Mutant(
        "trace-normals-in-the-slot-of-the-head",
        _TRACED_NUMBERS,
        "(scale,), (2 * head,)",
        "(scale,), (head,)",
        ("test_large.py::test_chain[heads-40-80]",),
    ),
    Mutant(
        "trace-mask-ignored",
        _PRIMITIVES,
        "np.asarray(seen, dtype=np.float64)",
        "np.ones_like(seen, dtype=np.float64)",
        ("test_large.py::test_chain[causal-40-80]",),
    ),
    Mutant(
        "blas-wishart-one-degree-more",
        _BLAS,
        "dof - np.arange(rows",
        "dof + 1 - np.arange(rows",
        ("test_large.py::test_chain[attention-40-80]",),
    ),
    Mutant(
        "blas-hidden-columns-reused",
        _BLAS,
        "slot, start * each // 2",
        "slot, 0",
        ("test_large.py::test_more_hidden_units_than_are_drawn_at_once",),
    ),
    Mutant(
        "blas-triangle-not-transposed",
        _BLAS,
        'transposed=kind == "multiply_nt"',
        "transposed=False",
        ("test_large.py::test_chain[attention-40-80]",),
    ),
    Mutant(
        "blas-softmax-logits-unscaled",
        _BLAS,
        "np.multiply(logits, scale, out=out)",
        "np.multiply(logits, 1.0, out=out)",
        ("test_large.py::test_chain[attention-40-80]",),
    ),
    Mutant(
        "blas-softmax-ignores-mask",
        _BLAS,
        "where=seen == 0.0",
        "where=seen < 0.0",
        ("test_large.py::test_chain[causal-40-80]",),
    ),
    Mutant(
        "blas-sum-without-coefficient",
        _BLAS,
        "out += t * b",
        "out += b",
        ("test_large.py::test_sde[causal-40]",),
    ),
    Mutant(
        "blas-increments-without-step",
        _BLAS,
        "if scale != 1.0:",
        "if scale > 1.0:",
        ("test_large.py::test_sde[causal-40]",),
    ),
    Mutant(
        "large-stops-by-the-trace",
        _LARGE,
        "float(np.linalg.norm(total))",
        "float(np.trace(total))",
        ("test_large.py::test_stopping",),
    ),
    Mutant(
        "large-paths-of-the-first-sample",
        _LARGE,
        "inputs, batch.first + k, point",
        "inputs, batch.first + 0 * k, point",
        ("test_large.py::test_stopping",),
    ),
    Mutant(
        "tangents-quotient-rule-sign",
        _TANGENTS,
        "lambda e: (-1.0) * (q * e)",
        "lambda e: q * e",
        ("test_tangents.py::test_arithmetic[first0-second0-quotient]",),
    ),
    Mutant(
        "tangents-softmax-rows-not-centred",
        _TANGENTS,
        "p * (d - pr.row_sums(p * d))",
        "p * (d - pr.row_sums(d))",
        ("test_tangents.py::test_primitives[softmax]",),
    ),
    Mutant(
        "tangents-kernel-angle-of-its-absolute-value",
        _TANGENTS,
        "_sign(ratio) * (0.5 * math.pi - 2.0 * half)",
        "(0.5 * math.pi - 2.0 * half)",
        ("test_tangents.py::test_primitives[arc-cosine kernel]",),
    ),
    Mutant(
        "tangents-of-a-root-compressed-apart",
        _TANGENTS,
        "parts = split(pr.lower(stacked([root.value, *moving])), 1 + len(moving))",
        "parts = [pr.lower(part) for part in (root.value, *moving)]",
        ("test_tangents.py::test_compressing_keeps_the_joint_gram",),
    ),
]
