"""A step of the exact chain, from the branch of a block on rows of revealed spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from shaped_attention.checks import check_branch, check_count, check_new_name
from shaped_attention.derived.hidden import Hidden, entrywise
from shaped_attention.derived.parts import Part, Value, ValuePart
from shaped_attention.derived.rows import Rows, of_equal_parts
from shaped_attention.derived.spaces import DerivationError, Source, Space, UsedAgainError, unify
from shaped_attention.derived.state import State, turned
from shaped_attention.numerics import primitives
from shaped_attention.numerics.graph import Extended
from shaped_attention.numerics.primitives import M, Numbers
from shaped_attention.numerics.scalars import product

ENTRYWISE = frozenset({"exp", "leaky", "normal_cdf", "sigmoid", "softplus", "sqrt", "tanh"})


class Reveal:
    """The tokens of one step as rows, and the numbers from which everything else is revealed.

    Parameters
    ----------
    state
        The state of the chain.
    width
        n.
    numbers
        The random numbers of the block.
    shortens
        Whether what seems to have one use only is drawn in a shorter form: hidden units as their
        Gram matrix, a sum of products as one of fewer rows.
    """

    def __init__(
        self, state: State, width: int, numbers: Numbers, *, shortens: bool = True
    ) -> None:
        self.shortens = shortens
        self.numbers, self.width, self.groups = numbers, width, len(state.factors)
        self.size = width // self.groups
        self.root = self.size**0.5
        self.taken: set[int] = set()
        factor = state.factors[0]
        self.like: Any = factor.value if isinstance(factor, Extended) else factor
        self.batch = tuple(factor.shape[:-2])
        self._names: Counter[str] = Counter()
        self.spaces = [
            Space(self.size, [x.shape[-1]], ones=state.means, group=g)
            for g, x in enumerate(state.factors)
        ]
        value = Value(lambda: [[x] for x in state.factors])
        value.blocks()
        self._parts = [Part.of(ValuePart(value, g), space) for g, space in enumerate(self.spaces)]
        self._count = factor.shape[-2]

    @property
    def tokens(self) -> Rows:
        """The tokens; not kept, since rows refer to this object."""
        return Rows(self, self._parts, self._count, 1.0, 1)

    def uses(self, name: str) -> int:
        """Return how many projections have this name."""
        return self._names[name]

    def project(self, x: Any, columns: int, name: str | None, head: int, numbers: Numbers) -> Rows:
        """Multiply rows, or a plain matrix, by a new Gaussian matrix."""
        if name is None:
            name = f"weights {self._names['']}"
            self._names[""] += 1
        self._names[name] += 1
        root, value, power = x.factored() if isinstance(x, Rows) else (x, 1.0, 0)
        space = Space(columns)
        part = Part.of(Source(root, space, numbers, name, head), space)
        return Rows(self, [part], x.shape[-2], value, power)

    def of_root(self, root: Any, numbers: Numbers) -> Rows:
        """Return a branch whose columns have the covariances that roots give, one per group."""
        roots = root if isinstance(root, list) else [root]
        spaces = [Space(self.width // len(roots)) for _ in roots]
        parts = [
            Part.of(Source(x, space, numbers, f"root {h}", h), space)
            for h, (x, space) in enumerate(zip(roots, spaces, strict=True))
        ]
        return Rows(self, parts, roots[0].shape[-2])

    def of_entries(self, function: Callable[..., Any], args: Any, named: Any) -> Rows:
        """Apply a primitive that needs entries, of which one argument is rows."""
        places = [k for k, x in enumerate(args) if isinstance(x, Rows)]
        primitive = getattr(primitives, function.__name__, None)
        keeps_columns = function.__name__ in (*ENTRYWISE, "rotate", "softmax")
        if primitive is None or len(places) != 1 or not keeps_columns:
            raise DerivationError(f"{function.__name__} of rows has no exact chain")
        (place,) = places
        rows = args[place]
        if len(rows.parts) != 1:
            raise DerivationError(
                f"{function.__name__} acts on one space; got a direct sum of {len(rows.parts)}"
            )

        def applied(x: Any) -> Any:
            return primitive(*args[:place], x, *args[place + 1 :], **named)

        if function.__name__ in ENTRYWISE:
            return entrywise(applied, rows)
        for part in rows.parts:
            part.space.make_explicit()

        def value() -> list[Any]:
            [[block]] = rows.blocks()
            return [[applied(product(rows.coefficient, block))]]

        (part,) = rows.parts
        return rows.like([Part.of(ValuePart(Value(value), 0), part.space)])

    def is_open(self, rows: Rows) -> bool:
        """Return whether rows are a projection of which nothing is known, or explicit."""
        return all(
            x.space.explicit or (x.space.group is None and not x.space.segments) for x in rows.parts
        )

    def refined(self, rows: Rows) -> Rows:
        """Return rows as wide as the tokens as rows of as many groups."""
        fewer = len(rows.parts) < self.groups
        if rows.columns != self.width or not fewer or not self.is_open(rows):
            return rows
        return of_equal_parts(rows, self.tokens)[0]

    def settled(self, rows: Rows, explicit: bool = False) -> Rows:
        """Decide on the frame of rows, if it is open: that of the tokens if they are as wide."""
        spaces = [x.space for x in rows.parts]
        for part in rows.parts:
            if any(isinstance(leaf.value, Hidden) for leaf in part.values):
                part.space.make_explicit()
        if any(x.segments or x.met or x.group is not None for x in spaces):
            return rows
        if rows.columns == self.width and len(rows.parts) <= self.groups:
            rows = self.refined(rows)
            for part, space in zip(rows.parts, self.spaces, strict=True):
                unify(part.space, space)
        elif explicit:
            for space in spaces:
                space.make_explicit()
        return rows

    def state_of(self, rows: Any, means: bool) -> State:
        """Return the state whose tokens are these rows."""
        scale = rows.value
        if rows.power != 1:
            scale = scale * self.root ** (rows.power - 1)
        return State(tuple(product(scale, x) for x in self._small(rows, means)), means)

    def _small(self, rows: Rows, means: bool) -> list[Any]:
        only = rows.parts[0].only
        value = only.value if isinstance(only, ValuePart) else None
        of_one = all(getattr(part.only, "value", None) is value for part in rows.parts)
        if value is not None and value.whole is not None and value.function is not None and of_one:
            # Means and norms commute with the rotation that makes a factor small.
            inner = [[x] for x in self._small(value.whole, means)]
            return [x for (x,) in value.function(inner)]
        for part, space in zip(rows.parts, self.spaces, strict=True):
            unify(part.space, space)
        result = []
        for blocks in rows.blocks():
            first, *rest = blocks
            result.append(turned([first, *(x for x in rest if x is not None)], means))
        return result


class Projection:
    """``project(x, columns, name=None, head=0)``: x W with a new Gaussian matrix W, for rows."""

    def __init__(self, reveal: Reveal, numbers: Numbers) -> None:
        self.reveal, self.numbers = reveal, numbers
        self._taken: set[tuple[str, int]] = set()

    def __call__(self, x: Any, columns: int, name: str | None = None, head: int = 0) -> Rows:
        """Return the product."""
        check_count("columns", columns)
        check_new_name(self._taken, name, head)
        return self.reveal.project(x, columns, name, head, self.numbers)

    def inside(self, index: int) -> Projection:
        """Return that of a block inside this one, whose numbers are others."""
        return Projection(self.reveal, self.numbers.inside(index))

    def root(self, block: Any, p: Any, tokens: Rows) -> Rows:
        """Return the branch of a block by its own `root`."""
        scaled = tokens / self.reveal.width**0.5
        factor = scaled.coefficient * tokens.root()
        return self.reveal.of_root(block.root(p, factor, self.numbers, self.reveal.width),
                                   self.numbers)  # fmt: skip


def _attempts(block: Any, p: Any, state: State, numbers: Numbers, width: int) -> tuple[State, bool]:
    """Return the next state, and whether what has one use was drawn in a shorter form."""
    for shortens in (True, False):
        reveal = Reveal(state, width, numbers, shortens=shortens)
        try:
            after = block.forward(p, reveal.tokens, Projection(reveal, numbers))
            return reveal.state_of(after, state.means), shortens
        except UsedAgainError:
            if not shortens:
                raise
            numbers = numbers.again()
    raise AssertionError


def derived_step(block: Any, p: Any, state: State, numbers: Numbers, width: int) -> State:
    """Take the state of layer l to that of layer l + 1: `Block.forward` on rows.

    Raises
    ------
    ValueError
        If the block does what has no exact chain.
    """
    try:
        after, _ = _attempts(block, p, state, numbers, width)
        return after
    except DerivationError as error:
        raise ValueError(
            f"layer contains {block!r}, whose chain cannot be derived from its branch: {error}; "
            "a block without a chain declares no_chain = 'the reason'"
        ) from error


def seen_weights(
    block: Any, p: Any, state: State, numbers: Numbers, width: int
) -> Iterable[tuple[int, Any]]:
    """Yield each head's attention weights (m, m) in the step that the same numbers give."""
    _, shortens = _attempts(block, p, state, numbers.again(), width)
    reveal = Reveal(state, width, numbers, shortens=shortens)
    weights: Iterable[tuple[int, Any]] = block.attention_weights(
        p, reveal.tokens, Projection(reveal, numbers)
    )
    return weights


def derived_root(block: Any, p: Any, factor: M, numbers: Numbers, width: int) -> M | list[M]:
    """Return a root of the covariance of a column of the branch, or of each group of columns.

    Raises
    ------
    ValueError
        If the branch does not end in a projection.
    """
    reveal = Reveal(State((factor,)), width, numbers)
    rows = block.branch(p, reveal.tokens, Projection(reveal, numbers))
    check_branch(block, rows, reveal.tokens)
    if any(len(x.undrawn) != len(x.leaves) for x in rows.parts):
        raise DerivationError(
            "the branch does not end in a product with weights, so it has no root"
        )
    roots: list[Any] = [product(rows.coefficient, x.left(x.undrawn)) for x in rows.parts]
    return roots if len(roots) > 1 else roots[0]
