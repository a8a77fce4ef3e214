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
    "products of keys": new.Lengths(0.6, 0.7),
}
TOKENS = 3
V = np.array([[1.3, 0.4, 0.2], [0.4, 0.9, -0.3], [0.2, -0.3, 1.1]])


class Value(np.ndarray):
    """A matrix; `*` is the product of matrices or by a number, `@` that of entries."""

    def __new__(cls, entries: Any) -> Value:
        return np.atleast_2d(np.asarray(entries, dtype=float)).view(cls)

    def __mul__(self, other: Any) -> Any:
        product = np.multiply if 1 in (np.size(self), np.size(other)) else np.matmul
        return product(self, other)

    def __matmul__(self, other: Any) -> Any:
        return np.multiply(self, other)


def _diag(x: Value) -> Value:
    return Value(np.diag(x)[:, None] if x.shape[1] > 1 else np.diag(np.ravel(x)))


FUNCTIONS = {
    "diag": _diag,
    "tr": np.trace,
    "norm": lambda x: float((np.asarray(x) ** 2).sum()),
    "sqrt": np.sqrt,
    "kernel": lambda x: Value(arc_cosine_kernel(torch.tensor(x)).numpy()),
    "pi": math.pi,
    "Value": Value,
}


def evaluated(text: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the lines of a text define; what has a name comes after its use."""
    found = FUNCTIONS | values
    for line in reversed([x for x in text.splitlines() if " = " in x and ":" not in x]):
        name, formula = line.split(" = ")
        formula = re.sub(
            r"\|(.*?)\|\^2", r"norm(\1)", formula.replace("arc cosine kernel", "kernel")
        )
        formula = re.sub(r"\^T\b", ".T", formula).replace(" o ", " @ ").replace("^", "**")
        # Products are written without a sign; functions have their parentheses at once.
        formula = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", formula)
        found[name] = eval(f"Value({formula})" if "[[" in formula else formula, dict(found))
    return found


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
        "F": Value(factor), "V": Value(V), "I": Value(np.eye(TOKENS)), "e": Value([[1.0]] * TOKENS),
    }  # fmt: skip
    sizes = re.findall(r"(Z\d+) \((\d+), (\d+)\)", text)
    shapes = {f"d{z}": (int(rows), int(columns)) for z, rows, columns in sizes}
    zeros = {z: Value(np.zeros(shape)) for z, shape in shapes.items()}
    symmetric = set(re.findall(r"(Z\d+) \(\d+, \d+\), symmetric", text))
    found = evaluated(text, known | zeros)
    noises = [
        np.asarray(evaluated(text, known | zeros | {z: Value(moved)})["N"])
        for z, shape in shapes.items()
        for x in np.eye(math.prod(shape)).reshape(-1, *shape)
        for moved in [(x + x.T) * 0.5**0.5 if z[1:] in symmetric else x]
    ]
    k, drift = found["k"], np.asarray(found.get("b", 0.0 * V)) @ factor.T
    changes = [x @ factor.T + factor @ x.T for x in noises]
    drift = drift + drift.T + sum(x @ x.T for x in noises)
    drift = drift + np.asarray(found.get("G", 0.0)) - found.get("c", 0.0) * V
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
