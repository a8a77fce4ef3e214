"""The public space: a frame that grows, with the vectors that start a computation."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import argument_error, check_count
from shaped_attention.numerics.graph import Matrix
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame
from shaped_attention.rows.values import Plain, padded
from shaped_attention.samplers.arguments import check_dtype, device_name


class Space(Frame):
    """R^n with a frame that grows, for a number of independent samples.

    Parameters
    ----------
    n
        Dimension.
    samples, seed, dtype, device
        Number of independent samples, their seed, and the precision ("float64", "float32", or
        the torch dtype of that name) and device of all coordinates. Spaces of one network share
        them.
    explicit
        Whether the frame is the standard basis, which functions of single entries need. A space
        becomes explicit when such a function is applied; a space that is explicit from the start
        saves the change of the frame.

    Examples
    --------
    >>> from shaped_attention import lazy
    >>> space = lazy.Space(10**6, samples=100, seed=1)
    >>> x = space.normal(4)
    >>> head = space.beside(64)
    >>> queries, keys = (x @ lazy.Matrix(space, head, std=1e-3) for _ in range(2))
    >>> (queries @ keys.mT).shape, space, head
    (torch.Size([100, 4, 4]), Space(1000000, 4 known directions), Space(64, 8 known directions))
    """

    def __init__(
        self,
        n: int,
        samples: int = 1,
        seed: int = 0,
        *,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device = "cpu",
        explicit: bool = False,
    ) -> None:
        super().__init__(
            n, Source(samples, seed, check_dtype(dtype), device_name(device)), explicit
        )

    def beside(self, n: int, explicit: bool = False) -> Space:
        """Return another space of the same network, with its samples, seed, dtype and device."""
        space = Space.__new__(Space)
        Frame.__init__(space, n, self.source, explicit)
        return space

    def normal(self, rows: int, name: str | None = None) -> Rows:
        """Return new vectors with independent N(0, 1) entries."""
        check_count("rows", rows)
        return Rows(self, (self.fresh(rows, self.source.stream(name).draws()),))

    def rows(self, coordinates: Float[Tensor, "B r c"]) -> Rows:
        """Return rows with given coordinates (r, c), or (B, r, c).

        In an explicit space the coordinates are the entries. Otherwise they belong to c new
        directions, orthogonal to all known ones, so only inner products of the rows have a meaning.
        """
        return new_rows(self, coordinates)


def new_rows(space: Frame, coordinates: Plain) -> Rows:
    """Return rows with given entries, or with given coordinates along new directions."""
    source = space.source
    part: Any = coordinates
    if not isinstance(part, Matrix):
        part = torch.as_tensor(coordinates, dtype=source.dtype, device=source.device)
    if len(part.shape) not in (2, 3) or 0 in part.shape:
        raise argument_error("coordinates", "(r, c) or (B, r, c), not empty", tuple(part.shape))
    if isinstance(part, torch.Tensor):
        part = part.expand(source.samples, *part.shape[-2:])
    if space.explicit and part.shape[-1] != space.n:
        raise argument_error("coordinates", f"of {space.n} columns", tuple(part.shape))
    if space.explicit:
        return Rows(space, (part,))
    known = space.size
    space.grow(part.shape[-1])
    return Rows(space, (padded(part, known, 0),))
