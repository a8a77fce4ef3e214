"""What runs the network, chain, limit and coupling of a layer, and the programs that are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shaped_attention.blocks.base import Block, Layer, Pattern, blocks_of, pattern_of
from shaped_attention.blocks.coupling import least_width
from shaped_attention.blocks.reasons import coupling_reason, limit_reason
from shaped_attention.checks import check_count, check_width
from shaped_attention.numerics.graph import Node, needed
from shaped_attention.numerics.program import Program
from shaped_attention.numerics.scalars import Number, value
from shaped_attention.samplers.loop import starting_paths
from shaped_attention.samplers.specification import (
    Specification,
    check_group_width,
    common_groups,
    eager,
    is_eager,
    specify,
)
from shaped_attention.samplers.steppers import Stepper, stepper_of
from shaped_attention.samplers.task import task_of

_NETWORK = "torch, with real weight matrices"
_STEP = 0.01


_LEGEND = (
    "  combine(a, b, s, t) = s a + t b", "  concatenate(a, b, s, t) = [s a, t b]",
    "  times(a, b) = a * b", "  over(a, b) = a / b", "  multiply_nn(a, b) = a b",
    "  multiply_nt(a, b) = a b^T", "  multiply_tn(a, b) = a^T b", "  gram(a) = a a^T",
    "  cogram(a) = a^T a",
)  # fmt: skip
"""What operations of a program do whose names do not say it."""


@dataclass(frozen=True)
class Faces:
    """What runs the network, chain, limit and coupling of a block, or of a whole layer."""

    name: str
    network: str
    chain: str
    limit: str
    coupling: str

    def __str__(self) -> str:
        faces = [(name, getattr(self, name)) for name in ("network", "chain", "limit", "coupling")]
        return "\n".join([self.name, *(f"  {name:<9} {text}" for name, text in faces)])


@dataclass(frozen=True)
class Explanation:
    """Result of `explain`; printing it prints all its parts.

    Attributes
    ----------
    blocks, layer
        What runs each block, and the layer as a whole.
    programs
        Lines of each program, by name; empty unless requested.
    """

    blocks: tuple[Faces, ...]
    layer: Faces
    programs: dict[str, tuple[str, ...]]

    def __str__(self) -> str:
        parts = [str(faces) for faces in (*self.blocks, self.layer)]
        parts += ["\n".join([name, *lines]) for name, lines in self.programs.items()]
        lines = [line for program in self.programs.values() for line in program if " = " in line]
        kinds = {line.split(" = ")[1].split("(")[0] for line in lines}
        legend = [x for x in _LEGEND if x.split("(")[0].strip() in kinds]
        return "\n\n".join([*parts, *(["\n".join(["where", *legend])] if legend else [])])


def explain(layer: Layer, tokens: int = 4, width: int = 256, program: bool = False) -> Explanation:
    """Describe which code runs the network, chain, limit and coupling of a layer, and why.

    Parameters
    ----------
    layer
        A block, a list of the blocks of a layer, or a `Pattern`.
    tokens, width
        Number of tokens and width for which the layer is described.
    program
        Whether to list the programs into which chain and limit are traced for compiled code:
        one line for each instruction, with the shape of its value. Scalars that change with depth
        are written as first..last value.

    Returns
    -------
    Explanation, which can be printed.

    Raises
    ------
    ValueError
        If an argument is outside its range; the message names it.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention, explain
    >>> print(explain(ShapedAttention(0.5, centring=False)).layer)
    the layer, with 4 tokens at width 256
      network   torch, with real weight matrices
      chain     compiled code on tiles for float64 on the CPU, torch otherwise
      limit     none: without centring a layer changes V by order 1, not 1/n (centring=False)
      coupling  none: there is no limit
    """
    check_count("tokens", tokens)
    check_width("width", width)
    pattern = pattern_of(layer)
    blocks = blocks_of(layer)
    faces = [_faces(repr(block), ((block,),), tokens, width) for block in blocks]
    whole = _faces(f"the layer, with {tokens} tokens at width {width}", pattern, tokens, width)
    programs = _listings(pattern, tokens, width, whole) if program else {}
    return Explanation(tuple(faces), whole, programs)


def _faces(name: str, pattern: Sequence[Sequence[Block]], tokens: int, width: int) -> Faces:
    blocks = [block for layer in pattern for block in layer]
    network = _size_reason(blocks, tokens, width)
    no_chain = _first(blocks, lambda block: block.no_chain) or network
    no_limit = _first(blocks, limit_reason) or _size_reason(blocks, tokens, None)
    chain = _none(no_chain) or _runs(pattern, tokens, width)
    own = dict.fromkeys(type(x).__name__ for x in blocks if x.has_own_root)
    if own and not no_chain:
        chain += f"; {' and '.join(own)} by a root of its own in place of the derived one"
    limit = _none(no_limit) or _runs(pattern, tokens, None)
    if no_chain or no_limit:
        coupling = f"none: there is no {'chain' if no_chain else 'limit'}"
    else:
        reason = _first(blocks, lambda block: coupling_reason(block, tokens, width))
        least = least_width(tokens, common_groups(blocks))
        if not reason and width < least:
            reason = f"width must be at least {least}; got {width}"
        coupling = _none(reason) or "chain and limit can be driven by the same numbers"
    return Faces(name, _none(network) or _NETWORK, chain, limit, coupling)


def _first(blocks: Sequence[Block], reason: Callable[[Block], str]) -> str:
    """Return the reason of the first block that has one."""
    return next((text for text in map(reason, blocks) if text), "")


def _none(reason: str) -> str:
    return f"none: {reason}" if reason else ""


def _size_reason(blocks: Sequence[Block], tokens: int, width: int | None) -> str:
    """Return why the blocks do not fit that size; empty if they do."""
    try:
        for block in blocks:
            block.check(tokens, width)
            if width is None and not isinstance(limit := block.limit, str):
                limit.check(tokens)
        if width is not None:
            check_group_width(blocks, width)
    except ValueError as error:
        return str(error)
    return ""


def _runs(pattern: Sequence[Sequence[Block]], tokens: int, width: int | None) -> str:
    """Describe what runs the chain or the limit."""
    if is_eager():
        return "torch, as requested by shaped_attention.eager()"
    try:
        derived, model = (_stepper(pattern, tokens, width, x)[1] for x in ("derived", "model"))
        assert derived.task.programs
    except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
        failure = _failure(pattern, tokens, width)
        if failure is not None:
            return f"none: its description fails: {failure}"
        return f"torch, in sa.eager(), on other devices or in float32; it cannot be traced: {error}"
    models = ""
    if model.name != derived.name:
        models = f" (in simulate_model {model.name}, since a layer draws so many numbers)"

    return f"{derived.name} for float64 on the CPU{models}, torch otherwise"


def _stepper(
    pattern: Sequence[Sequence[Block]], tokens: int, width: int | None, stream: str
) -> tuple[Specification, Stepper]:
    """Return what a run of two samples would ask for, and what moves it."""
    layers = Pattern([list(blocks) for blocks in pattern])
    # A width below the number of tokens allows no V_0 of full rank.
    v0 = np.eye(tokens) if width is None or width >= tokens else np.ones((tokens, tokens))
    spec = specify(layers, v0, width=width, steps=len(pattern), dt=_STEP, samples=2, seed=0)
    return spec, stepper_of(spec, task_of(spec, stream, width))


def _failure(
    pattern: Sequence[Sequence[Block]], tokens: int, width: int | None
) -> Exception | None:
    """Return the error of one step in torch, of the chain or of the limit; None if it runs."""
    try:
        with eager():
            paths = starting_paths(*_stepper(pattern, tokens, width, "derived"), 0, 2)
        while paths.behind(len(pattern)):
            paths.advance(len(pattern))
    except Exception as error:
        return error
    return None


def _listings(
    pattern: Sequence[Sequence[Block]], tokens: int, width: int, faces: Faces
) -> dict[str, tuple[str, ...]]:
    """Return the programs that compiled code runs."""
    listings: dict[str, tuple[str, ...]] = {}
    if _compiled(faces.chain):
        chain = _stepper(pattern, tokens, width, "derived")[1].task
        for k, program in enumerate(chain.programs):
            which = f", layer {k} of the pattern" if len(pattern) > 1 else ""
            listings[f"chain{which}: a step"] = listing(program, ["new factor"] * chain.groups)
    if _compiled(faces.limit):
        (program,) = _stepper(pattern, tokens, None, "derived")[1].task.programs
        listings[f"limit: a step of length {_STEP}"] = listing(program, ["drift * step", "noise"])
    return listings


def _compiled(face: str) -> bool:
    return not face.startswith(("none", "torch"))


def listing(program: Program, results: Sequence[str]) -> tuple[str, ...]:
    """Return the instructions of a program as text, and the values that are its results."""
    names = {id(node): f"r{k}" for k, node in enumerate(program.nodes)}
    lines: list[str] = []
    for node in program.nodes:
        lines.append(f"  {_instruction(node, names)}")
        if node.inside is not None:
            inside, result = node.inside
            inner = needed([result], inside.nodes)
            copies = [x for x in inner if x.kind == "input"]
            labels = {id(x): f"h{k}" for k, x in enumerate(inner)}
            labels |= {id(x): "h" + "'" * k for k, x in enumerate(copies)}
            lines += [f"      {_instruction(x, labels)}" for x in inner if x.kind != "input"]
    for name, node in zip(results, program.results, strict=True):
        lines.append(f"  {name}: {names[id(node)]}")
    return tuple(lines)


def _instruction(node: Node, names: dict[int, str]) -> str:
    """Return ``r3 = multiply_nt(r1, r2)  (4, 4)``, with its scalars and random numbers."""
    operands = [names[id(x)] for x in node.inputs]
    operands += [_number(scalar) for scalar in node.scalars]
    if node.address is not None:
        operands += _random(node)
    elif node.integers:
        operands += [str(x) for x in node.integers]
    shape = f"({node.shape[0]}, {node.shape[1]})"
    triangular = "  lower triangular" if node.lower else ""
    left = f"{names[id(node)]} = {node.kind}({', '.join(operands)})"
    return f"{left:<78} {shape}{triangular}"


def _random(node: Node) -> list[str]:
    """Describe random numbers by name, head, block and degrees of freedom."""
    address: Any = node.address
    place, name = address
    words = [repr(name), f"head {node.integers[0] // 2}"]
    words.append(f"block {'.'.join(map(str, place))}" if place else "all blocks")
    if len(node.integers) > 1:
        word = "columns" if node.kind == "activated_gram" else "degrees of freedom"
        words.append(f"{node.integers[1]} {word}")
    return words


def _number(number: Number) -> str:
    ends = np.broadcast_to(value(number, np.array([0.0, 1.0])), 2)
    first, last = (f"{x:.6g}" for x in ends)
    return first if first == last else f"{first}..{last}"
