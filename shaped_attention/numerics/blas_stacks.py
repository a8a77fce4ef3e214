"""Operations of a graph that library routines can do at once: equal ones on different matrices.

The heads of attention are traced one by one. On few tokens the interpreter would need longer for
the thousands of operations of a layer than the operations themselves. Operations of the same kind
with inputs from the same stacks form a stack themselves, (count, rows, columns).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from shaped_attention.numerics.graph import Node

Array = NDArray[np.float64]

LARGEST_STACK = 2**18
"""Entries of a stack; larger operations are done one by one (measured)."""

_ALONE = frozenset({
    "input", "constant", "activated_part", "mirrored_sum", "lower", "cholesky", "symmetric",
    "arc_cosine",
})  # fmt: skip


def stacks(nodes: Sequence[Node], tables: dict[int, Array]) -> list[list[Node]]:
    """Return the nodes in groups, which may be computed in this order.

    `tables` has the scalars of each node at all steps.

    Nodes of a group differ in their random numbers and inputs alone. The inputs at one place are
    the same node for all, or belong to one group.
    """
    classes: dict[Hashable, list[Node]] = {}
    name: dict[int, Hashable] = {}
    for node in nodes:
        key = _signature(node, name, tables)
        members = classes.setdefault(key, [])
        members.append(node)
        name[id(node)] = id(members)
    group: dict[int, int] = {}
    found: list[list[Node]] = []
    for members in classes.values():
        together = len(members) == 1 or _fits(members, group)
        for part in [members] if together else [[node] for node in members]:
            group.update((id(node), len(found)) for node in part)
            found.append(part)
    return _in_order(found, group, nodes)


def _signature(node: Node, name: dict[int, Hashable], tables: dict[int, Array]) -> Hashable:
    if node.kind in _ALONE:
        return id(node)
    numbers = tables[id(node)].tobytes()
    # Only the slot of random numbers differs between the heads.
    integers = node.integers if node.address is None else node.integers[1:]
    inputs = tuple(name[id(x)] for x in node.inputs)
    return (node.kind, inputs, node.shape, numbers, integers, node.lower, node.address)


def _fits(members: list[Node], group: dict[int, int]) -> bool:
    rows, columns = members[0].shape
    if len(members) * rows * columns > LARGEST_STACK:
        return False
    places = list(zip(*(node.inputs for node in members), strict=True))
    shared = [all(x is place[0] for x in place) for place in places]
    if members[0].address is None and all(shared):
        return False
    return all(
        same or len({group[id(x)] for x in place}) == 1
        for same, place in zip(shared, places, strict=True)
    )


def _in_order(
    groups: list[list[Node]], group: dict[int, int], nodes: Sequence[Node]
) -> list[list[Node]]:
    """Sort groups so that each comes after its inputs, and otherwise in the order of the nodes."""
    result: list[list[Node]] = []
    done: set[int] = set()

    def take(number: int) -> None:
        if number not in done:
            done.add(number)
            for node in groups[number]:
                for x in node.inputs:
                    take(group[id(x)])
            result.append(groups[number])

    for node in nodes:
        take(group[id(node)])
    return result
