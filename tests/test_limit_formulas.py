"""The limit of a block as formulas: their text, evaluated, is drift and diffusion of the block."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

import shaped_attention as sa
from figures.blocks import attentions
from shaped_attention.numerics.primitives import arc_cosine_kernel
from shaped_attention.theory.moments import linear_diffusion
from tests import new_attentions as new
from tests.refusals import refused

ATTENTION, MLP = sa.ShapedAttention, sa.ShapedMLP
BLOCKS = {
    "plain": ATTENTION(0.6, 0.7),
    "causal": ATTENTION(0.6, 0.7, mask="causal"),
    "heads": ATTENTION(0.6, 0.7, heads=4, output_projection=True),
    "biases": ATTENTION(0.6, 0.7, query_bias=0.3, key_bias=0.2),
    "rope": ATTENTION(0.6, 0.7, rope=(1.0,), key_size=2),
    "qk-norm": ATTENTION(0.6, 0.7, qk_norm="head"),
    "position bias": ATTENTION(0.6, 0.7, position_bias=sa.alibi(3, 0.5)),
    "relu": MLP(0.6, 0.3, -0.8),
    "parallel": sa.Parallel(ATTENTION(0.4, 0.7), MLP(0.5, 0.3, -0.8)),
    "differential": attentions.Differential(0.6, 0.7),
    "talking heads": attentions.TalkingHeads(0.6, 0.7),
    "nested": new.Nested(0.6, 0.7),
    "shared keys": new.SharedKeys(0.6, 0.7),
    "products of keys": new.Lengths(0.6, 0.7),
}
TOKENS = 3
V = np.array([[1.3, 0.4, 0.2], [0.4, 0.9, -0.3], [0.2, -0.3, 1.1]])


class Value:
    """A matrix; `*` is the product of matrices or by a number, `@` that of entries."""

    def __init__(self, entries: Any) -> None:
        entries = entries.entries if isinstance(entries, Value) else entries
        rows = [[x.entries.item() for x in row] for row in entries] if _nested(entries) else entries
        self.entries = np.atleast_2d(np.asarray(rows, dtype=float))

    def __mul__(self, other: Value) -> Value:
        a, b = self.entries, other.entries
        fits = a.shape[1] == b.shape[0] and a.shape != (1, 1) != b.shape
        return Value(a @ b if fits else a * b)

    def __matmul__(self, other: Value) -> Value:
        return Value(self.entries * other.entries)

    def __add__(self, other: Value) -> Value:
        return Value(self.entries + other.entries)

    def __sub__(self, other: Value) -> Value:
        return Value(self.entries - other.entries)

    def __truediv__(self, other: Value) -> Value:
        return Value(self.entries / other.entries)

    def __pow__(self, power: Value) -> Value:
        return Value(self.entries ** power.entries.item())

    def __neg__(self) -> Value:
        return Value(-self.entries)

    @property
    def T(self) -> Value:
        return Value(self.entries.T)


def _nested(entries: Any) -> bool:
    return isinstance(entries, list) and isinstance(entries[0][0], Value)


def _diag(x: Value) -> Value:
    square = x.entries.shape[1] > 1
    return Value(np.diag(x.entries)[:, None] if square else np.diag(x.entries[:, 0]))


FUNCTIONS = {
    "diag": _diag,
    "tr": lambda x: Value(np.trace(x.entries)),
    "norm": lambda x: Value((x.entries**2).sum()),
    "sqrt": lambda x: Value(np.sqrt(x.entries)),
    "kernel": lambda x: Value(arc_cosine_kernel(torch.tensor(x.entries)).numpy()),
    "pi": Value(math.pi),
    "Value": Value,
}


def evaluated(text: str, values: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what the lines of a text define; what has a name comes after its use."""
    found = FUNCTIONS | {name: Value(x) for name, x in values.items()}
    for line in reversed([x for x in text.splitlines() if " = " in x and ":" not in x]):
        name, formula = line.split(" = ")
        formula = re.sub(
            r"\|(.*?)\|\^2", r"norm(\1)", formula.replace("arc cosine kernel", "kernel")
        )
        formula = re.sub(r"\^T\b", ".T", formula).replace(" o ", " @ ").replace("^", "**")
        # Products are written without a sign; functions have their parentheses at once.
        formula = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", formula)
        formula = re.sub(r"(?<![\w.])(\d+\.?\d*)", r"Value(\1)", formula)
        if "[[" in formula:
            formula = f"Value({formula})"
        found[name] = eval(formula, dict(found))
    return {name: x.entries for name, x in found.items() if isinstance(x, Value)}


def parameters(block: sa.Block) -> dict[str, float]:
    """Return parameters by the names in formulas."""
    if isinstance(block, sa.Parallel):
        parts = [parameters(x) for x in block.blocks]
        return {f"{k}_{i}": x for i, part in enumerate(parts, 1) for k, x in part.items()}
    return {k: x for k, x in vars(block).items() if isinstance(x, float)}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_text_gives_drift_and_diffusion(name: str) -> None:
    """To 1e-10, by the increments of the Brownian motions in the last line."""
    block = BLOCKS[name]
    text = str(sa.limit_formulas(block, TOKENS))
    factor = np.linalg.cholesky(V)
    known = parameters(block) | {
        "F": factor, "V": V, "I": np.eye(TOKENS), "e": np.ones((TOKENS, 1)), "dt": 1.0,
    }  # fmt: skip
    sizes = re.findall(r"(Z\d+) \((\d+), (\d+)\)", text)
    shapes = {f"d{z}": (int(rows), int(columns)) for z, rows, columns in sizes}
    zeros = {z: np.zeros(shape) for z, shape in shapes.items()}
    symmetric = set(re.findall(r"(Z\d+) \(\d+, \d+\), symmetric", text))
    found = evaluated(text, known | zeros)
    noises = [
        evaluated(text, known | zeros | {z: (x + x.T) * 0.5**0.5 if z[1:] in symmetric else x})["N"]
        for z, shape in shapes.items()
        for x in np.eye(math.prod(shape)).reshape(-1, *shape)
    ]
    k, drift = found["k"].item(), found.get("b", np.zeros_like(V)) @ factor.T
    changes = [noise @ factor.T + factor @ noise.T for noise in noises]
    drift = drift + drift.T + sum(x @ x.T for x in noises) + found.get("G", 0.0)
    drift = drift - found.get("c", np.zeros((1, 1))) * V
    diffusion = k * linear_diffusion(torch.tensor(V)).numpy()
    diffusion = diffusion + sum(np.multiply.outer(x, x) for x in changes)
    np.testing.assert_allclose(drift, sa.drift(block, V), rtol=0, atol=1e-10)
    i, j = np.tril_indices(TOKENS)
    diffusion = diffusion[i, j][:, i, j]
    np.testing.assert_allclose(diffusion, sa.diffusion(block, V), rtol=0, atol=1e-10)


def test_latex_is_the_same_formula() -> None:
    """Of plain attention; its text is an example in the docstring."""
    plain = sa.limit_formulas(ATTENTION(0.6, 0.7), 2).latex.splitlines()
    assert plain[1] == r"k &= \gamma^{2}\,\left(2 - \gamma^{2}\right) \\"
    assert plain[3] == (
        r"N &= \frac{\gamma^{2}}{2\,\tau_{0}}\,F\,\mathrm{d}Z_{1}\,F^\top\,"
        r"\left(I - \frac{1}{2}\,\mathbf{1}\,\mathbf{1}^\top\right)\,F"
    )


test_no_formulas_without_a_derived_limit = refused(
    (ATTENTION(0.6, identity=False), "which has no limit: "),
    (sa.Normalised(MLP(0.5)), "derived"),
    by=sa.limit_formulas,
)
"""The reason is that of the limit."""
