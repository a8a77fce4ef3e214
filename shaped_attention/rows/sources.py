"""The samples, seed and random numbers that the spaces and matrices of a network share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import check_count
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.rows.values import Plain

if TYPE_CHECKING:
    from shaped_attention.rows.spaces import AnySpace, Frame, Open

_MEMORY = 2**33
"""Bytes that rows of one explicit space may take."""


@lru_cache(maxsize=2**14)
def number_key(seed: int, address: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return the key of the numbers with an address."""
    return stream_key(seed, "lazy", *address)


class AnyDraws(Protocol):
    """Random numbers of one call, for all samples: tensors, or matrices of a graph."""

    def normal(self, rows: int, columns: int) -> Any:
        """Return independent standard normals (rows, columns)."""

    def normals_beside_wishart(self, m: int, known: int, dof: int) -> Any:
        """Return [G, B] with normals G (m, known), and B B^T ~ Wishart_m(dof, I)."""


class Stream:
    """Random numbers of one matrix or space: each call of `draws` gives the next ones.

    In a layer of a deep network they are those of step l of a key that all layers share, so that a
    program for one layer serves all of them.
    """

    def __init__(self, source: Source, address: tuple[int, ...]) -> None:
        self._source, self._address, self._layer = source, address, source.layer
        self._calls = 0

    def draws(self) -> AnyDraws:
        """Return the next numbers, for all samples."""
        call, self._calls = self._calls, self._calls + 1
        if self._layer is None:
            return self._source.draws(self._address, call)
        return self._source.draws((2, call, *self._address), self._layer)


class Source:
    """What spaces that belong together share: samples, seed, device and precision.

    Streams are numbered in the order in which they are made, or have names; a name can be used
    once. `first` is the number of the first sample, so that chunks give the same numbers;
    `memory` is how many bytes the entries of some rows may take. All spaces are explicit if
    `explicit`. Inside `with source.inside(l):`
    streams belong to layer l: their names are new if this layer has not used them.
    """

    def __init__(
        self,
        samples: int = 1,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        device: str | torch.device = "cpu",
        first: int = 0,
        memory: int = _MEMORY,
        explicit: bool = False,
    ) -> None:
        check_count("samples", samples)
        check_count("seed", seed, lowest=0)
        self.tokens: AnySpace | None = None
        self.shortens, self.explicit = False, explicit
        self.seed, self.samples, self.first, self.memory = seed, samples, first, memory
        self._dtype, self._device = dtype, device
        self.spaces: list[Frame | Open] = []
        self.layer: int | None = None
        self._names: set[tuple[int | None, str]] = set()
        self._unnamed: Counter[int | None] = Counter()

    # Not before they are used: a graph needs none of them.

    @cached_property
    def dtype(self) -> torch.dtype:
        """Precision of tensors."""
        return self._dtype or torch.float64

    @cached_property
    def device(self) -> torch.device:
        """Device of tensors."""
        return torch.device(self._device)

    @cached_property
    def numbers(self) -> Tensor:
        """The numbers of the samples (B,)."""
        return torch.arange(self.first, self.first + self.samples, device=self.device)

    @contextmanager
    def inside(self, layer: int) -> Iterator[None]:
        """Let streams belong to a layer of a deep network."""
        before, self.layer = self.layer, layer
        try:
            yield
        finally:
            self.layer = before

    def draws(self, address: tuple[int, ...], step: int) -> AnyDraws:
        """Return the numbers of a step of a stream, for all samples."""
        return Draws(number_key(self.seed, address), self.numbers, step, 0, self.dtype)

    def constant(self, entries: ArrayLike) -> Plain:
        """Return a plain matrix (r, c) that is the same for all samples."""
        return torch.as_tensor(np.asarray(entries), dtype=self.dtype, device=self.device)

    def filled(self, rows: int, columns: int, number: float) -> Plain:
        """Return a plain matrix of equal entries, for all samples."""
        size = self.samples, rows, columns
        return torch.full(size, number, dtype=self.dtype, device=self.device)

    @property
    def used(self) -> bool:
        """Whether a stream was made."""
        return bool(self._unnamed or self._names)

    @property
    def settings(self) -> tuple[Any, ...]:
        """What two sources must have in common to become one."""
        return self.seed, self.samples, self.first, self.dtype, self.device

    def stream(self, name: str | None = None) -> Stream:
        """Return a new stream, with the next number or a new name; raise ValueError otherwise."""
        if name is None:
            self._unnamed[self.layer] += 1
            return Stream(self, (0, self._unnamed[self.layer] - 1))
        if (self.layer, name) in self._names:
            raise ValueError(f"name {name!r} is already in use in this network; use each name once")
        self._names.add((self.layer, name))
        return Stream(self, (1, *name.encode()))

    def join(self, other: Source) -> None:
        """Make the spaces of another source part of this one, or this one's part of the other.

        Raise ValueError if they differ in samples, seed, dtype or device, or if numbers of both
        have been drawn: equal seeds would then give equal numbers to different matrices.
        """
        if other is self:
            return
        if self.settings != other.settings:
            raise ValueError(
                "spaces of one network must have the same number of samples, seed, dtype "
                f"and device; got {self.settings} and {other.settings}"
            )
        if self.used and other.used:
            raise ValueError(
                "a matrix cannot join two spaces that both have rows already, because their random "
                "numbers would be equal; create both spaces and the matrix before you draw rows"
            )
        kept, gone = (other, self) if other.used else (self, other)
        for space in gone.spaces:
            space.source = kept
        kept.spaces += gone.spaces
