"""The samples, seed and random numbers that the spaces and matrices of a network share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaped_attention.checks import check_count
from shaped_attention.libraries import torch
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.samplers.arguments import check_dtype

_MEMORY = 2**33
"""Bytes that rows of one explicit space may take."""


class Stream:
    """Random numbers of one matrix or space: each call of `draws` takes the next step."""

    def __init__(self, source: Source, key: NDArray[np.uint64]) -> None:
        self._source, self._key, self._step = source, key, 0

    def draws(self) -> Draws:
        """Return the numbers of the next step, for all samples."""
        source, self._step = self._source, self._step + 1
        return Draws(self._key, source.numbers, self._step - 1, 0, source.dtype)


class Source:
    """What spaces that belong together share: samples, seed, device and precision.

    Streams are numbered in the order in which they are made, or have names; a name can be used
    once. `first` is the number of the first sample, so that chunks give the same numbers;
    `memory` is how many bytes the entries of some rows may take.
    """

    def __init__(
        self,
        samples: int = 1,
        seed: int = 0,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device = "cpu",
        first: int = 0,
        memory: int = _MEMORY,
    ) -> None:
        check_count("samples", samples)
        check_count("seed", seed, lowest=0)
        self.seed, self.samples, self.first, self.memory = seed, samples, first, memory
        self.dtype, self.device = check_dtype(dtype), torch.device(device)
        self.numbers = torch.arange(first, first + samples, device=self.device)
        self.spaces: list[Any] = []
        self._names: set[str] = set()
        self._streams = 0

    @property
    def used(self) -> bool:
        """Whether a stream was made."""
        return self._streams > 0 or bool(self._names)

    @property
    def settings(self) -> tuple[Any, ...]:
        """What two sources must have in common to become one."""
        return self.seed, self.samples, self.first, self.dtype, self.device

    def stream(self, name: str | None = None) -> Stream:
        """Return a new stream, with the next number or with a name.

        Raises
        ------
        ValueError
            If the name was used.
        """
        if name is None:
            self._streams += 1
            return Stream(self, stream_key(self.seed, "lazy", 0, self._streams - 1))
        if name in self._names:
            raise ValueError(f"name must be new; there is already a matrix {name!r}")
        self._names.add(name)
        return Stream(self, stream_key(self.seed, "lazy", 1, *name.encode()))

    def join(self, other: Source) -> None:
        """Make the spaces of another source part of this one, or this one's part of the other.

        Raises
        ------
        ValueError
            If they differ in samples, seed, dtype or device, or if numbers of both have been drawn:
            equal seeds would then give equal numbers to different matrices.
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
