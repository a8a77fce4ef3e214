"""Claims of document 003, forms, affine maps, scores and features: each check can turn."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sympy import BlockMatrix, Matrix, MatrixSymbol, OneMatrix, Rational, ZeroMatrix, eye

from symbolic.claims import (
    affine_maps,
    feature_copying,
    quadratic_forms,
    scores,
    singular_values,
)
from tests.ledger import turned


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


def bent(point: Any, right: Any = affine_maps.affine) -> Any:
    """A x + |x|^2 b."""
    return right(point) - affine_maps.SHIFT + affine_maps.SHIFT * (point.T * point)


def transposed() -> Any:
    """x~_j x~_i^T."""
    x, y = (MatrixSymbol(name, scores.WIDTH, 1) for name in "xy")
    return y * x.T


@pytest.mark.parametrize(
    ("key", "module", "name", "wrong"),
    [
        ("courant-fischer", quadratic_forms, "general_courant_fischer", lambda: False),
        (
            "courant-fischer",
            quadratic_forms,
            "largest_eigenvalue",  # of the symmetric part, for which it would be true
            lambda a, right=quadratic_forms.largest_eigenvalue: right((a + a.T) / 2),
        ),
        ("form-is-bilinear", quadratic_forms, "FORM", ZeroMatrix(SIZE, SIZE)),
        ("rayleigh-quotient", quadratic_forms, "quotient", lambda x, a: (x.T * a * x)[0]),
        ("theorem-fixes-the-matrix", singular_values, "EXAMPLE", 2 * singular_values.EXAMPLE),
        ("courant-fischer-svd", singular_values, "EXAMPLE", 5 * eye(3)),
        ("courant-fischer-svd", singular_values, "general_courant_fischer", lambda: False),
        # With k = j admitted, the products are not 0.
        ("svd-terms-orthogonal", singular_values, "INNER_PRODUCT", OneMatrix(1, 1)),
        ("svd-terms-orthogonal", singular_values, "LEFT", skew(singular_values.LEFT)),
        ("affine-maps-take-lines-to-lines", affine_maps, "cube", lambda x: 3 * x),
        ("affine-maps-take-lines-to-lines", affine_maps, "affine", bent),
        (
            "translation-in-homogeneous-coordinates",
            affine_maps,
            "translation",
            lambda shift, right=affine_maps.translation: right(2 * shift),
        ),
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
        (
            "svd-of-omega",
            singular_values,
            "decomposition",
            lambda matrix, right=singular_values.decomposition: right(matrix)[1:],
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
        ("training-maximises-scores", feature_copying, "derivative_of_the_score", transposed),
        ("optimisation-copies-features", feature_copying, "derivative_of_the_score", transposed),
        # Exponentials without their sum do change under a common shift.
        (
            "training-maximises-scores",
            feature_copying,
            "values",
            lambda: list(feature_copying.Z[:3]),
        ),
        # Were the parts v zero, the tokens would be their features.
        ("feature-part-maximises-score", feature_copying, "REST", (Matrix([0, 0]),) * 2),
    ],
)
def test_what_is_wrong_is_seen(
    key: str, module: ModuleType, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert turned(key)
