"""Operations of torch on stacks of small matrices, as operations of a graph.

A tensor (B, r, c) is a matrix (r, c), a tensor (B, c) a row and (B,) a single entry, the same for
each of B samples. Only what keeps the samples apart has a translation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.scalars import Scalar

Shape = tuple[int, int]


class RecordingError(ValueError):
    """What torch did cannot be repeated by compiled code; the message says what."""


@dataclass
class Traced:
    """A value of a graph, or a number that is known when a program runs.

    `seen` are the entries that a softmax, which must follow, acts on.
    """

    value: Matrix | Scalar
    seen: NDArray[np.bool_] | None = None


def shape_of(tensor: Tensor, samples: int) -> Shape:
    """Return the shape of the matrix that a tensor is for each sample."""
    batch, *rest = tensor.shape if tensor.dim() else (0,)
    if batch != samples or len(rest) > 2:
        raise RecordingError(f"a tensor of shape {tuple(tensor.shape)}")
    rows, columns = (1, 1, *rest)[-2:]
    return rows, columns


Rule: TypeAlias = Callable[..., Any]
"""``rule(translator, result, *arguments)``; the arguments are those of torch's operation."""


class Translator:
    """Translates operations of torch into those of a graph, each by its rule."""

    def __init__(self, graph: Graph, samples: int, rules: Mapping[str, Rule]) -> None:
        self.graph, self.samples, self._rules = graph, samples, rules

    def translate(self, name: str, args: Any, named: Any, result: Any) -> list[Traced]:
        """Return the values of an operation, in the order of its results."""
        rule = self._rules.get(name)
        if rule is None:
            raise RecordingError(f"torch's {name}")
        try:
            value = rule(self, result, *args, **named)
        except RecordingError:
            raise
        except (TypeError, ValueError, IndexError, AttributeError) as error:
            raise RecordingError(f"torch's {name} in this form") from error
        values = value if isinstance(value, list) else [value]
        return [x if isinstance(x, Traced) else Traced(x) for x in values]

    def matrix(self, x: Any, dims: int) -> Matrix:
        """Return an operand of an operation whose result has `dims` dimensions."""
        if isinstance(x, Traced):
            if x.seen is not None:
                raise RecordingError("masked scores outside a softmax")
            if isinstance(x.value, Scalar):
                return x.value * self.graph.constant(np.ones((1, 1)))
            return x.value
        return self.graph.constant(self.entries(x, dims))

    def entries(self, x: Tensor, dims: int) -> NDArray[np.float64]:
        """Return the entries (r, c) of a constant, which must be the same for all samples."""
        entries = x.detach().numpy()
        entries = entries.reshape((1,) * (dims - entries.ndim) + entries.shape)
        if not (entries == entries[:1]).all():
            raise RecordingError("a tensor that differs between samples")
        if entries.ndim > 3:
            raise RecordingError(f"a constant of shape {tuple(x.shape)}")
        return np.atleast_2d(entries[0]).astype(np.float64)

    def zeros(self, rows: int, columns: int) -> Matrix:
        """Return a matrix of zeros."""
        return self.graph.constant(np.zeros((rows, columns)))

    def pair(self, result: Tensor, x: Any, y: Any) -> tuple[Any, Any]:
        """Return two operands, of which one can be a number, that are broadcast to a result."""
        return self._or_number(x, result), self._or_number(y, result)

    def operand(self, x: Any, result: Tensor) -> Any:
        """Return the operand of a function of single entries or numbers."""
        return self.matrix(x, result.dim()) if result.dim() else self._or_number(x, result)

    def _or_number(self, x: Any, result: Tensor) -> Any:
        if isinstance(x, Traced) and isinstance(x.value, Scalar):
            return x.value
        if isinstance(x, Tensor) and x.numel() == 1:
            return float(x)
        return x if is_number(x) else self.matrix(x, result.dim())

    def shaped(self, matrix: Any, result: Tensor) -> Any:
        """Return a matrix in the shape of a result, with the same entries or repeated ones."""
        if isinstance(matrix, Scalar):
            return matrix
        shape = shape_of(result, self.samples)
        if matrix.shape == shape:
            return matrix
        if matrix.mT.shape == shape and 1 in shape:
            return matrix.mT
        size = matrix.shape[0] * matrix.shape[1]
        if size == shape[0] * shape[1]:
            flat = matrix.value()
            return self.graph.node("reshape", (flat.node,), shape)
        for side in (0, 1):
            if matrix.shape[side] == 1 < shape[side]:
                ones = np.ones((shape[0], 1)) if side == 0 else np.ones((1, shape[1]))
                one = self.graph.constant(ones)
                matrix = one @ matrix if side == 0 else matrix @ one
        if matrix.shape != shape:
            raise RecordingError(f"a reshape to {tuple(result.shape)}")
        return matrix


def is_number(x: object) -> bool:
    """Return whether an operand is a number."""
    return isinstance(x, float | int)


def dimension(dim: int, dims: int) -> int:
    """Return -1 for the last dimension of `dims`, and -2 for that before it.

    Raises
    ------
    RecordingError
        If it is the dimension of the samples.
    """
    result = dim - dims if dim >= 0 else dim
    if result not in (-1, -2) or result == -dims:
        across = "across samples" if result == -dims else f"on dimension {dim}"
        raise RecordingError(f"an operation {across}")
    return result
