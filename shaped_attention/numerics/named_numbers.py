"""Random numbers by name: the numbers that a description draws, in torch or while it is traced.

A number is addressed by (seed, stream, sample, step, place of the block, name, head). Seed, stream,
place and name give the key of the counter-based generator; head, sample and step the counter.
Nothing else enters, so a number depends neither on the block's further numbers nor on its
parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.numerics.graph import Graph, Matrix, Node, needed
from shaped_attention.numerics.operations.registry import OPERATIONS
from shaped_attention.numerics.primitives import Numbers

HIDDEN_AT_A_TIME = 256
"""Number of hidden units drawn at once; even, and fixed so that chunks do not reorder a sum."""


@dataclass
class Keys:
    """The keys of a run, by address."""

    seed: int
    stream: str
    _known: dict[Hashable, NDArray[np.uint64]] = field(default_factory=dict, repr=False)

    def key(self, address: Any) -> NDArray[np.uint64]:
        """Return the key (2,) of an address (place, name)."""
        known = self._known.get(address)
        if known is None:
            place, name = address
            digest = hashlib.sha256(name.encode()).digest()
            words = [int.from_bytes(digest[i : i + 4], "little") for i in (0, 4)]
            known = stream_key(self.seed, self.stream, 2**16 + len(place), *place, *words)
            self._known[address] = known
        return known


@dataclass(kw_only=True)
class _OncePerStep(Numbers):
    """Numbers of a place of the layer, that of a block, none of which can be drawn twice in a step.

    `increments` is the standard deviation of the Brownian increments of a limit, the root of the
    step; None for the numbers of a chain.
    """

    place: tuple[int, ...] = ()
    increments: Any = None
    _taken: set[Hashable] = field(default_factory=set, repr=False)

    def inside(self, index: int) -> Self:
        """Return the numbers of a block inside this one."""
        return replace(self, place=(*self.place, index))

    def again(self) -> Self:
        """Return the numbers of the same step, of which none is drawn yet."""
        return replace(self, _taken=set())

    def _address(self, name: str, head: int) -> Hashable:
        if (self.place, name, head) in self._taken:
            raise ValueError(
                f"the numbers {name!r} (head {head}) are drawn twice in one step of a block; "
                "give each draw a different name"
            )
        self._taken.add((self.place, name, head))
        return (self.place, name)


@dataclass
class TorchNumbers(_OncePerStep):
    """The random numbers of one block in one step, for a set of samples, as torch tensors.

    The samples, the step and the dtype are as in `draws.Draws`, and `keys` those of the run.
    """

    keys: Keys
    samples: Int[Tensor, " B"]
    step: int | Int[Tensor, " B"]
    dtype: torch.dtype = field(default_factory=lambda: torch.float64)

    def _draws(self, name: str, head: int) -> Draws:
        key = self.keys.key(self._address(name, head))
        return Draws(key, self.samples, self.step, 2 * head, self.dtype)

    def normal(
        self, name: str, rows: int, columns: int, head: int = 0
    ) -> Float[Tensor, "B rows columns"]:
        """Return independent standard normals (B, rows, columns), or increments."""
        numbers = self._draws(name, head).normal(rows, columns)
        return numbers if self.increments is None else self.increments * numbers

    def wishart(
        self, name: str, rows: int, dof: int, head: int = 0
    ) -> Float[Tensor, "B rows columns"]:
        """Return roots of Wishart matrices (see `Numbers`)."""
        if self.increments is not None:
            return super().wishart(name, rows, dof, head)
        return self._draws(name, head).wishart_factor(rows, dof)

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Callable[..., Any], copies: int = 1,
        head: int = 0,
    ) -> Float[Tensor, "B m m"]:  # fmt: skip
        """Return Gram matrices of `count` activated columns (see `Numbers`)."""
        if self.increments is not None:
            return super().activated_gram(name, factor, count, activation, copies, head)
        m, inner = factor.shape[-2:]
        total = factor.new_zeros(*factor.shape[:-2], m, m)
        for gaussian in self.hidden_columns(name, copies * inner, count, head):
            hidden = activation(*(factor @ part for part in gaussian.split(inner, dim=-2)))
            total = total + hidden @ hidden.mT
        return total

    def hidden_columns(self, name: str, rows: int, count: int, head: int = 0) -> Iterator[Tensor]:
        """Yield a Gaussian matrix (B, rows, count), a fixed number of columns at a time."""
        yield from self._draws(name, head).column_blocks(rows, count, HIDDEN_AT_A_TIME)


@dataclass
class TracedNumbers(_OncePerStep):
    """The random numbers of one block while its description is traced; equal ones are one node."""

    graph: Graph

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Matrix:
        """Return independent standard normals (rows, columns)."""
        scale = 1.0 if self.increments is None else self.increments
        return self.graph.node(
            "normal", (), (rows, columns), (scale,), (2 * head,), address=self._address(name, head)
        )

    def wishart(self, name: str, rows: int, dof: int, head: int = 0) -> Matrix:
        """Return a root of a Wishart matrix (see `Numbers`)."""
        if self.increments is not None:
            return super().wishart(name, rows, dof, head)
        if dof < rows + 2:
            return self.normal(name, rows, dof, head)
        return self.graph.node(
            "wishart", (), (rows, rows), (float(dof),), (2 * head,), lower=True,
            address=self._address(name, head),
        )  # fmt: skip

    def activated_gram(
        self, name: str, factor: Any, count: int, activation: Callable[..., Any], copies: int = 1,
        head: int = 0,
    ) -> Matrix:  # fmt: skip
        """Return the Gram matrix of `count` activated columns (see `Numbers`)."""
        if self.increments is not None:
            return super().activated_gram(name, factor, count, activation, copies, head)
        address = self._address(name, head)
        flat = factor.value()
        inside = Graph()
        rows = flat.shape[0]
        hidden = [inside.node("input", (), (rows, 1)) for _ in range(copies)]
        result = activation(*hidden).value()
        check_activation(inside, [x.node for x in hidden], result.node)
        return self.graph.node(
            "activated_gram", (flat.node,), (rows, rows), (), (2 * head, count, copies),
            address=address, inside=(inside, result.node),
        )  # fmt: skip


def check_activation(inside: Graph, hidden: list[Node], result: Node) -> None:
    """Raise ValueError unless an activation acts entry by entry, and on all its arguments."""
    nodes = needed([result], inside.nodes)
    for node in nodes:
        if node.kind != "input" and (node.data is not None or OPERATIONS[node.kind].entry is None):
            raise ValueError(
                f"an activation must be a function of single entries; it uses {node.kind}"
            )
        for x in node.inputs:
            if not any(x is known for known in inside.nodes):
                raise ValueError("an activation uses a matrix besides its argument")
    if nodes[: len(hidden)] != hidden:
        raise ValueError("an activation does not depend on its argument")


class DrawnOnce(Numbers):
    """Increments that are the same whenever they are asked for again in a step."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers, self._drawn = numbers, dict[tuple[str, int], Any]()

    def normal(self, name: str, rows: int, columns: int, head: int = 0) -> Any:
        """Return the increments."""
        key = name, head
        if key not in self._drawn:
            self._drawn[key] = self._numbers.normal(name, rows, columns, head)
        return self._drawn[key]
