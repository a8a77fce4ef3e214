"""Errors in gradients on graphs and in the programs that follow, drawn by lot."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LAZY = "shaped_attention/lazy/"
_REVERSE = "shaped_attention/numerics/reverse.py"


def _rule(name: str) -> tuple[str, ...]:
    return (f"test_reverse.py::test_gradients_are_those_of_torch[{name}]",)


_NUMBERS = ("test_gradient_programs.py::test_numbers_are_those_of_torch[attention]",)
_DIRECTIONS = ("test_operations.py::test_executors_agree[orthonormal, dependent rows-rolled]",)

REVERSE = [
    Mutant(
        "gradients-are-not-summed-where-broadcast", _REVERSE,
        "    if shape[0] < g.shape[0]:\n        g = column_sums(g)",
        "    if shape[0] < g.shape[0]:\n        g = g.graph.constant(np.eye(1, g.shape[0])) @ g",
        _rule("a row"),
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
        "gradients-of-nodes-lose-their-coefficient", _REVERSE,
        "return matrix.coefficient * (g.mT", "return 1.0 * (g.mT",
        ("test_reverse.py::test_matrices_between_end_the_way_back",),
    ),
    Mutant(
        "a-new-direction-counts-twice", "shaped_attention/numerics/operations/orthonormal.py",
        "out[:, i, -1] = torch.where(zero, 0.0, 1.0)",
        "out[:, i, -1] = torch.where(zero, 0.0, 2.0)", _DIRECTIONS,
    ),
]  # fmt: skip
