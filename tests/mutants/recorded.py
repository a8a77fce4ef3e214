"""Errors in recording gradients and in the programs that follow, drawn by lot."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LAZY = "shaped_attention/lazy/"
_COMPILED = _LAZY + "compiled/"
_ARITHMETIC, _ARRANGEMENT = _COMPILED + "arithmetic.py", _COMPILED + "arrangement.py"
_ORTHONORMAL = "shaped_attention/numerics/operations/orthonormal.py"


def _translation(name: str) -> tuple[str, ...]:
    return (f"test_recorded_gradients.py::test_translations[{name}]",)


_NUMBERS = ("test_recorded_gradients.py::test_numbers_are_those_of_torch[attention]",)
_LAYER_NORM = ("test_recorded_gradients.py::test_numbers_are_those_of_torch[LayerNorm before]",)
_DIRECTIONS = ("test_operations.py::test_executors_agree[orthonormal, dependent rows]",)

RECORDED = [
    Mutant(
        "negative-numbers-keep-their-sign", _ARITHMETIC,
        '"neg": _entrywise(lambda x: -1.0 * x)', '"neg": _entrywise(lambda x: 1.0 * x)',
        _translation("powers"),
    ),
    Mutant(
        "sums-over-the-other-dimension", _ARITHMETIC,
        "if dimension(dim, before) == -1 else", "if dimension(dim, before) != -1 else",
        _translation("sums"),
    ),
    Mutant(
        "a-transposition-counts-from-four", _ARRANGEMENT,
        "if result.dim() != 3 or {a % 3, b % 3}", "if result.dim() != 3 or {a % 4, b % 3}",
        _translation("padding"),
    ),
    Mutant(
        "three-times-the-distribution-function", _ARITHMETIC,
        "lambda x: 2.0 * of.normal_cdf", "lambda x: 3.0 * of.normal_cdf",
        _translation("functions"),
    ),
    Mutant(
        "columns-are-repeated-as-rows", _COMPILED + "translator.py",
        "if side == 0 else np.ones((1, shape[1]))", "if side != 0 else np.ones((1, shape[1]))",
        _translation("repeats"),
    ),
    Mutant(
        "a-new-direction-counts-twice", "shaped_attention/numerics/operations/orthonormal.py",
        "out[:, i, -1] = torch.where(zero, 0.0, 1.0)",
        "out[:, i, -1] = torch.where(zero, 0.0, 2.0)", _DIRECTIONS,
    ),
    Mutant(
        "what-is-traced-is-a-constant", _COMPILED + "recorder.py",
        "        if _place(tensor) in self._traced:\n            return True",
        "        if _place(tensor) in self._traced:\n            return False",
        _translation("rows"),
    ),
    Mutant(
        "at-most-from-above", _ARITHMETIC,
        '"le": _binary(lambda a, b: 1.0 - _above', '"le": _binary(lambda a, b: 1.0 + _above',
        _translation("signs"),
    ),
    Mutant(
        "products-of-entries-are-sums", _ARITHMETIC,
        '"mul": _binary(mul)', '"mul": _binary(add)',
        _translation("rows"),
    ),
    Mutant(
        "a-row-off-another-is-a-shift", "shaped_attention/numerics/operations/orthonormal.py",
        "row = row - along @ done",
        "row = row - along.sum() * done.sum(1, True)", _DIRECTIONS,
    ),
    Mutant(
        "constants-must-differ-between-samples", _COMPILED + "translator.py",
        "if not (entries == entries[:1]).all():", "if not (entries != entries[:1]).all():",
        _NUMBERS,
    ),
    Mutant(
        "zeros-like-others-are-ones", _ARRANGEMENT,
        '"zeros_like": _filled(0.0)', '"zeros_like": _filled(1.0)',
        _translation("functions"),
    ),
    Mutant(
        "sums-over-nothing", _ARITHMETIC,
        "for dim in dims or ():", "for dim in dims and ():", _translation("sums"),
    ),
    Mutant(
        "only-minus-infinity-is-filled-in", _ARITHMETIC,
        "if float(value) != -math.inf:", "if float(value) == -math.inf:",
        _translation("masks"),
    ),
    Mutant(
        "sums-are-differences", _ARITHMETIC,
        '"add": _binary(add), "add_"', '"add": _binary(sub), "add_"',
        _translation("rows"),
    ),
    Mutant(
        "a-zero-pivot-is-one", "shaped_attention/numerics/operations/orthonormal.py",
        "out[:, i, i] = torch.where(zero, 0.0, pivot)[:, 0]",
        "out[:, i, i] = torch.where(zero, 1.0, pivot)[:, 0]",
        _DIRECTIONS,
    ),
    Mutant(
        "no-border-without-ones", _LAZY + "forgetting.py",
        "if space.knows_ones and not with_ones:", "if space.knows_ones or not with_ones:",
        _NUMBERS,
    ),
    Mutant(
        "gradients-of-unused-matrices-are-rows", _LAZY + "deep.py",
        "return Factors(0.0 * rows, 0.0 * rows)", "return Factors(1.0 * rows, 0.0 + rows)",
        ("test_recorded_gradients.py::test_a_matrix_without_use_has_no_gradient",),
    ),
]  # fmt: skip
