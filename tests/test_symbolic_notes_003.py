"""Claims of document 003, forms, affine maps, scores and features: each check can turn."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from sympy import BlockMatrix, Matrix, OneMatrix, Rational, ZeroMatrix, eye

from symbolic.claims import bilinear_forms, proportional_limit
from tests.ledger import turned


def skew(matrix: Matrix) -> Matrix:
    """Replace the first column by the sum of the first two: no longer orthogonal."""
    result = matrix.copy()
    result[:, 0] += matrix[:, 1]
    return result


SIZE = bilinear_forms.SIZE
SWAPPED = BlockMatrix(
    [
        [bilinear_forms.W_K * bilinear_forms.W_Q.T, bilinear_forms.W_Q * bilinear_forms.B_K],
        [bilinear_forms.B_Q.T * bilinear_forms.W_K.T, bilinear_forms.B_Q.T * bilinear_forms.B_K],
    ]
)


def bent(point: Any, right: Any = bilinear_forms.affine) -> Any:
    """A x + |x|^2 b."""
    return right(point) - bilinear_forms.SHIFT + bilinear_forms.SHIFT * (point.T * point)


TRANSPOSED = bilinear_forms.OTHER_TOKEN * bilinear_forms.TOKEN.T


@pytest.mark.parametrize(
    ("key", "module", "name", "wrong"),
    [
        ("courant-fischer", bilinear_forms, "general_courant_fischer", lambda: False),
        (
            "courant-fischer",
            bilinear_forms,
            "largest_eigenvalue",  # of the symmetric part, for which it would be true
            lambda a, right=bilinear_forms.largest_eigenvalue: right((a + a.T) / 2),
        ),
        ("form-is-bilinear", bilinear_forms, "FORM", ZeroMatrix(SIZE, SIZE)),
        ("rayleigh-quotient", bilinear_forms, "quotient", lambda x, a: (x.T * a * x)[0]),
        ("theorem-fixes-the-matrix", bilinear_forms, "EXAMPLE", 2 * bilinear_forms.EXAMPLE),
        ("courant-fischer-svd", bilinear_forms, "EXAMPLE", 5 * eye(3)),
        ("courant-fischer-svd", bilinear_forms, "general_courant_fischer", lambda: False),
        # With k = j admitted, the products are not 0.
        ("svd-terms-orthogonal", bilinear_forms, "INNER_PRODUCT", OneMatrix(1, 1)),
        ("svd-terms-orthogonal", bilinear_forms, "LEFT", skew(bilinear_forms.LEFT)),
        ("affine-maps-take-lines-to-lines", bilinear_forms, "cube", lambda x: 3 * x),
        ("affine-maps-take-lines-to-lines", bilinear_forms, "affine", bent),
        (
            "translation-in-homogeneous-coordinates",
            bilinear_forms,
            "translation",
            lambda shift, right=bilinear_forms.translation: right(2 * shift),
        ),
        ("lines-are-no-subspaces", bilinear_forms, "_line_through", lambda _point: False),
        (
            "affine-maps-are-not-linear",
            bilinear_forms,
            "affine",
            lambda x: bilinear_forms.LINEAR * x,
        ),
        ("shear-as-example", bilinear_forms, "SHEAR", eye(2)),
        (
            "shear-keeps-heights",
            bilinear_forms,
            "SHEAR",
            bilinear_forms.SHEAR + bilinear_forms.SHEAR.T - eye(2),
        ),
        ("shear-translates", bilinear_forms, "SHEAR", eye(2)),
        # The product of tokens alone, and its transpose.
        (
            "scores-as-attention-module",
            bilinear_forms,
            "SCORES",
            bilinear_forms.X * bilinear_forms.X.T,
        ),
        ("scores-as-attention-module", bilinear_forms, "SCORES", bilinear_forms.SCORES.T),
        # Left vectors that are not divided by sigma_k.
        (
            "svd-of-omega",
            bilinear_forms,
            "gram_of_left_vectors",
            lambda k, j, right=bilinear_forms.gram_of_left_vectors: 2 * right(k, j),
        ),
        (
            "svd-of-omega",
            bilinear_forms,
            "decomposition",
            lambda matrix, right=bilinear_forms.decomposition: right(matrix)[1:],
        ),
        ("svd-of-omega", bilinear_forms, "MATRIX", 2 * bilinear_forms.MATRIX),
        ("biases-are-translations", bilinear_forms, "ONE", 2 * bilinear_forms.ONE),
        (
            "scores-four-terms",
            bilinear_forms,
            "SCORES",
            bilinear_forms.X * bilinear_forms.W_Q * bilinear_forms.W_K.T,
        ),
        ("scores-homogeneous-coordinates", bilinear_forms, "OMEGA", SWAPPED),
        ("scores-are-biaffine", bilinear_forms, "score", lambda x, y: x + y),
        ("scores-as-bilinear-form", bilinear_forms, "OMEGA", SWAPPED),
        ("scores-as-bilinear-form", bilinear_forms, "_exists", lambda _formula: True),
        # Normalised by the squares of the lengths.
        ("scores-best-rank-one-form", bilinear_forms, "sqrt", lambda x: x),
        # Every derivative of one sign: then descent would raise all scores.
        (
            "training-maximises-scores",
            bilinear_forms,
            "row_of_derivatives",
            lambda: [-Rational(1, 8)] * 2,
        ),
        (
            "optimisation-copies-features",
            bilinear_forms,
            "row_of_derivatives",
            lambda: [-Rational(1, 8)] * 2,
        ),
        ("training-maximises-scores", bilinear_forms, "DERIVATIVE", TRANSPOSED),
        ("optimisation-copies-features", bilinear_forms, "DERIVATIVE", TRANSPOSED),
        # Exponentials without their sum do change under a common shift.
        (
            "training-maximises-scores",
            bilinear_forms,
            "values",
            lambda: list(proportional_limit.Z[:3]),
        ),
        # Were the parts v zero, the tokens would be their features.
        ("feature-part-maximises-score", bilinear_forms, "REST", (Matrix([0, 0]),) * 2),
    ],
)
def test_what_is_wrong_is_seen(
    key: str, module: ModuleType, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert turned(key)
