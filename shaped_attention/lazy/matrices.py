"""Gaussian matrices that are revealed only where a product looks, and low-rank updates of them.

A matrix W with independent N(0, s^2) entries leads from a space to another. It is known through
orthonormal input directions P with their images P W, and orthonormal output directions Q with their
images Q W^T. A product C W splits ``C = c P + L E`` into known directions and new ones (see
`directions`); the images of these are

    E W = (E W Q^T) Q + s (G - G Q^T Q),    G Gaussian in the space of the outputs,

whose first part is known from the images of Q. The same holds for g W^T with the roles exchanged.
This is exact at every width: given all that was asked so far, each question chosen after the
answers before it, W restricted to the complements of P and Q is still an independent Gaussian
matrix (deferred decisions; in the limit of infinite width this is Gaussian conditioning, Bolthausen
2014, Yang 2019).

Training adds matrices of low rank, whose factors are rows: W = k W_0 + sum_s c_s X_s^T G_s with
numbers k and c_s, which may differ between samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import argument_error, check_positive
from shaped_attention.lazy.low_rank import Coefficient, Factors
from shaped_attention.lazy.parameters import Parameter, Update, scaled
from shaped_attention.numerics.primitives import concatenate
from shaped_attention.rows.coordinates import Parts, cut, inner
from shaped_attention.rows.directions import directions, spanning
from shaped_attention.rows.joining import stacked
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Stream
from shaped_attention.rows.spaces import AnySpace, check_space, settled, unify
from shaped_attention.rows.tape import add_gradient, drawn_later, recording, takes_weights
from shaped_attention.rows.values import Plain


class Revealed:
    """Orthonormal directions of one side, and their images on the other."""

    def __init__(self) -> None:
        self.directions: Rows | None = None
        self.images: Rows | None = None

    def append(self, units: Rows, images: Rows) -> None:
        """Add directions with their images."""
        if self.directions is None or self.images is None:
            self.directions, self.images = units, images
        else:
            self.directions = stacked([self.directions, units])
            self.images = stacked([self.images, images])


class Matrix:
    """A matrix of independent N(0, std^2) entries between spaces: ``x @ W``, ``g @ W.T``.

    Parameters
    ----------
    a, b
        Spaces of the rows that it takes and returns (`Space`, or a `Sum` of spaces).
    std
        Standard deviation of the entries, positive.
    name
        Name of its random numbers; None for the number of the matrix, in the order of creation.

    Raises
    ------
    ValueError
        If `std` is not positive, the name was used, or the spaces belong to different networks.

    Examples
    --------
    >>> import torch
    >>> from shaped_attention import lazy
    >>> space = lazy.Space(10**9)
    >>> w, x, g = lazy.Matrix(space, space), space.normal(2), space.normal(2)
    >>> torch.allclose((x @ w) @ g.mT, x @ (g @ w.T).mT)
    True
    """

    __torch_function__ = Rows.__torch_function__

    def __init__(self, a: AnySpace, b: AnySpace, std: float = 1.0, name: str | None = None) -> None:
        check_space("a", a)
        check_space("b", b)
        check_positive("std", std)
        if name is not None and not isinstance(name, str):
            raise argument_error("name", "a string or None", name)
        a.source.join(b.source)
        self._spaces, self.std, self.name = (a, b), std, name
        self._stream = a.source.stream(name)
        self._revealed = Revealed(), Revealed()
        self._pairs: list[tuple[Rows, Rows]] = []
        self.parameters: list[Parameter] = [Parameter(self, name or "")]

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"

    @property
    def T(self) -> Transposed:
        """The transpose, for ``g @ W.T``."""
        return Transposed(self)

    @property
    def mT(self) -> Transposed:
        """The transpose, as of tensors."""
        return self.T

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self._spaces[0].n, self._spaces[1].n

    @property
    def outputs(self) -> AnySpace:
        """The space of x W."""
        return self._spaces[1]

    def gradient(self) -> Factors | None:
        """Return the gradient of the losses since `forget_gradient`; None if it met none."""
        if not self._pairs:
            return None
        left, right = zip(*self._pairs, strict=True)
        return Factors(stacked(left), stacked(right))

    def gradient_norm(self) -> Float[Tensor, " B"]:
        """Return the Euclidean norm of the gradient for each sample."""
        gradient = self.gradient()
        if gradient is None:
            source = self._spaces[0].source
            return torch.zeros(source.samples, dtype=source.dtype, device=source.device)
        return gradient.norm()

    def known_rows(self) -> list[Rows]:
        """Return the directions along which the matrix is known, and their images."""
        rows = [x for side in self._revealed for x in (side.directions, side.images)]
        return [x for x in rows if x is not None]

    def forget_gradient(self) -> None:
        """Forget the gradient, before the next step."""
        self._pairs.clear()

    def add_gradient(self, x: Rows, g: Rows) -> None:
        """Add x^T g to the gradient, unless the tape is for rows only."""
        if takes_weights():
            self._pairs.append((x, g))

    def set(self, kept: Coefficient, update: Update | None) -> None:
        """Set W to ``kept W_0 + U``, where W_0 is the Gaussian matrix."""
        (parameter,) = self.parameters
        parameter.kept, parameter.update = kept, update

    def after(self, x: Rows) -> Rows:
        """Return x W."""
        return self.product_on(0, x)

    def product_on(self, side: int, x: Rows) -> Rows:
        """Return x W from the side 0, or x W^T from the side 1."""
        x._space = unify(x.space, self._spaces[side])
        target = settled(self._spaces[1 - side])
        tape = recording()

        def rule(g: Rows) -> None:
            self.add_gradient(*((x, g) if side == 0 else (g, x)))
            if x.needs_gradient:
                add_gradient(x, self.product_on(1 - side, g))

        def make() -> Parts:
            return self._multiplied(x, side)

        return drawn_later(Rows, target, x.shape[1], make, rule, tape is not None)

    def _multiplied(self, x: Rows, side: int) -> Parts:
        target, parameters = settled(self._spaces[1 - side]), self.parameters
        seen = x
        if side == 1:
            seen = Rows(x.space, tuple(scaled(x.parts, parameters)))
        parts: Sequence[Plain] = cut(self._gaussian(seen, side), target)
        if side == 0:
            parts = scaled(parts, parameters)
        for parameter in parameters:
            parts = parameter.with_update(parts, x, side)
        return tuple(parts)

    def _gaussian(self, x: Rows, side: int) -> Plain:
        """Return the product with the Gaussian matrix W_0."""
        here, there = self._revealed[side], self._revealed[1 - side]
        target = settled(self._spaces[1 - side])
        rows = x.coordinates
        along: Plain | None = None
        if here.directions is None:
            lower, new = spanning(rows)
        else:
            along, lower, new, _ = directions(rows, here.directions.coordinates)
        # As rows, since the frame grows if the images are in the same space.
        units = Rows(x.space, cut(new, x.space))
        images = self._images(units, there, target, self._stream)
        value = lower @ images.coordinates
        if here.images is not None and along is not None:
            value = value + along @ here.images.coordinates
        here.append(units, images)
        return value

    def _images(self, units: Rows, there: Revealed, target: AnySpace, stream: Stream) -> Rows:
        """Draw the images of new directions."""
        draws = stream.draws()
        fresh = [space.fresh(units.shape[1], draws) for space in target]
        # A space that occurs twice has grown since its first rows were drawn.
        whole = concatenate([space.padded(p) for space, p in zip(target, fresh, strict=True)])
        if there.directions is None or there.images is None:
            return Rows(target, cut(self.std * whole, target))
        q = there.directions.coordinates
        value = self.std * (whole - (whole @ q.mT) @ q) + inner(units, there.images) @ q
        return Rows(target, cut(value, target))


class Transposed:
    """The transpose of a matrix."""

    __torch_function__ = Rows.__torch_function__

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    @property
    def T(self) -> Matrix:
        """The matrix itself."""
        return self.matrix

    def after(self, g: Rows) -> Rows:
        """Return g W^T."""
        return self.matrix.product_on(1, g)
