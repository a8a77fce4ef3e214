"""Branches that have no exact chain: every refusal gives the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from shaped_attention.blocks.base import inside
from shaped_attention.numerics.primitives import constant, softmax, tanh
from tests import test_chain_branches
from tests.test_chain_branches import V0, WIDTH, Custom


def entries_of_tokens(tokens: Any, project: Any, n: int) -> Any:
    return project(tanh(tokens), n) / n**0.5


def means(tokens: Any, project: Any, n: int) -> Any:
    return project(tokens - tokens.mean(-1, keepdim=True), n) / n**0.5


def other_entries(tokens: Any, project: Any, n: int) -> Any:
    entries = constant(np.ones((tokens.shape[-2], 5)), like=tokens)
    return project(project(tokens, 5) + entries, n) / n**0.5


def two_operands(tokens: Any, project: Any, n: int) -> Any:
    return project(torch.cat([project(tokens, 4), project(tokens, 4)], -1) * 0.5 + 1.0, n) * tanh(
        torch.cat([project(tokens, 4), project(tokens, 4)], -1)
    )


REFUSED = {
    other_entries: r"or one number per row, can be added to rows; got shape \((\d+, )?3, 5\)",
    two_operands: "functions of entries act on one space; got a direct sum of 2 spaces",
    entries_of_tokens: "a function of single entries of tokens has no exact chain",
    means: "takes the mean of the entries of tokens, so its `means` must be True",
}


@pytest.mark.parametrize("branch", REFUSED, ids=lambda x: x.__name__)
def test_what_has_no_chain_says_why(branch: Any, monkeypatch: Any) -> None:
    """The message has the block, the reason, and what to do; networks with weights still run."""
    monkeypatch.setattr(test_chain_branches, "BRANCHES", (branch,))
    size = {"width": WIDTH, "depth": 1, "samples": 2, "progress": False}
    with pytest.raises(ValueError, match="whose chain cannot be derived from its branch") as found:
        sa.simulate_chain(Custom(0), V0, **size)
    assert found.match(REFUSED[branch])
    assert found.match("a block without a chain declares no_chain = 'the reason'")
    assert np.isfinite(sa.simulate_network(Custom(0), V0, **size).V.values).all()


@dataclass(frozen=True)
class Twice(sa.Block):
    """A block inside this one, whose branch is used twice."""

    inner: sa.Block
    places: tuple[int, int]
    gamma: float = 0.7
    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        first, second = (
            self.inner.applied(p.inner, tokens, inside(project, place)) for place in self.places
        )
        return first + second


@dataclass(frozen=True)
class WithoutChain(Custom):
    no_chain = "a sum is not described"


def test_a_block_may_declare_that_it_has_no_chain() -> None:
    with pytest.raises(ValueError, match="has no chain: a sum is not described"):
        sa.simulate_chain(
            sa.Normalised(WithoutChain(0)), V0, width=WIDTH, depth=1, samples=2, progress=False
        )


def same_name(tokens: Any, project: Any, n: int) -> Any:
    return project(tokens, n, "a") + project(tokens, n, "a")


@pytest.mark.parametrize("sample", [sa.simulate_chain, sa.simulate_network, sa.gradient_norms])
def test_equal_names_are_refused(sample: Any, monkeypatch: Any) -> None:
    """They could be meant to be one matrix."""
    monkeypatch.setattr(test_chain_branches, "BRANCHES", (same_name,))
    with pytest.raises(ValueError, match="twice: equal names do not tie weights"):
        sample(Custom(0), V0, width=WIDTH, depth=1, samples=2, progress=False)


def test_a_place_inside_a_block_has_its_numbers_once() -> None:
    block = sa.ShapedMLP(0.5, activation="plain_relu", hidden=12)
    size = {"width": WIDTH, "depth": 1, "samples": 2, "progress": False}
    with pytest.raises(ValueError, match=r"'hidden' \(head 0\) are drawn twice in one step"):
        sa.simulate_chain(Twice(block, (0, 0)), V0, **size)
    assert np.isfinite(sa.simulate_chain(Twice(block, (0, 1)), V0, **size).V.values).all()


@dataclass(frozen=True)
class Misshapen(sa.Block):
    """A branch or scores of a shape that does not fit, which torch would repeat or refuse."""

    kind: str
    gamma: float = 0.7
    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        results = {
            "no column": lambda: project(tokens, 0),
            "a row": lambda: project(tokens, tokens.shape[-1])[:, :1],
            "mask": lambda: softmax(tokens @ tokens.mT, np.ones((2, 2), bool)) @ tokens,
        }
        return results[self.kind]()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("no column", "columns must be an integer >= 1; got 0"),
        ("a row", r"must return one row of 8 columns .* 3 tokens; got shape \(1, 8\)"),
        ("mask", r"boolean array .* \(3, 3\)"),
    ],
)
@pytest.mark.parametrize("sample", [sa.simulate_network, sa.simulate_chain, sa.gradient_norms])
def test_shapes_that_do_not_fit(sample: Any, kind: str, shown: str) -> None:
    """The same sentence from networks, chains and lazily revealed weights."""
    with pytest.raises(ValueError, match=shown):
        sample(Misshapen(kind), V0, width=WIDTH, depth=1, samples=2, progress=False)


class NoFields(sa.Block):
    """Not a dataclass."""

    limit = "not needed"

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        return project(tokens, tokens.shape[-1])


@dataclass(frozen=True)
class NoWeight(NoFields):
    """Without a gamma."""


@pytest.mark.quick
@pytest.mark.parametrize("sample", [sa.simulate_network, sa.simulate_chain, sa.gradient_norms])
def test_a_block_has_fields_and_a_weight(sample: Any) -> None:
    for kind, message in (
        (NoFields, r"NoFields must be a dataclass: @dataclass\(frozen=True\)"),
        (NoWeight, "NoWeight must have a field gamma, by which its branch"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(kind(), V0, width=WIDTH, depth=1, samples=2)
