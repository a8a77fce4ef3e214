"""Claims on affine maps, the shear and homogeneous coordinates."""

from __future__ import annotations

from sympy import (
    BlockMatrix,
    Expr,
    Identity,
    Integer,
    Matrix,
    MatrixExpr,
    MatrixSymbol,
    Symbol,
    ZeroMatrix,
    block_collapse,
    expand,
    eye,
    symbols,
)

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven, refuted

FROM, TO = symbols("d k", integer=True, positive=True)
LINEAR = MatrixSymbol("A", TO, FROM)
SHIFT = MatrixSymbol("b", TO, 1)
POINTS = MatrixSymbol("x", FROM, 1), MatrixSymbol("y", FROM, 1)
T = Symbol("t", real=True)


def affine(point: MatrixExpr) -> MatrixExpr:
    """Return A x + b, of any sizes."""
    return LINEAR * point + SHIFT


def cube(number: Expr | int) -> Expr:
    """Return x^3, which maps the line onto the line, one to one, and is not affine."""
    return number**3


def _is_zero(difference: MatrixExpr) -> bool:
    return bool(difference.doit().expand().doit().is_ZeroMatrix)


def _lines_to_lines() -> Finding:
    x, y = POINTS
    on_line = affine((1 - T) * x + T * y) - (1 - T) * affine(x) - T * affine(y)
    a, b = symbols("a b", real=True)
    # (x, y) -> (x^3, y^3) is one to one on the plane, and bends the line y = x + 1.
    p, q, r = (Matrix([cube(k), cube(k + 1)]) for k in (0, 1, 2))
    bent = Matrix.hstack(q - p, r - p).det() != 0
    return refuted(
        "x^3 takes the only line of a one-dimensional space to itself, one to one, but x^3 at 1 is "
        "not the mean of its values at 0 and 2. In the plane (x^3, y^3) bends y = x + 1. "
        "A x + b takes (1 - t) x + t y to the same combination of the images, in every dimension",
        claim_fails=2 * cube(1) != cube(0) + cube(2)
        and expand(cube(a) - cube(b) - (a - b) * ((a + b / 2) ** 2 + 3 * b**2 / 4)) == 0,
        correction_holds=_is_zero(on_line) and bent,
    )


def _line_through(point: Matrix) -> bool:
    """Return whether point + t (1, 2) is a subspace, which it is if and only if it contains 0."""
    return Matrix.hstack(point, Matrix([1, 2])).rank() < 2


def _lines_are_no_subspaces() -> Finding:
    return imprecise(
        "(0, 1) + t (1, 2) does not contain 0; t (1, 2) contains 0, all sums and all multiples",
        part_that_holds=not _line_through(Matrix([0, 1])),
        part_that_fails=_line_through(Matrix([0, 0])) and _line_through(Matrix([3, 6])),
    )


def _affine_is_not_linear() -> Finding:
    x, y = POINTS
    return imprecise(
        "with f(x) = A x + b, f(x + y) - f(x) - f(y) = -b in every dimension: not 0 if b is not 0, "
        "but every linear map is affine, with b = 0, and takes lines to lines as well",
        part_that_holds=_is_zero(affine(x + y) - affine(x) - affine(y) + SHIFT),
        part_that_fails=_is_zero(
            (affine(x + y) - affine(x) - affine(y)).subs(SHIFT, ZeroMatrix(TO, 1))
        ),
    )


def shear(slope: Expr) -> Matrix:
    """Return the printed matrix of a shear."""
    return Matrix([[1, slope], [0, 1]])


_SLOPE, _SECOND, _X1, _X2, _Y1, _Y2 = symbols("a c x_1 x_2 y_1 y_2", real=True)


def _shear_as_example() -> Finding:
    s, p, q = shear(_SLOPE), Matrix([_X1, _X2]), Matrix([_Y1, _Y2])
    return imprecise(
        "S is affine, since S((1 - t) p + t q) = (1 - t) S p + t S q; but S(p + q) = S p + S q and "
        "S 0 = 0: it is one of the affine maps that are linear",
        part_that_holds=(s * ((1 - T) * p + T * q) - (1 - T) * s * p - T * s * q)
        .expand()
        .is_zero_matrix
        and s != eye(2),
        part_that_fails=(s * (p + q) - s * p - s * q).expand().is_zero_matrix,
    )


def _shear_keeps_heights() -> Finding:
    return proven("(S x)_2 = x_2 for every a", (shear(_SLOPE) * Matrix([_X1, _X2]))[1] == _X2)


def _shear_translates() -> Finding:
    def moved(first: Expr, height: Expr) -> Expr:
        return expand((shear(_SLOPE) * Matrix([first, height]))[0] - first)

    return imprecise(
        "(S x)_1 - x_1 = a x_2: the same for all points at one height, but another at another "
        "height, and 0 at height 0",
        part_that_holds=moved(_X1, _X2) == moved(_Y1, _X2) == _SLOPE * _X2,
        part_that_fails=moved(_X1, _X2) != moved(_X1, _Y2) and moved(_X1, Integer(0)) == 0,
    )


def translation(shift: MatrixExpr) -> BlockMatrix:
    """Return the matrix that translates in homogeneous coordinates."""
    return BlockMatrix([[Identity(TO), shift], [ZeroMatrix(1, TO), Identity(1)]])


def _homogeneous_coordinates() -> Finding:
    point = MatrixSymbol("x", TO, 1)
    moved = block_collapse(translation(SHIFT) * BlockMatrix([[point], [Identity(1)]]))
    matrix = Matrix([[1, 0, _SLOPE], [0, 1, _SECOND], [0, 0, 1]])
    return proven(
        "[[I, b], [0, 1]] (x, 1) = (x + b, 1), block by block and in every dimension; written out "
        "in the plane; a translation by b != 0 is not linear without the further coordinate, since "
        "it does not keep 0",
        moved.blocks[0, 0] == SHIFT + point,
        moved.blocks[1, 0] == Identity(1),
        matrix * Matrix([_X1, _X2, 1]) == Matrix([_X1 + _SLOPE, _X2 + _SECOND, 1]),
    )


CLAIMS = [
    note(
        "affine-maps-take-lines-to-lines",
        "An affine transformation is a transformation that takes lines to lines.",
        Verdict.FALSE,
        _lines_to_lines,
        at("003:20", r"\to"),
        corrected="Affine: f(x) = A x + b. It takes lines to lines, or to points. Conversely a "
        "bijection of R^n, n >= 2, that takes lines to lines is affine (the fundamental theorem "
        "of affine geometry; see Artstein-Avidan and Slomka, arXiv 1604.01762).",
        why="In one dimension x^3 takes lines to lines too; the converse needs a bijection and n "
        ">= 2.",
    ),
    note(
        "lines-are-no-subspaces",
        "A line is not a subspace.",
        Verdict.IMPRECISE,
        _lines_are_no_subspaces,
        at("003:24"),
        corrected="A line is a subspace if and only if it goes through 0.",
        why="Lines through 0 are subspaces.",
    ),
    note(
        "affine-maps-are-not-linear",
        "Since lines are not subspaces, an affine transformation is not linear: f(x + y) = f(x) + "
        "f(y) does not hold.",
        Verdict.IMPRECISE,
        _affine_is_not_linear,
        at("003:24", "f(x + y) = f(x) + f(y)"),
        corrected="f(x) = A x + b is linear if and only if b = 0; in general f(x + y) = f(x) + "
        "f(y) - f(0).",
        why="Linear maps are affine, and take lines to lines; what fails is f(0) = 0, if b is "
        "not 0.",
    ),
    note(
        "shear-as-example",
        "The shear S = [[1, a], [0, 1]] is an example of an affine map, which is not linear.",
        Verdict.IMPRECISE,
        _shear_as_example,
        at("003:26-30", r"S = \begin{bmatrix} 1 & a \\ 0 & 1\end{bmatrix}"),
        corrected="The shear is linear, so affine with b = 0. A translation x -> x + b is affine "
        "and not linear.",
        why="It is to illustrate that affine maps are not linear, but a shear is linear.",
    ),
    note(
        "shear-keeps-heights",
        "Under the shear the vertical position of the points does not change.",
        Verdict.PROVEN,
        _shear_keeps_heights,
        at("003:36"),
    ),
    note(
        "shear-translates",
        "On x_1 the shear is only a translation.",
        Verdict.IMPRECISE,
        _shear_translates,
        at("003:36", "x_1"),
        corrected="The points at height x_2 are translated by a x_2; the whole plane is not "
        "translated.",
        why="The shift a x_2 depends on the height x_2.",
    ),
    note(
        "translation-in-homogeneous-coordinates",
        "With a further coordinate, translation is a linear transformation (homogeneous "
        "coordinates).",
        Verdict.PROVEN,
        _homogeneous_coordinates,
        at("003:38"),
    ),
]
