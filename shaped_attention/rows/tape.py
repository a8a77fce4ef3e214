"""Reverse mode: what was computed with rows, and how a gradient goes back through it.

torch differentiates what happens to plain matrices and to entries of explicit spaces. It cannot
differentiate coordinates: the gradient of rows has a part outside their frame, so that a frame
grows on the way back. A `Tape` therefore notes every operation on rows, with its rule; where rows
become a plain matrix, such as scores, that matrix is a leaf of torch's graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, TypeVar

from shaped_attention.checks import argument_error
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.graph import Matrix, Node
from shaped_attention.numerics.scalars import Scalar
from shaped_attention.rows.coordinates import Coordinates

C = TypeVar("C", bound=Coordinates)

Rule = Callable[[Any], None]
"""Takes the gradient of a result and adds to those of the operands."""

_recording: ContextVar[Tape | None] = ContextVar("recording", default=None)
_returning: ContextVar[Tape | None] = ContextVar("returning", default=None)


class Tape:
    """A record of operations on rows, made inside ``with Tape() as tape:``.

    `backward` goes through it once. Afterwards `gradient(rows)` is the gradient of rows, and each
    matrix has the factors of its own gradient (`Matrix.gradient`). As in torch, the gradients of
    several tapes add up; `Matrix.forget_gradient` clears them.

    Examples
    --------
    >>> from shaped_attention import lazy
    >>> space = lazy.Space(10**5, samples=3)
    >>> x, w = space.normal(2), lazy.Matrix(space, space.beside(10**6), std=10**-2.5)
    >>> with lazy.Tape() as tape:
    ...     loss = (x @ w).squares().sum((1, 2))
    >>> tape.backward(loss)
    >>> w.gradient_norm().shape
    torch.Size([3])
    """

    def __init__(self, weights: bool = True) -> None:
        self.weights = weights
        self._steps: list[tuple[Any, Rule]] = []
        self._gradients: dict[int, Any] = {}
        self._returned = self._used_up = False
        self._kept: list[Any] = []
        self.plain: dict[Node, Matrix] = {}
        self.leaves: set[Node] = set()
        self._token: Token[Tape | None] | None = None

    def __enter__(self) -> Tape:
        self._token = _recording.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _recording.reset(self._token)

    @staticmethod
    @contextmanager
    def paused() -> Iterator[None]:
        """Leave out what is done inside."""
        token = _recording.set(None)
        try:
            yield
        finally:
            _recording.reset(token)

    def results(self) -> list[Coordinates | Tensor]:
        """Return the results of the operations on the tape."""
        return [x for x, _ in self._steps if x is not None]

    def note(self, result: Coordinates | Tensor | Matrix | None, rule: Rule) -> None:
        """Add an operation; a rule without a result is always called, with None."""
        self._steps.append((result, rule))

    def add(self, rows: Coordinates, gradient: Coordinates) -> None:
        """Add to the gradient of rows."""
        if rows.needs_gradient:
            if self._returned:
                self._gradients, self._returned = {}, False
            before = self._gradients.get(id(rows))
            self._gradients[id(rows)] = gradient if before is None else before + gradient
            self._kept.append(rows)

    def gradient(self, rows: C) -> C | None:
        """Return the gradient of rows; None if the loss does not depend on them."""
        return self._gradients.get(id(rows))

    def backward(self, loss: Tensor | None = None, keep: bool = False) -> None:
        """Take the gradient of a loss (samples,), in which samples do not mix, back to all rows.

        Without a loss it starts with the gradients that were added by `add`. The record is used up
        unless it is kept for another backward pass.

        Raises
        ------
        ValueError
            If the record is used up, the loss is not one number for each sample, or it does not
            depend on what the record contains.
        """
        if self._used_up:
            raise ValueError(
                "backward can be called only once on a tape, unless the first call has keep=True"
            )
        if loss is not None:
            samples = max((x.shape[0] for x in self.results()), default=1)
            shapes = [(samples,), *([()] if samples == 1 else [])]
            if not isinstance(loss, Tensor) or tuple(loss.shape) not in shapes:
                expected = f"a tensor ({samples},) computed in torch, one number for each sample"
                raise argument_error("loss", expected, loss)
            for x, _ in self._steps:
                if isinstance(x, Tensor):
                    x.grad = None  # another tape may have left one
            if loss.requires_grad:
                # What it was computed from may also have multiplied rows.
                loss.sum().backward(retain_graph=True)
            results = [x for x, _ in self._steps if isinstance(x, Tensor)]
            if all(x.grad is None for x in results):
                raise ValueError(
                    "loss depends on nothing that the tape recorded; compute it inside the with "
                    "statement, from products with a Matrix or from rows with x.requires_grad_()"
                )
        tokens = _recording.set(None), _returning.set(self)
        try:
            with torch.no_grad():
                for result, rule in reversed(self._steps):
                    above = self._above(result)
                    if result is None or above is not None:
                        rule(above)
        finally:
            for result, _ in self._steps:
                if isinstance(result, Tensor):
                    result.grad = None
            self.plain.clear()
            self._steps, self._used_up = (self._steps if keep else []), not keep
            self._returned = True
            _recording.reset(tokens[0])
            _returning.reset(tokens[1])

    def _above(self, result: Any) -> Any:
        """Return the gradient of the result of an operation; None for 0."""
        if isinstance(result, Tensor):
            return result.grad
        if not isinstance(result, Matrix):
            return self.gradient(result)
        from shaped_attention.numerics.reverse import depends, gradients, of_matrix

        # Of a graph: only now is all known that was computed from it.
        own = {result.node}
        passed = [node for node in self.plain if depends(node, own)]
        above = [(Matrix(result.graph, node), self.plain.pop(node)) for node in passed]
        found = gradients(above, (Matrix(result.graph, node) for node in self.leaves))
        gradient = found.pop(result.node, None)
        for node, more in found.items():
            give(Matrix(result.graph, node), more)
        return None if gradient is None else of_matrix(result, gradient)


def recording() -> Tape | None:
    """Return the tape of the `with` statement around the call."""
    return _recording.get()


def add_gradient(rows: Coordinates, gradient: Coordinates) -> None:
    """Add to the gradient of rows, on the tape that is going back."""
    tape = _returning.get()
    assert tape is not None
    tape.add(rows, gradient)


def drawn_later(
    kind: type[C], space: Any, count: int, make: Callable[[], Any], rule: Rule, needs: bool
) -> C:
    """Return rows that `make` draws: now, or when something has decided on their space."""
    tape = recording() if needs else None

    def noted(result: C) -> Any:
        value = make()
        if tape is not None:
            tape.note(result, rule)
        return value

    result = kind(space, None, count, noted, needs)
    if not result.is_open:
        _ = result.parts
    return result


def takes_weights() -> bool:
    """Return whether the tape that is going back has gradients of matrices as well."""
    tape = _returning.get()
    return tape is None or tape.weights


def leaf(matrix: Any, needs_gradient: bool, rule: Rule) -> Any:
    """Return a plain matrix, as a leaf of its graph if a tape records and needs it."""
    tape = recording()
    if tape is None or not needs_gradient:
        return matrix
    if isinstance(matrix, Matrix):
        matrix = matrix.value() if isinstance(matrix.coefficient, Scalar) else matrix
        tape.leaves.add(matrix.node)
    else:
        matrix = matrix.detach().requires_grad_()
    tape.note(matrix, rule)
    return matrix


def give(plain: Any, gradient: Any) -> None:
    """Add the gradient of a plain operand, summed where it was broadcast, if it has a use."""
    if isinstance(plain, Matrix):
        from shaped_attention.numerics.reverse import depends, of_node

        tape = _returning.get()
        assert tape is not None
        if depends(plain.node, tape.leaves):
            more, known = of_node(plain, gradient), tape.plain.get(plain.node)
            tape.plain[plain.node] = more if known is None else known + more
    if isinstance(plain, Tensor) and plain.requires_grad:
        with torch.enable_grad():
            plain.backward(gradient.sum_to_size(plain.shape), retain_graph=True)


def without_graph(value: Any) -> Any:
    """Return a number or tensor of which torch does not record the use while a tape does."""
    return value.detach() if isinstance(value, Tensor) and recording() is not None else value
