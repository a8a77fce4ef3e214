"""Definition of a residual block: its branch with real weights, from which all else is derived.

A block owns its mathematics and knows nothing of loops; a driver owns a loop and knows nothing of
attention. The mathematics is written once, in the notation of torch and the primitives of
`shaped_attention.numerics.primitives`. Torch runs it on any device; compiled code runs it after it
has been traced into a program.

- `branch` is the block with weight matrices, on tokens (..., m, n): the ground truth. On tensors
  the weights are real; on rows of revealed spaces (`shaped_attention.rows`) the same text is
  the step of the exact chain, whose random numbers do not grow with n.
- `limit` describes dV = b(V) dt + noise for the factor (`Limit`), or is the reason why there is no
  limit, as the end of a sentence. It is derived from the branch (`shaped_attention.blocks.limits`).

All parameters arrive as `p`, whose attributes are the block's fields: numbers that may change with
depth. A description may branch on sizes and on fields that are not parameters, never on entries.

As an example, the block X' = lambda X + gamma X W / sqrt n::

    @dataclass(frozen=True)
    class Linear(Block):
        gamma: float

        def branch(self, p, tokens, project):
            n = tokens.shape[-1]
            return project(tokens, n) / n**0.5
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Float

from shaped_attention.blocks.parameters import (
    Parameter,
    Parameters,
    Schedule,
    blocks_in,
    blocks_inside,
    check_ranges,
    plain_fields,
)
from shaped_attention.checks import argument_error, check_branch
from shaped_attention.libraries import Tensor
from shaped_attention.numerics.operations.registry import RunsPrimitives
from shaped_attention.numerics.primitives import Numbers as Numbers
from shaped_attention.numerics.primitives import sqrt
from shaped_attention.rows.step import State, chain_of

if TYPE_CHECKING:
    from shaped_attention.blocks.limit import Limit

if TYPE_CHECKING:
    Tokens: TypeAlias = Tensor
    """Tokens (..., m, n): a tensor, or rows of lazily revealed networks, which act like one."""
else:
    Tokens = Float[Tensor, "*B m n"] | RunsPrimitives

Project = Callable[..., Tokens]
"""``project(x, columns, name=None, head=0)`` is x @ W with a new matrix W of N(0, 1) weights.

Name and head address the random numbers of the chain; without a name they go by the order of calls.
"""


def inside(project: Project, index: int) -> Project:
    """Return the products of a block inside another, whose random numbers have a place there."""
    nested = getattr(project, "inside", None)
    if nested is not None:
        return nested(index)

    def within(x: Any, columns: int, name: str | None = None, head: int = 0) -> Any:
        return project(x, columns, None if name is None else f"{index}.{name}", head)

    return within


class Block(ABC):
    """A residual block ``X' = lambda X + gamma * branch(X)``.

    Subclasses are frozen dataclasses whose fields are plain data: a result stores them, so that it
    can be reproduced from them. lambda is the field `skip` if it exists and is not None, and sqrt(1
    - gamma^2) otherwise. `fixed` names the numerical fields that `branch` and `limit` do
    not take from their argument `p`: these neither change with depth nor have derivatives.
    """

    if TYPE_CHECKING:  # a field, a class attribute or a property
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

        @property
        def gamma(self) -> Parameter:
            """Weight of the branch."""

        @property
        def fixed(self) -> tuple[str, ...]:
            """Fields that neither change with depth nor have derivatives."""
    else:
        fixed = ()

    def __post_init__(self) -> None:
        """Check the fields that `parameters.bounded` declares.

        Raises
        ------
        ValueError
            If one is outside its range.
        """
        plain_fields(self)
        check_ranges(self)

    @abstractmethod
    def branch(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the branch of the tokens, with real weight matrices."""

    @property
    def limit(self) -> Limit | str:
        """The limit, derived from the branch, or the reason why there is none."""
        if "_limit" not in vars(self):
            from shaped_attention.blocks.limits.derived import limit_from_branch

            vars(self)["_limit"] = limit_from_branch(self)
        found: Limit | str = vars(self)["_limit"]
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields only, so that a derived limit is not pickled."""
        return {name: value for name, value in vars(self).items() if name != "_limit"}

    @property
    def no_chain(self) -> str:
        """The reason why there is no exact chain; empty if there is one."""
        return next((block.no_chain for block in blocks_inside(self) if block.no_chain), "")

    @property
    def groups(self) -> int:
        """Number of groups of equal size into which the columns of the branch fall."""
        return math.lcm(*(block.groups for block in blocks_inside(self)))

    @property
    def means(self) -> bool:
        """Whether the law of the next state depends on the means of the tokens, as with LayerNorm.

        The state then holds the means as a column (`State.means`).
        """
        return any(block.means for block in blocks_inside(self))

    def skip_weight(self, p: Parameters) -> Any:
        """Return lambda, the weight of the skip connection."""
        if getattr(self, "skip", None) is not None:
            return p.skip
        return sqrt(1.0 - p.gamma**2)

    def applied(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Return the branch, of the shape of the tokens."""
        branch = self.branch(p, tokens, project)
        check_branch(self, branch, tokens)
        return branch

    def forward(self, p: Parameters, tokens: Tokens, project: Project) -> Tokens:
        """Apply the block to tokens."""
        return self.skip_weight(p) * tokens + p.gamma * self.applied(p, tokens, project)

    def attention_weights(
        self, p: Parameters, tokens: Tokens, project: Project, logits: bool = False
    ) -> Iterable[tuple[int, Any]]:
        """Yield the index of each head with its attention weights (..., m, m), or their logits.

        With the same `project` as for `branch` the weights belong to the same realisation.
        """
        return ()

    def step(self, p: Parameters, state: State, numbers: Numbers, width: int) -> State:
        """Take the state of layer l to that of layer l + 1, exactly in law at this width."""
        return chain_of(self, p, state, numbers, width)

    def check(self, tokens: int, width: int | None) -> None:
        """Raise ValueError if the block cannot act on this number of tokens at this width."""
        for block in blocks_inside(self):
            block.check(tokens, width)

    def widest(self, width: int) -> int:
        """Return the largest column count in a branch with real weights, to estimate memory."""
        return max([width, *(block.widest(width) for block in blocks_inside(self))])

    def specification(self) -> dict[str, Any]:
        """Return the name and the fields as plain data that JSON can hold."""
        return self.named({x.name: getattr(self, x.name) for x in fields(self)})

    def named(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the name and the arguments of this block as plain data."""
        own = type(self).__module__.startswith("shaped_attention.")
        kind = {"block" if own else "custom": type(self).__name__}
        return kind | {name: _plain_field(value) for name, value in arguments.items()}


def _plain_field(value: Any) -> Any:
    if type(value) in (float, int, bool, str):
        return value
    if inner := blocks_in(value):
        plain = [x.specification() for x in inner]
        return plain if isinstance(value, tuple) else plain[0]
    if isinstance(value, Schedule):
        return {"schedule": [list(knot) for knot in value.knots]}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@dataclass(frozen=True)
class Pattern:
    """A repeating pattern of K layers: layer l consists of the blocks of entry l modulo K.

    In the limit the layers of a pattern share the time, each with weight 1 / K.

    Parameters
    ----------
    layers
        List of layers, each a block or a list of blocks.

    Raises
    ------
    ValueError
        If the list is empty, or an entry is not a layer.

    Examples
    --------
    >>> from shaped_attention import Pattern, ShapedAttention, ShapedMLP
    >>> len(Pattern([ShapedAttention(0.3), [ShapedAttention(0.3), ShapedMLP(0.3)]]).layers)
    2
    """

    if TYPE_CHECKING:
        layers: tuple[tuple[Block, ...], ...]

        def __init__(self, layers: Sequence[Block | Sequence[Block]]) -> None: ...
    else:
        layers: Any

    def __post_init__(self) -> None:
        known = (Block, list, tuple)
        if not (isinstance(self.layers, list | tuple) and self.layers) or not all(
            isinstance(layer, known) for layer in self.layers
        ):
            raise argument_error("layers", "a non-empty list of layers", self.layers)
        object.__setattr__(self, "layers", tuple(blocks_of(layer) for layer in self.layers))


if TYPE_CHECKING:
    Layer: TypeAlias = Block | Sequence[Block] | Pattern
    """A block, the blocks of a layer in the order in which they act, or a pattern of layers."""
else:
    Layer = Any


def blocks_of(layer: Layer) -> tuple[Block, ...]:
    """Return the blocks of a layer, or of all layers of a pattern, as a tuple.

    Raises
    ------
    ValueError
        If `layer` is neither a block nor a non-empty list of blocks.
    """
    if isinstance(layer, Block):
        _check_fields(layer)
        return (layer,)
    if isinstance(layer, Pattern):
        return tuple(block for blocks in layer.layers for block in blocks)
    if not isinstance(layer, list | tuple) or not layer:
        raise argument_error("layer", "a block or a non-empty list of blocks", layer)
    for i, block in enumerate(layer):
        if not isinstance(block, Block):
            raise argument_error(f"layer[{i}]", "a block", block)
        _check_fields(block)
    return tuple(layer)


def _check_fields(block: Block) -> None:
    kind = type(block)
    if not is_dataclass(block):
        raise ValueError(f"{kind.__name__} must be a dataclass: @dataclass(frozen=True)")
    if kind.forward is Block.forward and not hasattr(block, "gamma"):
        raise ValueError(
            f"{kind.__name__} must have a field gamma, by which its branch is multiplied"
        )


def pattern_of(layer: Layer | Pattern) -> tuple[tuple[Block, ...], ...]:
    """Return the blocks of each layer of a pattern; a single layer is a pattern of one."""
    return layer.layers if isinstance(layer, Pattern) else (blocks_of(layer),)


def specification_of(pattern: Sequence[Sequence[Block]]) -> Any:
    """Return a pattern as plain data: a list of blocks, or of layers under the key "pattern"."""
    layers = [[block.specification() for block in blocks] for blocks in pattern]
    return layers[0] if len(layers) == 1 else {"pattern": layers}


def needs_means(blocks: Iterable[Block]) -> bool:
    """Return whether the state of a process of these blocks has the means of the tokens."""
    return any(block.means for block in blocks)
