"""How the `transformers` library stores the matrices of a model's layers."""

from __future__ import annotations

import math
from itertools import chain, count

from shaped_attention.architectures.model import LayerStds, Model
from shaped_attention.architectures.parameter_names import Names, biased, holds, names_of
from shaped_attention.blocks.attention import ShapedAttention
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.mlp import ShapedMLP
from shaped_attention.blocks.normalised import Normalised
from shaped_attention.blocks.parallel import Parallel
from shaped_attention.lazy.weights import Stored


def stored(model: Model, block: Block, stds: LayerStds) -> list[Stored]:
    """Return how the library stores a block's matrices, in groups of one standard deviation."""
    inner = block.inner if isinstance(block, Normalised) else block
    before = isinstance(block, Normalised) and block.place in ("before", "sandwich")
    groups: list[Stored] = []
    for part in inner.blocks if isinstance(inner, Parallel) else (inner,):
        first = sum(len(group.products) for group in groups)
        groups += _of_block(model, part, stds, first, before)
    return groups


def of_norm(model: Model, block: Block, *, branch: bool = False) -> tuple[str, str]:
    """Return the names of gain and bias of a block's norm, or that of its branch; "" for none."""
    names, place = names_of(model), 0 if isinstance(block, ShapedAttention) else 1
    return gain_and_bias(model, (names.branch_norms if branch else names.norms)[place])


def layer_gains(model: Model) -> set[str]:
    """Return the names of the gains in layers."""
    found = set()
    for block in chain.from_iterable(model.layers()):
        if isinstance(block, Normalised):
            inner = block.inner
            for part in inner.blocks if isinstance(inner, Parallel) else (inner,):
                at_branch = block.place in ("branch", "sandwich")
                found |= {of_norm(model, part)[0]} if block.place != "branch" else set()
                found |= {of_norm(model, part, branch=True)[0]} if at_branch else set()
    return found - {""}


def gain_and_bias(model: Model, norm: str) -> tuple[str, str]:
    """Return the names of gain and bias of a norm; "" for none."""
    names = names_of(model)
    gain = f"{norm}.weight" if holds(model, names.gains) else ""
    return gain, f"{norm}.bias" if holds(model, names.norm_biases) else ""


def _of_block(
    model: Model, block: Block, stds: LayerStds, first: int, before: bool
) -> list[Stored]:
    names = names_of(model)
    if isinstance(block, ShapedAttention):
        products = _of_attention(block, first)
        # The factor by which the block, but not the library, divides the inputs of its last matrix.
        divisor, last = stds.values * math.sqrt(model.width), "o"
    else:
        assert isinstance(block, ShapedMLP)
        letters = "gud" if block.gated else "ud"
        products = {letter: [first + k] for k, letter in enumerate(letters)}
        divisor, last = stds.up * math.sqrt(model.width) if block.gated else 1.0, "d"
    norm = of_norm(model, block) if before else ("", "")
    by_std: dict[float, dict[str, list[int]]] = {}
    for letter in [x for x in products if x != last]:
        by_std.setdefault(stds.of(letter), {})[letter] = products[letter]
    inner = [_group(model, names, some, std, norm) for std, some in by_std.items()]
    end = _group(model, names, {last: products[last]}, stds.of(last), divisor=divisor)
    return [*inner, end]


def _group(
    model: Model, names: Names, products: dict[str, list[int]], std: float,
    norm: tuple[str, str] = ("", ""), divisor: float = 1.0,
) -> Stored:  # fmt: skip
    """Return how matrices that take the same rows are stored, by their letters."""
    members, sections, biases = {}, {}, {}
    for name, letters in names.matrices.items():
        parts = [products[letter] for letter in letters if letter in products]
        if not parts:
            continue
        weight = f"{name}.weight"
        members[weight] = sorted(number for part in parts for number in part)
        if len(parts) > 1:
            sections[weight] = parts
        if biased(model, letters):
            biases[weight] = f"{name}.bias"
    return Stored(members, std, sections, biases, divisor, norm[1], norm[0], names.by_inputs)


def _of_attention(attention: ShapedAttention, first: int) -> dict[str, list[int]]:
    """Return the numbers of the products for queries, keys, values and W_O in a branch."""
    numbers = count(first)
    products: dict[str, list[int]] = {letter: [] for letter in "qkvo"}
    for head in range(attention.heads):
        products["q"].append(next(numbers))
        if head % attention.heads_per_key == 0:
            products["k"].append(next(numbers))
            products["v"].append(next(numbers))
    products["o"].append(next(numbers))
    return products
