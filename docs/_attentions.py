"""The eight attentions of figures/blocks/attentions.py: their limits and their explosions."""

from __future__ import annotations

import inspect
import re

import numpy as np
from numpy.typing import ArrayLike

import shaped_attention as sa
from figures.blocks.attentions import EIGHT
from shaped_attention.blocks.limit import is_superlinear
from shaped_attention.blocks.parameters import at_depth

GAMMA, TAU0 = 0.5, 0.8
STARTS: dict[str, ArrayLike] = {
    "one token, $V_0 = 1$": np.eye(1),
    "two tokens, $V_{01} = -0.3$": sa.equicorrelated(2, -0.3),
}


def attentions() -> str:
    """Return for each attention its docstring, its branch, and its limit for two tokens."""
    text = "\n".join(
        f"### {name[0].upper()}{name[1:]}\n\n{inspect.getdoc(kind)}\n\n"
        f"```{{literalinclude}} ../figures/blocks/attentions.py\n"
        f":pyobject: {kind.__name__}.branch\n:dedent:\n```\n\n"
        f"{sa.limit_formulas(kind(GAMMA, TAU0)).latex}\n"
        for name, kind in EIGHT.items()
    )
    return re.sub(r"arXiv ([\d.]+)", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def explosions() -> str:
    """Return a table in Markdown: growth of drift and noise, and probabilities of explosions."""
    lines = [
        f"| attention | faster than linear | {' | '.join(STARTS)} |",
        "| --- | --- | ---: | ---: |",
    ]
    for name, kind in EIGHT.items():
        block = kind(GAMMA, TAU0)
        faster = is_superlinear(block.limit, at_depth(block, 0.0), 2, 2)
        chances = [_chance(block, v0) if faster else "0" for v0 in STARTS.values()]
        lines.append(f"| {name} | {'yes' if faster else 'no'} | {' | '.join(chances)} |")
    return "\n".join([*lines, ""])


def _chance(block: sa.Block, v0: ArrayLike) -> str:
    try:
        return f"{sa.explosion_law(block, v0).probability():.4g}"
    except ValueError:
        return "no law known"
