"""Record the outputs of modules of a torch model in one call, by forward hooks.

The model is called without gradients; the caller sets training or evaluation mode. Hooks are
removed at the end, even if the call fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shaped_attention.checks import argument_error

INPUT = "input"
"""The name of the input of the first chosen module."""


def record_call(
    model: nn.Module,
    inputs: Any,
    choose: Callable[[str, nn.Module], bool],
    *,
    initial: bool = False,
    **options: Any,
) -> tuple[dict[str, Tensor], Any]:
    """Return the token streams of the chosen modules in one call, and what the model returned.

    Parameters
    ----------
    model
        Model, called without gradients as ``model(inputs)`` (``model(**inputs)`` for a dict).
    inputs
        Its input.
    choose
        Function of a module's name and the module: whether its output (..., m, n), or the first
        element of a tuple, is recorded.
    initial
        Whether the input of the first chosen module is recorded too, under the name `INPUT`.
    options
        Options of the call.

    Returns
    -------
    Copies in float64 on the CPU, by the module's name: the input, then the outputs in the order of
    `model.named_modules()`. For a module that acts several times, the first input and the last
    output.

    Raises
    ------
    ValueError
        If the model is not a module, no module is chosen, or an output is missing or not a token
        stream.
    """
    if not isinstance(model, nn.Module):
        raise argument_error("model", "a torch.nn.Module", model)
    names = [name for name, module in model.named_modules() if choose(name, module)]
    if not names:
        raise ValueError(
            "no module of the model is chosen; choose is a function of a module's name and the "
            "module, such as lambda name, module: name.endswith('layer')"
        )
    recorded: dict[str, Tensor] = {}

    def recorder(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            x = output[0] if isinstance(output, tuple) and output else output
            recorded[name] = _stream(x, f"the output of {name}, which choose selected,")

        return hook

    def first(_module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        x = next(iter((*arguments, *keywords.values())), None)
        recorded.setdefault(INPUT, _stream(x, f"the input of {names[0]}, for initial=True,"))

    handles = [model.get_submodule(name).register_forward_hook(recorder(name)) for name in names]
    if initial:
        module = model.get_submodule(names[0])
        handles.append(module.register_forward_pre_hook(first, with_kwargs=True))
    try:
        result = call_model(model, inputs, **options)
    finally:
        for handle in handles:
            handle.remove()
    order = [INPUT, *names] if initial else names
    if len(recorded) != len(order):
        raise ValueError(_UNEQUAL)
    return {name: recorded[name] for name in order}, result


def _stream(x: Any, what: str) -> Tensor:
    """Return a copy of a token stream, since a later module may overwrite its input."""
    if not isinstance(x, Tensor) or x.ndim < 2 or not x.is_floating_point():
        raise ValueError(f"{what} is not a token stream (..., m, n)")
    return x.detach().to("cpu", torch.float64, copy=True)


def call_model(model: nn.Module, inputs: Any, **options: Any) -> Any:
    """Call ``model(inputs, **options)`` or ``model(**inputs, **options)`` without gradients."""
    with torch.no_grad():
        if isinstance(inputs, Mapping):
            return model(**inputs, **options)
        return model(inputs, **options)


def accepts(model: nn.Module, option: str) -> bool:
    """Return whether a model can be called with an option of this name."""
    parameters = inspect.signature(model.forward).parameters
    catches_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    return catches_all or option in parameters


def stack_outputs(outputs: Sequence[Tensor]) -> Tensor:
    """Stack tensors along a new first axis.

    Raises
    ------
    ValueError
        If their shapes differ.
    """
    if len({output.shape for output in outputs}) != 1:
        raise ValueError(_UNEQUAL)
    return torch.stack(list(outputs))


_UNEQUAL = (
    "the modules that choose selected do not all return tokens of one shape (with initial=True, "
    "the shape of the input of the first)"
)
