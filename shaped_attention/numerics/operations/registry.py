"""What an operation is: its faces, and the registry from which programs and executors are made.

A *kind* is a kind of node of a graph. `operation` registers what executors do for it. A *primitive*
is a function for descriptions. On torch tensors it runs as it is written; `primitive` adds what it
does to the matrices of a trace. A face that is missing is an error when the module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.matrices import View, entries
from shaped_attention.compiler.text import Real
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.graph import Matrix, Node, Shape
from shaped_attention.numerics.scalars import Number, Scalar, apply
from shaped_attention.numerics.threads import Team

F = TypeVar("F", bound=Callable[..., Any])


@runtime_checkable
class RunsPrimitives(Protocol):
    """An operand that runs primitives itself, such as rows of lazily revealed networks."""

    def run_primitive(self, function: Callable[..., Any], args: Any, named: Any) -> Any:
        """Return the value of a primitive, which also takes tensors and matrices of a graph."""


if TYPE_CHECKING:
    M = TypeVar("M", Tensor, Matrix)
    """Type of the operands of a description; all operands and results have the same type."""
    E = TypeVar("E", Tensor, Matrix, float, Scalar)
    """Type of the argument and value of a function of single entries, or of numbers."""
else:
    M = TypeVar("M", Tensor, Matrix, RunsPrimitives, np.ndarray)
    E = TypeVar("E", Tensor, Matrix, float, Scalar, RunsPrimitives, np.ndarray)

Orders: TypeAlias = list[float]


@dataclass(frozen=True)
class Here:
    """Where a node is emitted: where its value, `out`, and its inputs are.

    Its scalars are numbers or registers, and `key` the registers of the key of its random numbers.
    """

    node: Node
    out: View
    inputs: Sequence[View]
    scalars: Sequence[Real]
    key: tuple[str, str] = ("%k0", "%k1")

    def sizes(self, k: int) -> Shape:
        """Return rows and columns of an input."""
        return self.node.inputs[k].shape


@dataclass(frozen=True)
class Call:
    """What an operation on a path that is alone has besides its matrices.

    These are the scalars of the node in this step, the key of its random numbers, the counter word
    (1,) of the path, and threads that share its work.
    """

    scalars: NDArray[np.float64]
    key: NDArray[np.uint64] | None
    path: NDArray[np.uint64]
    team: Team


Alone: TypeAlias = Callable[..., None]
"""Function (call, out, *values) of the matrices of one path."""


@dataclass(frozen=True)
class Operation:
    """What executors do for a kind of node.

    `emit(e, here)` emits code for the operation. A function of single entries has `entry(e,
    scalars, *values)` instead, which returns the value; activations may use it. `routine` is a
    function of a node that returns what library routines do for a path that is alone, or None if
    emitted code is as fast. `growth` is the order of the value (see `order`): a multiple of that of
    the first input, or a function of those of all inputs. An operation that is `in_place` can write
    into a part of a larger matrix.
    """

    growth: float | Callable[[Orders], float]
    emit: Callable[[Emitter, Here], None] | None = None
    entry: Callable[..., Real] | None = None
    routine: Callable[[Node], Alone | None] = lambda node: None
    in_place: bool = False

    def order(self, inputs: Orders) -> float:
        """Return the order of the value."""
        if callable(self.growth):
            return self.growth(inputs)
        # Numbers that are drawn have no inputs, and a bounded value remains bounded.
        return self.growth * inputs[0] if self.growth else 0.0


OPERATIONS: dict[str, Operation] = {}
"""All operations by kind, in the order of their codes."""


def operation(kind: str, **faces: Any) -> None:
    """Register the faces of a kind of node."""
    if kind in OPERATIONS:
        raise TypeError(f"the operation {kind} is registered twice")
    known = Operation(**faces)
    if (known.emit is None) == (known.entry is None):
        raise TypeError(f"the operation {kind} has one emission: emit= or entry=")
    OPERATIONS[kind] = known


def emit_node(e: Emitter, here: Here) -> None:
    """Emit an operation."""
    known = OPERATIONS[here.node.kind]
    if known.emit is not None:
        known.emit(e, here)
        return
    entry, shape = known.entry, here.node.shape
    assert entry is not None
    inputs = [
        x if node.shape == shape else x.stretched(node.shape)
        for x, node in zip(here.inputs, here.node.inputs, strict=True)
    ]
    flat = all(x.contiguous(shape[1]) for x in (here.out, *inputs))

    def put(i: object, j: object) -> None:
        values = [x.load(e, i, j) for x in inputs]  # type: ignore[arg-type]
        here.out.store(e, entry(e, here.scalars, *values), i, j)  # type: ignore[arg-type]

    entries(e, shape, put, flat)


def bounded(orders: Orders) -> float:
    """Return the order of a bounded function."""
    return min(0.0, max(orders, default=0.0))


def primitive(
    *,
    trace: Callable[..., Matrix],
    number: Callable[[Any], Any] | None = None,
    of_float: Callable[[float], float] | None = None,
    check: Callable[..., None] | None = None,
) -> Callable[[F], F]:
    """Make a function of torch tensors a primitive.

    `trace` is the same function of matrices of a trace. Functions of single entries have a NumPy
    function of parameters and numbers, `number`, and `of_float` if plain numbers need another.
    `check` raises ValueError if shapes do not fit: a program would read beyond a matrix in silence.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            first = arguments[0]
            if number is not None and isinstance(first, float | int):
                return float(number(first) if of_float is None else of_float(first))
            if number is not None and isinstance(first, np.ndarray):
                return number(first)
            if number is not None and isinstance(first, Scalar):
                return apply(number, first)
            if check is not None:
                check(*arguments, **named)
            operands = list(operands_of([*arguments, *named.values()]))
            for x in operands:
                if hasattr(x, "run_primitive"):  # RunsPrimitives; quicker than isinstance
                    return x.run_primitive(call, arguments, named)
            if any(isinstance(x, Matrix) for x in operands):
                return trace(*arguments, **named)
            return function(*arguments, **named)

        return cast(F, call)

    return decorate


def check_square(matrix: Any) -> None:
    """Raise ValueError unless a matrix is square."""
    rows, columns = tuple(matrix.shape)[-2:]
    if rows != columns:
        raise ValueError(f"matrix must be square; got shape ({rows}, {columns})")


def operands_of(arguments: Iterable[Any]) -> Iterator[Any]:
    """Yield the arguments, and those in lists."""
    for x in arguments:
        if isinstance(x, list | tuple):
            yield from x
        else:
            yield x


def tensor(x: object) -> Any:
    """Return an operand of the function of a primitive itself, which only gets tensors."""
    return x


def on_entries(kind: str) -> Callable[..., Matrix]:
    """Return how a function of single entries is traced; further arguments are its scalars."""

    def trace(x: Matrix, *scalars: Number) -> Matrix:
        return x.elementwise(kind, scalars)

    return trace


def order(matrix: Matrix, inputs: Mapping[int, float]) -> float:
    """Return how fast a matrix grows; `inputs` has the orders of input nodes, by their `id`.

    The order is the power p of x with which it grows if all inputs of order 1 are multiplied by x,
    as x tends to infinity. Terms that cancel are not noticed, so it is an upper bound for what has
    no divisions.
    """
    known: dict[int, float] = dict(inputs)

    def of(node: Node) -> float:
        if id(node) not in known:
            known[id(node)] = (
                0.0
                if node.data is not None
                else OPERATIONS[node.kind].order([of(x) for x in node.inputs])
            )
        return known[id(node)]

    return of(matrix.node)
