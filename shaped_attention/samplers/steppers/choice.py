"""Which stepper moves the paths of a run. All give the same paths, up to rounding."""

from __future__ import annotations

from shaped_attention.numerics.operations.stacks import FEWEST_LARGE_TOKENS
from shaped_attention.samplers.chunks import threads_of_a_chunk
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers.stepper import Stepper
from shaped_attention.samplers.task import Task

FEWEST_LARGE_NUMBERS = 2**15
"""Random numbers of a layer and sample from which on models run by library routines.

Tiles move 64 samples at once. If a single one fills the caches, library routines take no longer for
each sample, and far less for a few.
"""


def stepper_of(spec: Specification, task: Task) -> Stepper:
    """Return what moves the paths of a run of the chain or of the limit; only it is loaded."""
    if not spec.compiled_device:
        from shaped_attention.samplers.steppers.torch_descriptions import DescriptionStepper

        return DescriptionStepper(task, spec.device, spec.dtype)
    if by_library(spec, task):
        from shaped_attention.samplers.steppers.blas import BlasStepper

        return BlasStepper(task, threads_of_a_chunk(spec, BlasStepper(task).chunk(spec)))
    from shaped_attention.samplers.steppers.tiles import TileClock, TileStepper

    return TileClock(task) if task.method == "clock" else TileStepper(task)


def by_library(spec: Specification, task: Task) -> bool:
    """Return whether library routines move the samples of a run.

    The specification alone decides: the number of tokens and, in models, of random numbers.
    """
    if not spec.compiled_device or spec.tokens >= FEWEST_LARGE_TOKENS:
        return spec.compiled_device
    return task.keys.stream == "model" and task.numbers >= FEWEST_LARGE_NUMBERS


def executor(tokens: int) -> str:
    """Describe what runs programs with that many tokens, in float64 on the CPU."""
    if tokens >= FEWEST_LARGE_TOKENS:
        return "BLAS and LAPACK"
    return "compiled code on tiles"
