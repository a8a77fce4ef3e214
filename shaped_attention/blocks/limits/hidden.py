"""Functions of the entries of rows: f(h) is a multiple of h, and what no h is correlated with.

For Gaussian h with covariance V, by Stein's lemma f(h) = alpha o h + y with alpha_a = E f'(h_a),
and y has no part along the sources of h. As its coefficient is of order eps, the limit needs of y
only the mean Gram matrix E f f^T - alpha alpha^T o V:

- slopes 1 + c_+ eps and 1 + c_- eps: ((c_+ - c_-) / 2)^2 (2 K - pi V) / pi, K the arc-cosine
  kernel of Cho and Saul (2009);
- f of entries of order eps, by Taylor's formula: h^2 has V_aa V_bb + 2 V_ab^2, and h^3 has the part
  3 V_aa h;
- f of entries of order 1: with Hermite coefficients a_k of f(sqrt(V_aa) g), sum over k != 1 of
  a_k a_k^T o rho^k;
- a gate u f(z), z of order eps and independent of u: f'' V_z,aa u / 2, and f'^2 V_u o V_z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shaped_attention.blocks.activations import derivatives as at_a_point
from shaped_attention.blocks.activations import is_smooth
from shaped_attention.blocks.limits.jets import SMOOTH, Jet
from shaped_attention.blocks.limits.numbers import LimitError, added, test_value, times
from shaped_attention.blocks.limits.prepared_rows import rotated, with_unit_rows
from shaped_attention.blocks.limits.rows import Rows, aligned, inner, joined, known_gram
from shaped_attention.blocks.limits.series import Series
from shaped_attention.blocks.limits.small import Matrix, Small
from shaped_attention.blocks.limits.sources import Source
from shaped_attention.numerics import primitives
from shaped_attention.numerics.graph import Extended

_NODES, _ORDERS = 60, 30
"""Nodes of Gaussian means, and Hermite coefficients, of functions of entries of order 1."""


class Activated(Extended):
    """A function of the entries of rows, which is expanded when something asks for its law."""

    def __init__(self, base: Rows, function: Callable[[Any], Any]) -> None:
        self.base, self._function = base, function
        self._rows: Rows | None = None

    @property
    def shape(self) -> tuple[int, Any]:
        """Rows and columns."""
        return self.base.shape

    def _then(self, function: Callable[[Any], Any]) -> Activated:
        inside = self._function
        return Activated(self.base, lambda x: function(inside(x)))

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return a function of the entries; other primitives see the expansion."""
        if function.__name__ in SMOOTH:
            return self._then(function)
        rows = self.rows()
        return function(*(rows if x is self else x for x in args), **named)

    def rows(self) -> Rows:
        """Return the expansion, one for all uses."""
        if self._rows is None:
            self._rows = self._expansion()
        return self._rows

    def _expansion(self) -> Rows:
        small = inner(self.base, self.base) * self.base.spaces[0].size ** -1.0
        if len(self.base.spaces) > 1:
            raise LimitError("a function of entries acts on rows of one space, before they join")
        self.base.check_plain()
        if small.power == 2 and small.M is not None:
            return _expanded(self.base, self._function, small.M)
        return _general(self.base, self._function, known_gram(self.base))

    def map_entries(self, function: Callable[[Any], Any]) -> Activated:
        """Return a function of the values."""
        return self._then(function)

    def times_rows(self, u: Rows) -> Any:
        """Return the product with rows: those of which this is a function, or others."""
        if u.without_shift() is self.base:
            function, b = self._function, 0.0 if u.shift is None else u.shift.c[0]
            return Activated(self.base, lambda x: function(x) * (x + b))
        return _gated(u, self)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Activated) and other.base is self.base:
            f, g = self._function, other._function
            return Activated(self.base, lambda x: f(x) * g(x))
        if isinstance(other, Rows):
            return self.times_rows(other)
        if isinstance(other, float | int):
            return self._then(lambda y: y * other)
        return self.rows() * other

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, float | int):
            return self._then(lambda y: y / other)
        return self.rows() / other

    def __add__(self, other: Any) -> Any:
        if isinstance(other, float | int):
            return self._then(lambda y: y + other)
        return self.rows() + other

    __radd__, __rmul__ = __add__, __mul__

    def __rmatmul__(self, matrix: Any) -> Rows:
        return matrix @ self.rows()

    def __matmul__(self, other: Any) -> Any:
        return self.rows() @ other

    @property
    def mT(self) -> Any:
        """The transpose of the expansion."""
        return self.rows().mT


def primitive_of_rows(x: Rows, function: Callable[..., Any], args: Any, named: Any) -> Any:
    """Return a primitive of rows."""
    name, a = function.__name__, x.layer.algebra
    if name == "constant":
        return Jet.of(a, np.asarray(args[0]))
    if name == "concatenate":
        return joined(args[0])
    if name == "columns":
        return _columns(x, *args[1:])
    if name == "row_squares":
        return x.squares()
    if name == "unit_rows":
        x.check_plain()
        return x / x.squares().root() if all(s.grows for s in x.spaces) else with_unit_rows(x)
    if name == "rotate":
        return rotated(x, np.asarray(args[1]))
    if name == "leaky":
        _check_projected(x)
        return _leaky(x, args[1], args[2])
    if name in SMOOTH:
        return function_of(x, function)
    raise LimitError(f"{name} of rows has no rule")


def function_of(x: Rows, function: Callable[[Any], Any]) -> Activated:
    """Return a function of the entries of rows."""
    _check_projected(x)
    if x.shift is None:
        return Activated(x, function)
    b = x.shift
    if b.power or not all(isinstance(c, float | int) for c in b.c) or b.c[1] or b.c[2]:
        raise LimitError("a bias inside a function must be a number at every width")
    return Activated(x.without_shift(), lambda y: function(y + b.c[0]))


def _check_projected(x: Rows) -> None:
    if any(x.layer.is_of_tokens(s) for s, _ in x.parts):
        raise LimitError(
            "V does not determine functions of single entries of tokens; they act on a projection"
        )
    if any(s.entries for s, _ in x.parts):
        raise LimitError("functions of hidden units have a rule after a projection only")


def _columns(x: Rows, first: Any, last: Any) -> Rows:
    """Return one part of a direct sum."""
    x.check_plain()
    begin: Any = 0
    for space in x.spaces:
        end = begin + space.size
        if begin == first and end == last:
            if any(s.copied for s, _ in x.parts if s.space is space):
                raise LimitError("rows that were joined twice are taken apart again")
            return Rows(x.layer, [(s, c) for s, c in x.parts if s.space is space], x.count, [space])
        begin = end
    raise LimitError("some of the columns of rows have no law that follows from V")


def _rest(x: Rows, gram: Matrix, power: int) -> list[tuple[Source, Jet]]:
    """Return eps^power y, E y y^T = gram: what is left of a function of the entries of x."""
    if gram is None:
        return []
    a, entries = x.layer.algebra, frozenset(s.whole for s, _ in x.parts)
    eye = a.identity(x.count)
    source = Source(x.spaces[0], x.count, gram=gram, entries=entries)
    return [(source, Jet(a, eye.shape, eye, power=power))]


def _parted(x: Rows, value: Any, alpha: Matrix, gram: Matrix, power: int) -> Rows:
    """Return value x + eps^power (alpha o x + y), with E y y^T = gram."""
    a = x.layer.algebra
    out = {s: c * value for s, c in x.parts}
    if alpha is not None:
        column = Jet(a, alpha.shape, alpha, power=power)
        for s, c in x.parts:
            out[s] = out[s] + c * column
    return x.like([*out.items(), *_rest(x, gram, power)])


def _leaky(x: Rows, up: Any, down: Any) -> Rows:
    """Return the shaped ReLU, E|h_a||h_b| = (2 K - pi V) / pi + V."""
    a, up, down = x.layer.algebra, Series.of(up), Series.of(down)
    if up.power or down.power or test_value(up.c[0]) != test_value(down.c[0]):
        raise LimitError("the slopes of a ReLU must agree at infinite width: 1 + c / sqrt n")
    v = known_gram(x)
    spread = 0.5 * (up.c[1] + (-1.0) * down.c[1])
    kernel = a.run("arc_cosine_kernel", (v,), primitives.arc_cosine_kernel)
    gram = a.plus(a.scaled(2.0 / math.pi, kernel), a.scaled(-1.0, v))
    mean = Series(0, *(0.5 * (p + q) for p, q in zip(up.c, down.c, strict=True)))
    return _parted(x, mean, None, a.scaled(spread**2, gram), 1)


def _gated(u: Rows, gate: Activated) -> Rows:
    """Return u f(z) = f(0) u + f' u z + f'' u z^2 / 2."""
    a, z = u.layer.algebra, gate.base
    value, first, second, _ = _expansion(gate._function)
    v = known_gram(u)
    aligned(u, z)
    w = inner(z, z) * z.spaces[0].size ** -1.0
    if inner(u, z).M is not None or w.power != 2:
        raise LimitError("a gate must be independent of what it multiplies, and tend to a constant")
    variances = a.scaled(0.5 * second, a.diagonal(w.M))
    out = _parted(u, value, variances, None, 2)
    out.parts += _rest(z, a.scaled(first**2, a.times(v, w.M)), 1)
    return out


def _expansion(function: Callable[[Any], Any]) -> tuple[float, float, float, float]:
    """Return value and derivatives at 0."""
    if not is_smooth(function, 0.0):
        raise LimitError("a function of entries that tend to 0 must be smooth there")
    return at_a_point(function, 0.0)


def _expanded(x: Rows, function: Callable[[Any], Any], v: Small) -> Rows:
    """Return f of rows of order eps, whose covariance is eps^2 v."""
    a = x.layer.algebra
    value, first, second, third = _expansion(function)
    variances = a.diagonal(v)
    square = a.plus(a.product(variances, a.transposed(variances)), a.scaled(2.0, a.times(v, v)))
    out = _parted(x, first, a.scaled(0.5 * third, variances), None, 2)
    out.parts += _rest(x, a.scaled((0.5 * second) ** 2, square), 2)
    out.shift = None if value == 0.0 else Series(0, value)
    return out


def _general(x: Rows, function: Callable[[Any], Any], v: Small) -> Rows:
    """Return f of Gaussian entries of order one."""
    a = x.layer.algebra
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    table = np.empty((_NODES, _ORDERS))
    before, here = np.zeros(_NODES), np.ones(_NODES)
    for k in range(_ORDERS):
        table[:, k] = weights / weights.sum() * here
        before, here = here, (nodes * here - math.sqrt(k) * before) / math.sqrt(k + 1.0)

    def coefficients(v: Any) -> tuple[Any, Any]:
        """Return the standard deviations, and Hermite coefficients (m, orders)."""
        sigma = primitives.sqrt(primitives.diagonal(v))
        at_nodes = function(sigma @ primitives.constant(nodes[None], like=v))
        return sigma, at_nodes @ primitives.constant(table, like=v)

    def one(each: Any, k: int) -> Any:
        return each @ primitives.constant(np.eye(_ORDERS)[:, k : k + 1], like=each)

    def slopes(v: Any) -> Any:
        """Return E f'(h_a), a column."""
        sigma, each = coefficients(v)
        return one(each, 1) / sigma

    def left_over(v: Any) -> Any:
        """Return the sum over k != 1 of a_k a_k^T o rho^k, by Horner's rule."""
        sigma, each = coefficients(v)
        rho, total = v / (sigma @ sigma.mT), 0.0 * v
        for k in range(_ORDERS - 1, -1, -1):
            total = total * rho
            if k != 1:
                total = total + one(each, k) @ one(each, k).mT
        return total

    # One operation each: high orders may vanish at the test point, and matter at large V.
    alpha = a.run(("hidden slopes", function), (v,), slopes)
    gram = a.run(("hidden units", function), (v,), left_over)
    return _parted(x, 0.0, alpha, gram, 0)


def mean_square(function: Callable[[Any, Any], Any], s: Any) -> Series:
    """Return E f(g, s)^2 for a standard normal g, as a series: one token of variance 1."""
    from shaped_attention.blocks.limits.algebra import Algebra
    from shaped_attention.blocks.limits.layer import Layer

    a = Algebra()
    layer = Layer(a, 1, 1)
    tokens = layer.of_tokens(Jet.of(a, np.eye(1)))
    h = function(layer.project(tokens, layer.width) / layer.width**0.5, s)
    if isinstance(h, Activated):
        small = inner(h.base, h.base) * layer.width**-1.0
        if small.power == 2:
            value, first, second, _ = at_a_point(h._function, 0.0)
            variance = _number(small.M)
            return Series(0, value**2, 0.0, variance * (first**2 + value * second))
        h = h.rows()
    gram = (inner(h, h) * layer.width**-1.0).at(0)
    return Series(0, *(_number(x) for x in (gram.M, gram.D, gram.E)))


def _number(matrix: Matrix) -> Any:
    """Return the only entry of a matrix (1, 1), a number or a formula."""
    if matrix is None:
        return 0.0
    if matrix.constant:
        return float(matrix.shadow[0, 0])
    if matrix.terms is not None:
        return added(*(times(c, _number(x)) for x, c in matrix.terms.items()))
    assert matrix.origin is not None
    name, args = matrix.origin
    assert name in ("matmul", "times", "diagonal")
    return math.prod(map(_number, args))
