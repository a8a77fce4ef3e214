"""Recording what modules of a torch model put out in one call, by forward hooks.

The model is called as it is, without gradients: training or evaluation mode is for its owner to
set. Hooks are removed at the end, also when the call fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from shaped_attention.argument_types import with_types


@with_types
def record_outputs(
    model: nn.Module, inputs: Any, choose: Callable[[str, nn.Module], bool]
) -> dict[str, Float[Tensor, "*B m n"]]:
    """Token streams that the chosen modules put out when the model is called once.

    Parameters
    ----------
    model
        Called with ``model(inputs)`` (``model(**inputs)`` for a dict), without gradients.
    inputs
        What it takes.
    choose
        Function of a module's name and the module: whether its output (..., m, n), or the first
        element of a tuple, is recorded.

    Returns
    -------
    Copies in float64 on the CPU, by the module's name, in the order of `model.named_modules()`; of
    a module that acts several times, the last output.

    Raises
    ------
    ValueError
        If no module is chosen, or the output of one is missing or no token stream.
    """
    names = [name for name, module in model.named_modules() if choose(name, module)]
    if not names:
        raise ValueError(
            "choose: no module of the model is chosen; a function of a module's name and the "
            "module, such as lambda name, module: name.endswith('layer'), is needed"
        )
    recorded: dict[str, Tensor] = {}

    def recorder(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            x = output[0] if isinstance(output, tuple) and output else output
            if not isinstance(x, Tensor) or x.ndim < 2 or not x.is_floating_point():
                raise ValueError(f"choose: the output of {name} is no token stream (..., m, n)")
            # A copy, since a later module may overwrite its input.
            recorded[name] = x.detach().to("cpu", torch.float64, copy=True)

        return hook

    handles = [model.get_submodule(name).register_forward_hook(recorder(name)) for name in names]
    try:
        call_model(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    if len(recorded) != len(names):
        raise ValueError(_UNEQUAL)
    return {name: recorded[name] for name in names}


def call_model(model: nn.Module, inputs: Any, **options: Any) -> Any:
    """``model(inputs, **options)``, or ``model(**inputs, **options)``, without gradients."""
    with torch.no_grad():
        if isinstance(inputs, Mapping):
            return model(**inputs, **options)
        return model(inputs, **options)


def stack_outputs(outputs: Sequence[Tensor]) -> Tensor:
    """Tensors stacked along a new first axis.

    Raises
    ------
    ValueError
        If they do not have one shape.
    """
    if len({output.shape for output in outputs}) != 1:
        raise ValueError(_UNEQUAL)
    return torch.stack(list(outputs))


_UNEQUAL = "choose: the chosen modules do not all put out tokens of one shape"
