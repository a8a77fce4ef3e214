"""Errors in gradients on graphs and in the programs that follow, drawn by lot."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LAZY = "shaped_attention/lazy/"
_REVERSE = "shaped_attention/numerics/reverse.py"


def _rule(name: str) -> tuple[str, ...]:
    return (f"test_reverse.py::test_gradients_are_those_of_torch[{name}]",)


_NUMBERS = ("test_gradient_programs.py::test_numbers_are_those_of_torch[attention]",)
_DIRECTIONS = ("test_operations.py::test_executors_agree[rolled-orthonormal, dependent rows]",)

REVERSE = [
    Mutant(
        "gradients-are-not-summed-where-broadcast", _REVERSE,
        "    if shape[0] < g.shape[0]:\n        g = column_sums(g)",
        "    if shape[0] < g.shape[0]:\n        g = g.graph.constant(np.eye(1, g.shape[0])) @ g",
        _rule("a row"),
    ),
    Mutant(
        "gradients-of-quotients-keep-their-sign", _REVERSE,
        "return first, -_reduced(first * y, b.shape)", "return first, _reduced(first * y, b.shape)",
        _rule("quotients"),
    ),
    Mutant(
        "grams-have-half-a-gradient", _REVERSE,
        "else (g + g.mT) @ a, None", "else 2.0 * (g @ a), None",
        _rule("Gram matrices"),
    ),
    Mutant(
        "softmax-forgets-its-normalisation", _REVERSE,
        "(y * (g - row_sums(y * g)))", "(y * (g - row_sums(g)))", _rule("softmax"),
    ),
    Mutant(
        "rotations-go-forth-twice", _REVERSE,
        "[turns[:, :pairs], -turns[:, pairs:]]", "[turns[:, :pairs], turns[:, pairs:]]",
        _rule("rotation"),
    ),
    Mutant(
        "parts-begin-at-the-first-column", _REVERSE,
        "        start += x.shape[1]\n", "        start += 0\n", _rule("parts"),
    ),
    Mutant(
        "the-way-back-passes-its-end", _REVERSE,
        "if node in ends or node not in known:", "if node not in known:",
        ("test_reverse.py::test_matrices_between_end_the_way_back",),
    ),
    Mutant(
        "gradients-of-nodes-lose-their-coefficient", _REVERSE,
        "return matrix.coefficient * (g.mT", "return 1.0 * (g.mT",
        ("test_reverse.py::test_matrices_between_end_the_way_back",),
    ),
    Mutant(
        "tangents-of-the-first-input-alone", "shaped_attention/numerics/forward.py",
        "for x, gradient in zip(node.inputs, pulled, strict=True)",
        "for x, gradient in zip(node.inputs[:1], pulled, strict=False)",
        ("test_operations.py::test_derivatives_in_a_direction_are_those_of_torch[product]",),
    ),
    Mutant(
        "leaves-take-the-gradient-of-their-node", _REVERSE,
        "g = gradient if number == 1.0 else gradient * (1.0 / number)", "g = gradient",
        _NUMBERS,
    ),
    Mutant(
        "chi-variables-in-the-slot-of-the-normals-beside-them", "shaped_attention/rows/traced.py",
        "        self._next += slots\n", "        self._next += 1\n",
        ("test_gradient_programs.py::test_numbers_are_those_of_torch[heads side by side]",),
    ),
    Mutant(
        "a-new-direction-counts-twice", "shaped_attention/numerics/operations/orthonormal.py",
        "out[:, i, -1] = torch.where(zero, 0.0, 1.0)",
        "out[:, i, -1] = torch.where(zero, 0.0, 2.0)", _DIRECTIONS,
    ),
    Mutant(
        "a-row-off-another-is-a-shift", "shaped_attention/numerics/operations/orthonormal.py",
        "row = row - along @ done",
        "row = row - along.sum() * done.sum(1, True)", _DIRECTIONS,
    ),
    Mutant(
        "a-zero-pivot-is-one", "shaped_attention/numerics/operations/orthonormal.py",
        "out[:, i, i] = torch.where(zero, 0.0, pivot)[:, 0]",
        "out[:, i, i] = torch.where(zero, 1.0, pivot)[:, 0]",
        _DIRECTIONS,
    ),
    Mutant(
        "no-border-without-ones", _LAZY + "forgetting.py",
        "if space.known_ones is not None and not", "if space.known_ones is not None or not",
        _NUMBERS,
    ),
    Mutant(
        "gradients-of-unused-matrices-are-rows", _LAZY + "deep.py",
        "Factors(0.0 * gradient, 0.0 * gradient)", "Factors(gradient, gradient)",
        ("test_gradient_programs.py::test_a_matrix_without_use_has_no_gradient",),
    ),
]  # fmt: skip
