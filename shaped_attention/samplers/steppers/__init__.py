"""Steppers: what moves a batch of paths by a step, one file each, and which moves those of a run.

All give the same paths, up to rounding.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shaped_attention.samplers.specification import Specification
    from shaped_attention.samplers.steppers.stepper import Stepper
    from shaped_attention.samplers.task import Task


def stepper_of(spec: Specification, task: Task) -> Stepper:
    """Return what moves the paths of a run of the chain or of the limit.

    The files beside this one are asked in the order of their names: the function `stepper_of` of
    each returns its stepper, or None if it leaves the run to those after it, which are not loaded.
    """
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        of_module = getattr(import_module(module.name), "stepper_of", None)
        stepper: Stepper | None = of_module(spec, task) if of_module else None
        if stepper is not None:
            return stepper
    raise LookupError(f"no stepper moves {task}")
