"""Supported devices and dtypes of a run."""

from __future__ import annotations

from shaped_attention.checks import argument_error
from shaped_attention.lazy_torch import torch

_PRECISIONS = ("float64", "float32")
_DEVICES = "'cpu', 'cuda' or 'cuda:INDEX'"


def device_name(device: str | torch.device) -> str:
    """Return the name of an available device; "cpu" does not load torch."""
    return "cpu" if device == "cpu" else str(check_device(device))


def precision_name(dtype: str | torch.dtype) -> str:
    """Return "float64" or "float32"; a name does not load torch."""
    if isinstance(dtype, str) and dtype in _PRECISIONS:
        return dtype
    return str(check_dtype(dtype)).removeprefix("torch.")


def check_device(device: str | torch.device) -> torch.device:
    """Return the torch device if it is supported and available."""
    resolved = named_device(device)
    if resolved.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (resolved.index or 0) >= count:
            requirement = f"'cpu' or one of the {count} CUDA devices that torch finds here"
            raise argument_error("device", requirement, device)
    return resolved


def named_device(device: str | torch.device) -> torch.device:
    """Return the torch device of a supported type, available or not."""
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise argument_error("device", _DEVICES, device) from None
    if resolved.type not in ("cpu", "cuda"):
        raise argument_error("device", _DEVICES, device)
    return resolved


def check_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return torch.float64 or torch.float32."""
    known = {name: getattr(torch, name) for name in _PRECISIONS}
    resolved: torch.dtype | None = known.get(dtype) if isinstance(dtype, str) else dtype
    if resolved not in known.values():
        raise argument_error("dtype", "'float64' or 'float32'", dtype)
    assert resolved is not None  # for the type checker: membership was just shown
    return resolved
