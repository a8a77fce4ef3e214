"""Claims of document 003, forms, affine maps, scores and features: each check can turn."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sympy import BlockMatrix, Matrix, MatrixSymbol, OneMatrix, Rational, ZeroMatrix, eye

from symbolic.claims import (
    CLAIMS,
    Verdict,
    affine_maps,
    feature_copying,
    judge,
    quadratic_forms,
    scores,
    singular_values,
)


def claim(key: str) -> Any:
    return next(claim for claim in CLAIMS if claim.key == key)


def verdict(key: str) -> Verdict:
    return judge(claim(key)).finding.verdict


def turns(key: str) -> bool:
    """Whether the verdict is another one, or the correction no longer holds."""
    try:
        return verdict(key) is not claim(key).expected
    except ArithmeticError:
        return True


def test_what_is_proven_in_general_is_not_only_tested() -> None:
    """Line 91 holds for every matrix; line 42 prints the scores, not an attention module."""
    assert verdict("svd-of-omega") is Verdict.PROVEN
    assert verdict("scores-as-attention-module") is Verdict.IMPRECISE
    assert [str(p) for p in claim("scores-as-attention-module").passages] == ["003:42-44"]


def test_courant_fischer_is_judged_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For A only square it is false; for the symmetric part it would be true."""
    assert verdict("courant-fischer") is Verdict.FALSE
    right = quadratic_forms.largest_eigenvalue
    monkeypatch.setattr(quadratic_forms, "largest_eigenvalue", lambda a: right((a + a.T) / 2))
    assert verdict("courant-fischer") is Verdict.TESTED


def test_the_maximiser_of_the_svd_version_is_judged_as_printed() -> None:
    """The maximum is right, u_i and v_i are not."""
    assert verdict("courant-fischer-svd") is Verdict.IMPRECISE
    assert "u_1" in claim("courant-fischer-svd").corrected


def test_terms_of_different_indices_are_orthogonal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notes have the condition k != j; with k = j admitted, the products are not 0."""
    assert verdict("svd-terms-orthogonal") is Verdict.PROVEN
    assert "k != j" in claim("svd-terms-orthogonal").statement
    monkeypatch.setattr(singular_values, "INNER_PRODUCT", OneMatrix(1, 1))
    assert verdict("svd-terms-orthogonal") is Verdict.FALSE


def skew(matrix: Matrix) -> Matrix:
    """Replace the first column by the sum of the first two: no longer orthogonal."""
    result = matrix.copy()
    result[:, 0] += matrix[:, 1]
    return result


SIZE = quadratic_forms.SIZE
SWAPPED = BlockMatrix(
    [
        [scores.W_K * scores.W_Q.T, scores.W_Q * scores.B_K],
        [scores.B_Q.T * scores.W_K.T, scores.B_Q.T * scores.B_K],
    ]
)


@pytest.mark.parametrize(
    ("key", "module", "name", "wrong"),
    [
        ("courant-fischer", quadratic_forms, "general_courant_fischer", lambda: False),
        ("form-is-bilinear", quadratic_forms, "FORM", ZeroMatrix(SIZE, SIZE)),
        ("rayleigh-quotient", quadratic_forms, "quotient", lambda x, a: (x.T * a * x)[0]),
        ("theorem-fixes-the-matrix", singular_values, "EXAMPLE", 2 * singular_values.EXAMPLE),
        ("courant-fischer-svd", singular_values, "EXAMPLE", 5 * eye(3)),
        ("courant-fischer-svd", singular_values, "general_courant_fischer", lambda: False),
        ("svd-terms-orthogonal", singular_values, "LEFT", skew(singular_values.LEFT)),
        ("affine-maps-take-lines-to-lines", affine_maps, "cube", lambda x: 3 * x),
        ("lines-are-no-subspaces", affine_maps, "_line_through", lambda _point: False),
        ("affine-maps-are-not-linear", affine_maps, "affine", lambda x: affine_maps.LINEAR * x),
        ("shear-as-example", affine_maps, "shear", lambda _slope: eye(2)),
        ("shear-keeps-heights", affine_maps, "shear", lambda a: Matrix([[1, a], [a, 1]])),
        ("shear-translates", affine_maps, "shear", lambda _slope: eye(2)),
        # The product of tokens alone, and its transpose.
        ("scores-as-attention-module", scores, "scores", lambda: scores.X * scores.X.T),
        (
            "scores-as-attention-module",
            scores,
            "scores",
            lambda right=scores.scores: right().T,
        ),
        # Left vectors that are not divided by sigma_k.
        (
            "svd-of-omega",
            singular_values,
            "gram_of_left_vectors",
            lambda k, j, right=singular_values.gram_of_left_vectors: 2 * right(k, j),
        ),
        ("svd-of-omega", singular_values, "MATRIX", 2 * singular_values.MATRIX),
        ("biases-are-translations", scores, "ONE", 2 * scores.ONE),
        ("scores-four-terms", scores, "scores", lambda: scores.X * scores.W_Q * scores.W_K.T),
        ("scores-homogeneous-coordinates", scores, "OMEGA", SWAPPED),
        ("scores-are-biaffine", scores, "score", lambda x, y: x + y),
        ("scores-as-bilinear-form", scores, "OMEGA", SWAPPED),
        ("scores-as-bilinear-form", scores, "_shapes_agree", lambda: True),
        # Normalised by the squares of the lengths.
        ("scores-best-rank-one-form", feature_copying, "sqrt", lambda x: x),
        # Every derivative of one sign: then descent would raise all scores.
        (
            "training-maximises-scores",
            feature_copying,
            "row_of_derivatives",
            lambda: [-Rational(1, 8)] * 2,
        ),
        (
            "optimisation-copies-features",
            feature_copying,
            "row_of_derivatives",
            lambda: [-Rational(1, 8)] * 2,
        ),
        # Were the parts v zero, the tokens would be their features.
        ("feature-part-maximises-score", feature_copying, "REST", (Matrix([0, 0]),) * 2),
    ],
)
def test_what_is_wrong_is_seen(
    key: str, module: ModuleType, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert turns(key)


def test_a_map_that_bends_lines_is_no_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: A x + |x|^2 b."""
    right = affine_maps.affine

    def bent(point: Any) -> Any:
        return right(point) - affine_maps.SHIFT + affine_maps.SHIFT * (point.T * point)

    monkeypatch.setattr(affine_maps, "affine", bent)
    with pytest.raises(ArithmeticError):
        verdict("affine-maps-take-lines-to-lines")


def test_a_doubled_translation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = affine_maps.translation
    monkeypatch.setattr(affine_maps, "translation", lambda shift: right(2 * shift))
    assert turns("translation-in-homogeneous-coordinates")


def test_a_missing_singular_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = singular_values.decomposition
    monkeypatch.setattr(singular_values, "decomposition", lambda matrix: right(matrix)[1:])
    assert turns("svd-of-omega")


@pytest.mark.parametrize("key", ["training-maximises-scores", "optimisation-copies-features"])
def test_a_transposed_derivative_is_no_correction(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: x~_j x~_i^T."""
    x, y = (MatrixSymbol(name, scores.WIDTH, 1) for name in "xy")
    monkeypatch.setattr(feature_copying, "derivative_of_the_score", lambda: y * x.T)
    with pytest.raises(ArithmeticError):
        verdict(key)


def test_a_normalisation_that_is_none_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: exponentials without their sum do change under a common shift."""
    monkeypatch.setattr(feature_copying, "values", lambda: list(feature_copying.Z[:3]))
    assert not feature_copying.softmax_keeps_common_shifts()
    assert turns("training-maximises-scores")
