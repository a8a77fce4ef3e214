"""A step of the exact chain: the branch of a block on rows, from one state to the next.

The tokens are known by their coordinates; every product with weights is `Linear` in a matrix of
which nothing is drawn; what is used once is drawn in the shortest form. If something turns out to
be used again, the step is taken once more, with the same numbers and nothing shortened.

Write X = sqrt(n) F Q with F (m, c) and orthonormal rows Q (c, n). The n columns of a branch Z are
independent N(0, R R^T), Z = R W with W (r, n) Gaussian; W Q^T is a Gaussian H (r, c), and the part
of W orthogonal to Q has the Gram of a Gaussian (r, n - c), which is Wishart. In an orthonormal
basis that begins with the rows of Q, the tokens X / sqrt n are [F, 0], and the branch Z / sqrt n is

    R [H, B] / sqrt n  with  B B^T ~ Wishart_r(n - c, I),

exactly, and without an n-dimensional object. The next factor is the triangular factor of
lambda [F, 0] + gamma R [H, B] / sqrt n, or of any other function of these rows that commutes with
rotations of the columns, such as a norm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shaped_attention.checks import check_branch, check_count, check_new_name
from shaped_attention.numerics.primitives import M, Numbers, columns, concatenate, constant, lower
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import AnySpace, Frame, Open, RowsError, Sum, unify
from shaped_attention.rows.undrawn import Linear, Undrawn, UsedAgainError
from shaped_attention.rows.values import Plain


class State(NamedTuple):
    """The state of a chain, which determines the law of the next layer.

    Attributes
    ----------
    factors
        Factors F_g (m, c) of the Grams V_g of g groups of columns, V = (1/g) sum of V_g. One group
        suffices unless the blocks treat the groups separately, as unmixed heads do.
    means
        Whether the first column of F_g is h_g, the means of the tokens over the n / g columns of
        the group. F_g consists of the coordinates of X_g / sqrt(n / g) in an orthonormal basis, and
        the first vector of the basis is then 1 / sqrt(n / g) in every entry.
    """

    factors: tuple[Any, ...]
    means: bool = False


def factor_columns(tokens: int, width: int, groups: int, means: bool) -> int:
    """Return the number of columns of the factors in a state."""
    return min(tokens + means, width // groups)


def covariance(state: State) -> Any:
    """Return V (m, m), of the same type as the state's factors."""
    grams = [factor @ factor.mT for factor in state.factors]
    return sum(grams[1:], grams[0]) * (1.0 / len(grams))


def turned(rows: M, means: bool) -> M:
    """Return a factor with the same Gram matrix and few columns; a column of means is kept."""
    if means:
        first, body = columns(rows, 0, 1), columns(rows, 1, rows.shape[-1])
        return concatenate([first, turned(body, False)])
    return lower(rows) if rows.shape[-1] >= rows.shape[-2] else rows


class TokenFrame(Frame):
    """The space of the tokens, or of a group of their columns, whose entries are never drawn."""

    def make_explicit(self) -> None:
        """Raise ValueError: entries of tokens are not drawn."""
        raise RowsError(
            "a function of single entries of tokens has no exact chain: its entries are not drawn; "
            "it acts on a new projection (project)"
        )

    def ones(self) -> Plain:
        """Return the unit vector along ones, if the state has it."""
        if self.known_ones is None:
            raise RowsError(
                "a block takes the mean of the entries of tokens, so its `means` must be True"
            )
        return super().ones()


class NamedStream:
    """Random numbers of one matrix by its name: each call of `draws` gives the next ones."""

    def __init__(self, numbers: Numbers, name: str, head: int = 0) -> None:
        self._numbers, self._name, self._head = numbers, name, head
        self._calls = 0

    def part(self, number: int, count: int) -> NamedStream:
        """Return the numbers of one of several blocks of columns."""
        return NamedStream(self._numbers, self._name, self._head * count + number)

    def draws(self) -> NamedStream:
        """Return the next numbers, those of one call."""
        name = f"{self._name}, {self._calls}" if self._calls else self._name
        self._calls += 1
        return NamedStream(self._numbers, name, self._head)

    def normal(self, rows: int, columns: int) -> Any:
        """Return independent standard normals (rows, columns)."""
        return self._numbers.normal(self._name, rows, columns, self._head)

    def blocks(self, rows: int, known: int, rest: int) -> list[Any]:
        """Return normals along `known` directions, and a Wishart root for the `rest`, if any."""
        blocks = [self.normal(rows, known)] if known else []
        if rest:
            name = f"{self._name}, orthogonal" if known else self._name
            blocks.append(self._numbers.wishart(name, rows, rest, self._head))
        return blocks

    def normals_beside_wishart(self, m: int, known: int, dof: int) -> Any:
        """Return the same blocks as one matrix."""
        return concatenate(self.blocks(m, known, dof))

    def activated_gram(self, left: Any, units: int, function: Any, copies: int) -> Any:
        """Return the Gram matrix of hidden units (see `Numbers`)."""
        return self._numbers.activated_gram(
            self._name, left, units, function, copies, self._head
        )  # fmt: skip


class StepSource(Source):
    """Where the spaces of a step, such as that of the `tokens`, have their numbers and constants.

    Plain matrices are of the type of `like`. With `shortens` what seems to have one use only is
    drawn in a shorter form.
    """

    def __init__(self, like: Plain, numbers: Numbers, *, shortens: bool) -> None:
        super().__init__(len(like) if len(like.shape) > 2 else 1)
        self.like, self._named, self.shortens = like, numbers, shortens
        self._count = 0

    def stream(self, name: str | None = None) -> Any:
        """Return the next stream of a space."""
        assert name is None
        self._count += 1
        return NamedStream(self._named, f"space {self._count}")

    def constant(self, entries: ArrayLike) -> Plain:
        """Return a plain matrix."""
        return constant(np.asarray(entries, dtype=np.float64), like=self.like)

    def filled(self, rows: int, columns: int, number: float) -> Plain:
        """Return a plain matrix of equal entries."""
        return self.constant(np.full((rows, columns), number))


class Step:
    """One step of the chain: the tokens as rows, and the space that they live in."""

    def __init__(
        self, state: State, width: int, numbers: Numbers, *, shortens: bool = True
    ) -> None:
        self.size = width // len(state.factors)
        self.source = StepSource(state.factors[0], numbers, shortens=shortens)
        frames = []
        for factor in state.factors:
            frame = TokenFrame(self.size, self.source)
            frame.grow(factor.shape[-1])
            if state.means:
                frame.known_ones = self.source.constant(np.eye(1, factor.shape[-1]))
            frames.append(frame)
        self.space: AnySpace = frames[0] if len(frames) == 1 else Sum(frames)
        self.source.tokens = self.space
        root = self.size**0.5
        self.tokens = Rows(self.space, tuple(root * x for x in state.factors))

    def state_of(self, rows: Rows, means: bool) -> State:
        """Return the state whose tokens are these rows."""
        rows.space = unify(rows.space, self.space)
        factors = [turned(self.size**-0.5 * part, means) for part in rows.parts]
        return State(tuple(factors), means)


class Projection:
    """``project(x, columns, name=None, head=0)``: x W with a new Gaussian matrix W, for rows."""

    def __init__(self, source: StepSource, numbers: Numbers) -> None:
        self.source, self.numbers = source, numbers
        self._taken: set[tuple[str, int]] = set()
        self._unnamed = 0

    def __call__(self, x: Any, columns: int, name: str | None = None, head: int = 0) -> Rows:
        """Return the product."""
        check_count("columns", columns)
        check_new_name(self._taken, name, head)
        if name is None:
            name = f"weights {self._unnamed}"
            self._unnamed += 1
        root, weight = x.root() if isinstance(x, Rows) else (x, 1.0)
        matrix = Undrawn(root.shape[-1], NamedStream(self.numbers, name, head))
        space = Open(columns, self.source)
        return Rows.pending(space, root.shape[-2], Linear([[(root, matrix)]], [space], weight))

    def inside(self, index: int) -> Projection:
        """Return that of a block inside this one, whose numbers are others."""
        return Projection(self.source, self.numbers.inside(index))


def _attempts(block: Any, p: Any, state: State, numbers: Numbers, width: int) -> tuple[State, bool]:
    """Return the next state, and whether what has one use was drawn in a shorter form."""

    def taken(numbers: Numbers, shortens: bool) -> tuple[State, bool]:
        step = Step(state, width, numbers, shortens=shortens)
        after = block.forward(p, step.tokens, Projection(step.source, numbers))
        return step.state_of(after, state.means), shortens

    try:
        return taken(numbers, True)
    except UsedAgainError:
        return taken(numbers.again(), False)


def chain_of(block: Any, p: Any, state: State, numbers: Numbers, width: int) -> State:
    """Take the state of layer l to that of layer l + 1: `Block.forward` on rows.

    Raise ValueError if the block does what has no exact chain.
    """
    try:
        return _attempts(block, p, state, numbers, width)[0]
    except RowsError as error:
        raise ValueError(
            f"layer contains {block!r}, whose chain cannot be derived from its branch: {error}; "
            "a block without a chain declares no_chain = 'the reason'"
        ) from error


def seen_weights(
    block: Any, p: Any, state: State, numbers: Numbers, width: int
) -> Iterable[tuple[int, Any]]:
    """Yield each head's attention weights (m, m) in the step that the same numbers give."""
    _, shortens = _attempts(block, p, state, numbers.again(), width)
    step = Step(state, width, numbers, shortens=shortens)
    weights: Iterable[tuple[int, Any]] = block.attention_weights(
        p, step.tokens, Projection(step.source, numbers)
    )
    return weights


def root_of_branch(
    block: Any, p: Any, factor: Any, numbers: Numbers, width: int
) -> list[Any] | None:
    """Return a root of the covariance of a column of the branch, for each group of columns.

    It is None if the branch does not end in a product with weights.
    """
    step = Step(State((factor,)), width, numbers)
    rows = block.branch(p, step.tokens, Projection(step.source, numbers))
    check_branch(block, rows, step.tokens)
    return rows.linear.root() if isinstance(rows.linear, Linear) else None


def normalised(state: State, function: Any, width: int) -> State:
    """Return the state of a function of tokens that needs no numbers, such as a norm."""
    step = Step(state, width, Numbers())
    return step.state_of(function(step.tokens), state.means)
