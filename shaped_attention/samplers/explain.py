"""What runs the network, chain and limit of a layer, or why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from shaped_attention.blocks.base import Block, Layer, Pattern, blocks_of, pattern_of
from shaped_attention.blocks.reasons import limit_reason
from shaped_attention.checks import check_count, check_width
from shaped_attention.compiler.ptx import available
from shaped_attention.numerics.program import Program
from shaped_attention.samplers import specification as of_runs
from shaped_attention.samplers.steppers import stepper_of
from shaped_attention.samplers.steppers.device import MOST_TOKENS

Layers = Sequence[Sequence[Block]]


@dataclass(frozen=True)
class Explanation:
    """What runs the network, chain and limit of a layer; printing it gives one line for each.

    `draws` are the matrices of random numbers that a step of the chain draws, with their sizes.
    """

    network: str
    chain: str
    limit: str
    draws: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"network  {self.network}", f"chain    {self.chain}", f"limit    {self.limit}"]
        return "\n".join([*lines, *(f"draws    {text}" for text in self.draws)])


def explain(layer: Layer, tokens: int = 4, width: int = 256) -> Explanation:
    """Describe which code runs the network, chain and limit of a layer, or why there is none.

    Parameters
    ----------
    layer
        A block, a list of the blocks of a layer, or a `Pattern`.
    tokens, width
        Number of tokens and width for which the layer is described.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, explain
    >>> print(explain(ShapedAttention(0.5, centring=False)))  # doctest: +ELLIPSIS
    network  torch, with real weight matrices
    chain    compiled code on the CPU, torch otherwise
    limit    none: part of the output is not a multiple of the tokens at infinite width: ...
    draws    keys, 4 x 4: root of a Wishart matrix with 256 degrees of freedom
    draws    queries, 4 x 4: normals
    draws    values, 4 x 4: normals
    draws    values, orthogonal, 4 x 4: root of a Wishart matrix with 252 degrees of freedom
    """
    check_count("tokens", tokens)
    check_width("width", width)
    pattern, blocks = pattern_of(layer), blocks_of(layer)
    no_network = _size_reason(blocks, tokens, width)
    reasons = ([x.no_chain for x in blocks], [limit_reason(x) for x in blocks])
    no_chain, no_limit = (next((f"none: {x}" for x in each if x), "") for each in reasons)
    no_chain = no_chain or no_network
    chain, programs = (no_chain, []) if no_chain else _runs(pattern, tokens, width)
    limit = no_limit or _size_reason(blocks, tokens, None) or _runs(pattern, tokens, None)[0]
    network = no_network or "torch, with real weight matrices"
    return Explanation(network, chain, limit, _draws(programs))


def _size_reason(blocks: Sequence[Block], tokens: int, width: int | None) -> str:
    """Return why the blocks do not fit that size; empty if they do."""
    try:
        for block in blocks:
            block.check(tokens, width)
            if width is None and not isinstance(limit := block.limit, str):
                limit.check(tokens)
        if width is not None:
            of_runs.check_group_width(blocks, width)
    except ValueError as error:
        return f"none: {error}"
    return ""


def _runs(pattern: Layers, tokens: int, width: int | None) -> tuple[str, list[Program]]:
    """Describe what runs the chain or the limit; return its programs, too, if it can be traced."""
    layers = Pattern([list(blocks) for blocks in pattern])
    # A width below the number of tokens allows no V_0 of full rank.
    v0 = np.eye(tokens) if width is None or width >= tokens else np.ones((tokens, tokens))
    if of_runs.is_eager():
        return "torch, as requested by shaped_attention.eager()", []
    try:
        spec = of_runs.specify(
            layers, v0, width=width, steps=len(pattern), dt=0.01, samples=2, seed=0
        )
        programs = spec.programs
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        return f"torch, in sa.eager() or on other devices; it cannot be traced: {error}", []
    few = width is not None and tokens <= MOST_TOKENS and available()
    devices = " and on CUDA devices" if few else ""
    return f"{stepper_of(spec).name} on the CPU{devices}, torch otherwise", programs


def _draws(programs: Sequence[Program]) -> tuple[str, ...]:
    """Describe the random numbers of a step of the chain."""
    counts: Counter[str] = Counter()
    for node in (x for program in programs for x in program.nodes if x.address is not None):
        _, name = cast(tuple[object, str], node.address)
        rows, columns = node.shape
        what = "normals"
        if node.kind == "wishart":
            what = f"root of a Wishart matrix with {node.scalars[0]:.0f} degrees of freedom"
        elif node.kind == "activated_gram":
            what = f"Gram matrix of {node.integers[1]} hidden units"
        counts[f"{name}, {rows} x {columns}: {what}"] += 1
    return tuple(f"{text}, {n} times" if n > 1 else text for text, n in counts.items())
