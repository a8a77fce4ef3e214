"""Tracing: a description run once on `Matrix` objects records the graph of its operations.

The graph knows every size, so programs for fixed sizes follow from it: `program` turns it into
operations whose code `step` emits, and `plan` walks over it with library routines. A matrix
has a scalar coefficient and a transposition that are applied only when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.scalars import Number, Scalar, is_one, name_of, product

Shape = tuple[int, int]


@dataclass(eq=False)
class Node:
    """One operation of the graph.

    `kind` is the name of the operation (see `operations`), "input" or "constant"; `inputs` are the
    nodes whose values it takes, `shape` rows and columns of its value, and `scalars` and `integers`
    its parameters. A value that is `lower` is lower triangular by construction. A constant has its
    entries as `data`, random numbers the `address` from which their key is derived, and an
    activated Gram matrix the trace and the result of the activation, `inside`.
    """

    kind: str
    inputs: tuple[Node, ...]
    shape: Shape
    scalars: tuple[Number, ...] = ()
    integers: tuple[int, ...] = ()
    lower: bool = False
    data: NDArray[np.float64] | None = None
    address: Hashable = None
    inside: tuple[Graph, Node] | None = None

    @cached_property
    def is_identity(self) -> bool:
        """Whether the node is a constant identity matrix."""
        return self.data is not None and np.array_equal(self.data, np.eye(*self.shape))

    @property
    def is_gram(self) -> bool:
        """Whether the node is a product A A^T or A^T A."""
        return (
            self.kind == "product"
            and self.inputs[0] is self.inputs[1]
            and self.integers[0] != self.integers[1]
        )


@dataclass
class Graph:
    """The operations of a trace in the order of their first use, without repetition."""

    nodes: list[Node] = field(default_factory=list)
    _known: dict[Hashable, Node] = field(default_factory=dict)

    def node(
        self,
        kind: str,
        inputs: Sequence[Node],
        shape: Shape,
        scalars: Sequence[Number] = (),
        integers: Sequence[int] = (),
        **named: Any,
    ) -> Matrix:
        """Return the value of an operation; append it unless the trace already has it."""
        new = Node(kind, tuple(inputs), shape, tuple(scalars), tuple(integers), **named)
        # Inputs, constants and sums over hidden units are always distinct.
        if (inputs or new.address is not None) and new.inside is None:
            key = (
                kind, shape, tuple(map(id, inputs)), tuple(map(name_of, scalars)), new.integers,
                new.lower, new.address,
            )  # fmt: skip
            known = self._known.setdefault(key, new)
            if known is not new:
                return Matrix(self, known)
        self.nodes.append(new)
        return Matrix(self, new)

    def weighted(self, node: Node, number: Number) -> Matrix:
        """Return a multiple of a sum, or of parts side by side, whose numbers take it in."""
        scalars, inputs = [product(number, s) for s in node.scalars], list(node.inputs)
        for k, x in enumerate(node.inputs):
            if node.kind == "concatenate" and x.kind == "combine":
                inputs[k], scalars[k] = self.weighted(x, scalars[k]).node, 1.0
        return self.node(node.kind, inputs, node.shape, scalars, node.integers, lower=node.lower)

    def constant(self, array: NDArray[np.float64]) -> Matrix:
        """Return a constant matrix; equal ones are stored once."""
        entries = np.array(array, dtype=np.float64, order="C")  # which the caller may change
        key = ("constant", entries.shape, entries.tobytes())
        if key in self._known:
            return Matrix(self, self._known[key])
        shape = (entries.shape[0], entries.shape[1])
        lower = shape[0] <= shape[1] and not np.triu(entries, 1).any() and shape[0] == shape[1] > 1
        new = self.node("constant", (), shape, data=entries, lower=lower)
        self._known[key] = new.node
        return new


class Operand:
    """An operand of a description, whose differences and powers are sums and products."""

    __slots__ = ()
    __array_ufunc__ = None  # so that an array leaves its product with an operand to it

    def __neg__(self: Any) -> Any:
        return self * -1.0

    def __sub__(self: Any, other: Any) -> Any:
        return self + (-1.0) * other

    def __rsub__(self: Any, other: Any) -> Any:
        return (-1.0) * self + other

    def __pow__(self: Any, power: float) -> Any:
        if not isinstance(power, float | int) or power < 1 or power != int(power):
            raise TypeError(
                f"powers of matrices in descriptions must be integers >= 1; got {power}; "
                "primitives.sqrt is the square root"
            )
        return self if power == 1 else self * self ** (power - 1)

    def __bool__(self) -> bool:
        raise TypeError("a description may branch on sizes, never on entries of a matrix")

    def _compared(self, other: object) -> bool:
        return bool(self)

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _compared
    __hash__ = object.__hash__


class Extended(Operand):
    """Rows, whose operators take precedence over those of a matrix."""


class Matrix(Operand):
    """A matrix of a trace: `coefficient` times the value of `node`, or times its transpose."""

    __slots__ = ("coefficient", "graph", "node", "transposed")

    def __init__(
        self, graph: Graph, node: Node, coefficient: Number = 1.0, transposed: bool = False
    ) -> None:
        self.graph, self.node = graph, node
        self.coefficient, self.transposed = coefficient, transposed

    @property
    def shape(self) -> Shape:
        """Rows and columns."""
        rows, columns = self.node.shape
        return (columns, rows) if self.transposed else (rows, columns)

    @property
    def mT(self) -> Matrix:
        """The transpose."""
        return Matrix(self.graph, self.node, self.coefficient, not self.transposed)

    def plain(self) -> Matrix:
        """Return the same matrix without a pending transposition; the coefficient stays."""
        if not self.transposed:
            return self
        if 1 in self.node.shape:
            # A row and a column have the same entries in the same order.
            value = self.graph.node("reshape", (self.node,), self.shape)
        else:
            value = self.graph.node("transpose", (self.node,), self.shape)
        return Matrix(self.graph, value.node, self.coefficient)

    def value(self) -> Matrix:
        """Return the same matrix with neither transposition nor coefficient pending."""
        flat = self.plain()
        if is_one(flat.coefficient):
            return flat
        if flat.node.kind in ("combine", "concatenate"):
            return self.graph.weighted(flat.node, flat.coefficient)
        return self.graph.node(
            "scale", (flat.node,), flat.shape, (flat.coefficient,), lower=flat.node.lower
        )

    def __matmul__(self, other: Matrix) -> Matrix:
        if isinstance(other, Extended):
            return NotImplemented
        other = _matrix(other)
        (rows, inner), (other_inner, columns) = self.shape, other.shape
        if inner != other_inner:
            raise ValueError(
                f"matrices of shapes {self.shape} and {other.shape} cannot be multiplied"
            )
        number = product(self.coefficient, other.coefficient)
        if inner == columns and other.node.is_identity:
            return Matrix(self.graph, self.node, number, self.transposed)
        if inner == rows and self.node.is_identity:
            return Matrix(self.graph, other.node, number, other.transposed)
        turned = int(self.transposed), int(other.transposed)
        lower = not any(turned) and self.node.lower and other.node.lower
        result = self.graph.node(
            "product", (self.node, other.node), (rows, columns), (), turned, lower=lower
        )
        return Matrix(self.graph, result.node, number)

    def __rmatmul__(self, other: Any) -> Matrix:
        return _matrix(other) @ self

    def __add__(self, other: Matrix | Number) -> Matrix:
        if isinstance(other, Extended):
            return NotImplemented
        if isinstance(other, float | int | Scalar):
            flat = self.plain()
            return self.graph.node("shift", (flat.node,), flat.shape, (flat.coefficient, other))
        other = _matrix(other)
        shared = _common_left_factor(self, other)
        if shared is not None:
            return shared
        a, b = _larger_first(self, other)
        lower = a.node.lower and b.node.lower and a.shape == b.shape
        return self.graph.node(
            "combine", (a.node, b.node), _broadcast(a, b), (a.coefficient, b.coefficient),
            lower=lower,
        )  # fmt: skip

    __radd__ = __add__

    def __mul__(self, other: Matrix | Number) -> Matrix:
        if isinstance(other, Extended):
            return NotImplemented
        if isinstance(other, float | int | Scalar):
            return Matrix(self.graph, self.node, product(self.coefficient, other), self.transposed)
        a, b = _larger_first(self, _matrix(other))
        lower = a.node.lower or (b.node.lower and b.shape == a.shape)
        result = self.graph.node("times", (a.node, b.node), _broadcast(a, b), lower=lower)
        return Matrix(self.graph, result.node, product(a.coefficient, b.coefficient))

    __rmul__ = __mul__

    def __truediv__(self, other: Matrix | Number) -> Matrix:
        if isinstance(other, Extended):
            return NotImplemented
        if isinstance(other, float | int | Scalar):
            return self * (1.0 / other)
        b = _matrix(other).plain()
        rows, columns = self.shape
        a = _expanded(self, (max(rows, b.shape[0]), max(columns, b.shape[1])))
        _broadcast(a, b)
        # A zero of both is not a zero of the quotient.
        lower = a.node.lower and b.shape != a.shape
        result = self.graph.node("over", (a.node, b.node), a.shape, lower=lower)
        return Matrix(self.graph, result.node, product(a.coefficient, 1.0 / b.coefficient))

    def linear(
        self, kind: str, shape: Callable[[int, int], Shape], integers: Sequence[int] = ()
    ) -> Matrix:
        """Apply a linear operation to a matrix that is not transposed; the coefficient stays."""
        result = self.graph.node(kind, (self.node,), shape(*self.shape), (), integers)
        return Matrix(self.graph, result.node, self.coefficient)

    def elementwise(self, kind: str, scalars: Sequence[Number] = ()) -> Matrix:
        """Apply a function to every entry."""
        flat = self.value()
        return self.graph.node(kind, (flat.node,), flat.shape, scalars)

    def __rtruediv__(self, other: Number) -> Matrix:
        flat = self.plain()
        inverse = self.graph.node("reciprocal", (flat.node,), flat.shape)
        return Matrix(self.graph, inverse.node, product(other, 1.0 / flat.coefficient))


def _matrix(other: Any) -> Matrix:
    if not isinstance(other, Matrix):
        raise TypeError(
            f"a matrix of a description cannot be combined with {type(other).__name__}; "
            "primitives.constant(array, like=matrix) turns an array of numbers into a matrix"
        )
    return other


def _expanded(matrix: Matrix, shape: Shape) -> Matrix:
    """Return a row, a column or a single entry as a matrix of that shape."""
    flat = matrix.plain()
    if flat.shape[0] == 1 < shape[0]:
        flat = flat.graph.constant(np.ones((shape[0], 1))) @ flat
    if flat.shape[1] == 1 < shape[1]:
        flat = flat @ flat.graph.constant(np.ones((1, shape[1])))
    return flat.plain()


def _larger_first(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    """Order two matrices so that the second can be broadcast to the first."""
    a, b = a.plain(), b.plain()
    if a.shape[0] * a.shape[1] < b.shape[0] * b.shape[1]:
        a, b = b, a
    return _expanded(a, (max(a.shape[0], b.shape[0]), max(a.shape[1], b.shape[1]))), b


def _broadcast(a: Matrix, b: Matrix) -> Shape:
    """Return the shape of a combination: b is a matrix, a row, a column or a single entry."""
    if not all(y in (1, x) for x, y in zip(a.shape, b.shape, strict=True)):
        raise ValueError(f"matrices of shapes {a.shape} and {b.shape} cannot be combined")
    return a.shape


def _common_left_factor(a: Matrix, b: Matrix) -> Matrix | None:
    """Return ``F (A + B)`` for ``F A + F B``, which saves a product; None if it does not apply."""
    plain = [x.node.kind == "product" and not any(x.node.integers) for x in (a, b)]
    if a.transposed or b.transposed or not all(plain):
        return None
    if a.node.inputs[0] is not b.node.inputs[0] or a.node is b.node:
        return None
    left = Matrix(a.graph, a.node.inputs[0])
    right = Matrix(a.graph, a.node.inputs[1], a.coefficient) + Matrix(
        b.graph, b.node.inputs[1], b.coefficient
    )
    return left @ right


def roots_alone(graph: Graph, results: Sequence[Matrix]) -> list[Matrix]:
    """Return the same results, from triangular factors where directions have no other use."""
    nodes = needed([x.node for x in results], graph.nodes)
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for x in node.inputs:
            users.setdefault(x, []).append(node)
    new: dict[Node, Node] = {}
    for node in nodes:
        inputs = [new.get(x, x) for x in node.inputs]
        whole = node.inputs[0] if node.kind == "columns" else None
        if whole is not None and whole.kind == "orthonormal" and _is_root(whole, users[whole]):
            rows = new.get(whole.inputs[0], whole.inputs[0])
            new[node] = graph.node("lower", (rows,), node.shape, lower=True).node
        elif any(a is not b for a, b in zip(inputs, node.inputs, strict=True)):
            new[node] = graph.node(
                node.kind, inputs, node.shape, node.scalars, node.integers, lower=node.lower,
                address=node.address, inside=node.inside,
            ).node  # fmt: skip
    return [Matrix(graph, new.get(x.node, x.node), x.coefficient, x.transposed) for x in results]


def _is_root(node: Node, users: Sequence[Node]) -> bool:
    """Return whether of [L, E, d] only L is used, and nothing was known before."""
    square = (node.shape[0], node.shape[0])
    alone = all(x.kind == "columns" and (x.shape, x.integers) == (square, (0,)) for x in users)
    return alone and node.inputs[0].shape[0] == node.shape[0]


def needed(results: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that the results depend on, in their order."""
    wanted = {id(node) for node in results}
    kept = []
    for node in reversed(nodes):
        if id(node) in wanted:
            kept.append(node)
            wanted.update(id(x) for x in node.inputs)
    return kept[::-1]
