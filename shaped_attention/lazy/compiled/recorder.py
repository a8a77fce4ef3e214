"""What torch does to the coordinates of some samples, recorded as a graph for compiled code.

A `Recorder` is a mode of torch: every operation runs as usual, and also becomes a node of a graph
if an operand is the value of one, in the way back by torch's autograd too. What does not depend on
a value of the graph must be the same for all samples, and becomes a constant. An operation without
a translation is a `RecordingError`, and so is a number that reaches Python by `item` or a
comparison. What leaves by `numpy` or `tolist` is not seen; other samples show if it mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shaped_attention.blocks.parameters import Parameters, at_depth, scheduled_tensors
from shaped_attention.lazy.compiled import arithmetic, arrangement
from shaped_attention.lazy.compiled.translator import (
    RecordingError,
    Rule,
    Traced,
    Translator,
    shape_of,
)
from shaped_attention.lazy.directions import recording_to
from shaped_attention.lazy.sources import Source
from shaped_attention.numerics.draws import Draws, slot_number
from shaped_attention.numerics.graph import Graph, Matrix
from shaped_attention.numerics.scalars import Scalar

Place = tuple[Any, ...]

RULES: dict[str, Rule] = arithmetic.RULES | arrangement.RULES

_UNSET = {"new_empty_strided", "empty_like", "new_empty"}
"""Operations whose result has no entries yet; `copy_` writes them."""

_IN_PLACE = {"copy_", "add_"}


class Recorder(TorchDispatchMode):
    """Records what happens inside ``with recorder:`` to the values of its graph."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.graph, self.samples = Graph(), samples
        self._translator = Translator(self.graph, samples, RULES)
        self._traced: dict[Place, Traced] = {}
        self._storages: set[int] = set()
        self._kept: list[Tensor] = []
        self._paused = False
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> Self:
        self._tokens.append(recording_to.set(self))
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        recording_to.reset(self._tokens.pop())

    def input(self, value: Tensor) -> Tensor:
        """Let a tensor (B, r, c) be an input of the graph."""
        rows, columns = value.shape[1:]
        self.note(value, self.graph.node("input", (), (rows, columns)))
        return value

    def note(self, tensor: Tensor, value: Matrix) -> None:
        """Let a tensor stand for a value of the graph."""
        self._note(tensor, Traced(value))

    def parameters(self, block: Any, depth: float) -> Parameters:
        """Return the parameters of a block; those that change with depth are numbers of the graph.

        They are evaluated for each layer, not only for the recorded one.
        """
        return at_depth(block, depth, scheduled_tensors(block, depth, self._number))

    def _number(self, value: float, formula: Scalar) -> Tensor:
        tensor = torch.tensor(value, dtype=torch.float64)
        self._note(tensor, Traced(formula))
        return tensor

    def value(self, tensor: Tensor) -> Matrix:
        """Return what a tensor stands for; one that is no value of the graph is a constant."""
        return self._translator.matrix(self._converted(tensor), tensor.dim())

    def run(
        self, function: Callable[..., Tensor], trace: Callable[..., Matrix], *operands: Tensor
    ) -> Tensor:
        """Run a function that is one operation of the graph."""
        before, self._paused = self._paused, True
        try:
            result = function(*operands)
        finally:
            self._paused = before
        if any(self._is_traced(x) for x in operands):
            rows, lengths, *known = (self.value(x) for x in operands)
            self.note(result, trace(rows, lengths.mT, *known))
        return result

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        result = function(*args, **named)
        if self._paused:
            return result
        operands = list(_tensors([*args, *named.values()]))
        if not any(self._is_traced(x) for x in operands):
            return result
        name = function._schema.name.removeprefix("aten::")
        if name in _UNSET or (isinstance(result, Tensor) and result.numel() == 0):
            return result
        values = [self._converted(x) for x in args]
        made = self._translator.translate(name, values, named, result)
        if name in _IN_PLACE:
            self._forget(result.untyped_storage().data_ptr())
        results = list(result) if isinstance(result, tuple | list) else [result]
        for tensor, traced in zip(results, made, strict=True):
            if tensor.numel():
                self._note(tensor, traced)
        return result

    def _converted(self, x: Any) -> Any:
        if isinstance(x, Tensor) and self._is_traced(x):
            return self._traced[_place(x)]
        if isinstance(x, list | tuple) and any(isinstance(y, Tensor) for y in x):
            return [self._converted(y) for y in x]
        return x

    def _note(self, tensor: Tensor, traced: Traced) -> None:
        value = traced.value
        if isinstance(value, Matrix) and shape_of(tensor, self.samples) != value.shape:
            raise RecordingError(f"a tensor of shape {tuple(tensor.shape)}")
        self._traced[_place(tensor)] = traced
        self._storages.add(tensor.untyped_storage().data_ptr())
        self._kept.append(tensor)

    def _forget(self, storage: int) -> None:
        """Forget all views of a storage that an operation in place has changed."""
        self._traced = {place: x for place, x in self._traced.items() if place[0] != storage}

    def _is_traced(self, tensor: Tensor) -> bool:
        if not tensor.numel():
            return False
        if _place(tensor) in self._traced:
            return True
        if tensor.untyped_storage().data_ptr() in self._storages:
            raise RecordingError("a view that was not recorded")
        return False


class RecordingSource(Source):
    """A source whose random numbers are also operations of a graph."""

    def __init__(self, recorder: Recorder, seed: int) -> None:
        super().__init__(recorder.samples, seed)
        self._recorder = recorder

    def draws(self, address: tuple[int, ...], step: int) -> Draws:
        """Return the numbers of a step of a stream, for all samples."""
        draws = super().draws(address, step)
        return _RecordedDraws(draws, self._recorder, address)


class _RecordedDraws(Draws):
    """Random numbers that become operations of a graph."""

    def __init__(self, draws: Draws, recorder: Recorder, address: tuple[int, ...]) -> None:
        super().__init__(draws.key, draws.samples, draws.step, draws.slot, draws.dtype)
        self._recorder, self._address = recorder, address

    def normal(self, rows: int, columns: int) -> Tensor:
        slot = slot_number(self.slot, self._next)
        value = super().normal(rows, columns)
        return self._noted(value, "normal", (rows, columns), (1.0,), (slot,))

    def wishart_factor(self, m: int, dof: int) -> Tensor:
        if dof < m + 2:
            gaussian = self.normal(m, dof)
            self._take_slot()
            return gaussian
        slot = slot_number(self.slot, self._next)
        value = super().wishart_factor(m, dof)
        return self._noted(value, "wishart", (m, m), (float(dof),), (slot,), lower=True)

    def normals_beside_wishart(self, m: int, known: int, dof: int) -> Tensor:
        return torch.cat([self.normal(m, known), self.wishart_factor(m, dof)], dim=-1)

    def _noted(
        self, value: Tensor, kind: str, shape: Any, scalars: Any, integers: Any,
        lower: bool = False,
    ) -> Tensor:  # fmt: skip
        if value.numel():
            node = self._recorder.graph.node(
                kind, (), shape, scalars, integers, lower=lower, address=self._address
            )
            self._recorder.note(value, node)
        return value


def _place(tensor: Tensor) -> Place:
    """Return where the entries of a tensor lie: two tensors there have the same value."""
    start = tensor.untyped_storage().data_ptr()
    return start, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _tensors(values: Sequence[Any]) -> Any:
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list | tuple):
            yield from _tensors(x)
