"""Decorator that makes functions of tensors accept arrays too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from shaped_attention.checks import real_array


def also_of_arrays(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Any]]:
    """Make a function of the tensor `name` accept an array too; it then returns an array."""

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            value = bound.arguments[name]
            if isinstance(value, Tensor):
                return function(*args, **kwargs)
            bound.arguments[name] = torch.tensor(real_array(value, name))
            return function(*bound.args, **bound.kwargs).numpy()

        return call

    return decorate
