"""Decorator that makes functions of tensors accept arrays too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from shaped_attention.checks import real_array


def also_of_arrays(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Any]]:
    """Make a function of the tensor `name` accept an array or the V of a result too.

    It then returns the same kind.
    """

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            value = bound.arguments[name]
            if isinstance(value, Tensor):
                return function(*args, **kwargs)
            matrices = isinstance(value, xr.DataArray) and {"row", "col"} <= set(value.dims)
            array = value.transpose(..., "row", "col") if matrices else value
            bound.arguments[name] = torch.tensor(real_array(array, name))
            result = function(*bound.args, **bound.kwargs).numpy()
            if not matrices:
                return result
            if result.ndim == array.ndim - 1:
                return array.isel(col=0, drop=True).rename(row="cluster").copy(data=result)
            return array.isel(row=0, col=0, drop=True).copy(data=result)

        return call

    return decorate
