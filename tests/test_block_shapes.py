"""Blocks without fields, and shapes that do not fit: one sentence in every sampler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import shaped_attention as sa
from shaped_attention.numerics.primitives import (
    cholesky,
    columns,
    concatenate,
    constant,
    softmax,
)


class NoFields(sa.Block):
    """Not a dataclass."""

    limit = "not needed"

    def branch(self, p, tokens, project):
        return project(tokens, tokens.shape[-1])


@dataclass(frozen=True)
class NoWeight(NoFields):
    """Without a gamma."""


@pytest.mark.quick
@pytest.mark.parametrize(
    "sample",
    [
        sa.simulate_chain, sa.simulate_network, sa.gradient_norms,
        lambda block, *_, **__: sa.check_block(block, np.eye(3)),
        lambda block, *_, **__: sa.explain(block),
    ],
)  # fmt: skip
def test_a_block_has_fields_and_a_weight(sample):
    for kind, message in (
        (NoFields, r"NoFields must be a dataclass: @dataclass\(frozen=True\)"),
        (NoWeight, "NoWeight must have a field gamma, by which its branch"),
    ):
        with pytest.raises(ValueError, match=message):
            sample(kind(), np.eye(3), width=8, depth=1, samples=2)


MISSHAPEN = {
    "softmax of fewer": (lambda s: softmax(s, np.ones((3, 3), bool)), r"boolean array .* \(4, 4\)"),
    "softmax of none": (
        lambda s: softmax(s, np.tri(4, k=-1, dtype=bool)), "at least one entry .* row 0 has none"
    ),
    "columns": (lambda s: columns(s, 1, 5), r"some of 0, \.\.\., 3; got start=1, stop=5"),
    "parts": (lambda s: concatenate([s, constant(np.ones((3, 4)), s)]), r"of rows; got \[4, 3\]"),
    "cholesky": (lambda s: cholesky(columns(s, 0, 3)), r"must be square; got shape \(4, 3\)"),
    "constant": (lambda s: s + constant(np.ones(4), s), r"array must be a matrix .* \(4,\)"),
}  # fmt: skip


@dataclass(frozen=True)
class Misshapen(sa.Block):
    """Scores to which a primitive is applied that does not fit."""

    name: str
    gamma: float = 0.5
    limit = "not needed"

    def branch(self, p, tokens, project):
        n = tokens.shape[-1]
        q = project(tokens, 4) / n**0.5
        return MISSHAPEN[self.name][0](q @ q.mT) @ (project(tokens, n) / n**0.5)


@pytest.mark.quick
@pytest.mark.parametrize("name", MISSHAPEN)
@pytest.mark.parametrize("sample", [sa.simulate_chain, sa.simulate_network])
def test_shapes_that_do_not_fit_are_errors(sample, name):
    """A program would read beyond a matrix, and torch repeat a row."""
    with pytest.raises(ValueError, match=MISSHAPEN[name][1]):
        sample(Misshapen(name), sa.equicorrelated(4, 0.2), width=8, depth=1, samples=2)
