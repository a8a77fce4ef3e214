"""Arguments of a run that samplers check: start, radius, times, device, precision.

A run starts at one covariance, or at one per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import argument_error, check_count, check_positive, real_array
from shaped_attention.libraries import torch
from shaped_attention.numerics.covariance import check_covariance

DEFAULT_RADIUS = 1e4
"""Default stopping radius, in units of the norm of the starting covariance."""

LARGEST_RADIUS = 1e30
"""One step from within this radius stays finite in double precision."""

LARGEST_SINGLE_NORM = 1e16
"""Paths that start farther out could overflow in their first step in single precision."""

_PRECISIONS = ("float64", "float32")
_DEVICES = "'cpu', 'cuda' or 'cuda:INDEX'"


def check_other_seed(v0: object, sampler: str, seed: object, name: str = "v0") -> None:
    """Raise ValueError if a start is the V of a result of the same sampler and seed.

    The increments of both runs would come from the same numbers. A result's V carries both in its
    `attrs`, as far as xarray keeps these; a plain array carries nothing.
    """
    if (
        isinstance(v0, xr.DataArray)
        and v0.attrs.get("sampler") == sampler
        and str(v0.attrs.get("seed")) == str(seed)
    ):
        raise ValueError(
            f"seed must differ from that of the result that {name} comes from, whose random "
            f"numbers it would repeat; got {seed!r} for both"
        )


def check_starts(v0: ArrayLike, samples: int, name: str = "v0") -> NDArray[np.float64]:
    """Return a valid initial covariance (m, m), or one per sample (samples, m, m).

    Errors name it as the argument `name`. Raise ValueError as `check_covariance`, and if the number
    of matrices is not the number of samples.
    """
    array = real_array(v0, name)
    if array.ndim != 3:
        return check_covariance(array, name)
    if len(array) != samples:
        raise ValueError(
            f"{name} must be a matrix (m, m), or one for each of samples={samples}; got shape "
            f"{array.shape}"
        )
    return np.stack([check_covariance(v, f"{name}[{i}]") for i, v in enumerate(array)])


def check_rank(v0: NDArray[np.float64], columns: int, width: int, name: str = "v0") -> None:
    """Raise ValueError if the rank of the covariance exceeds the number of columns."""
    if columns >= v0.shape[-1]:
        return
    values = np.linalg.eigvalsh(v0).reshape(-1, v0.shape[-1])
    ranks = (values > v0.shape[-1] * 2.0**-52 * values[:, -1:]).sum(axis=1)
    if ranks.max() > columns:
        least = ranks.max() * width // columns
        raise argument_error("width", f"at least {least} for {name} of rank {ranks.max()}", width)


def check_radius(
    radius: float | None, v0: NDArray[np.float64], single: bool = False, name: str = "v0"
) -> float:
    """Return the stopping radius, by default `DEFAULT_RADIUS` times the Frobenius norm of `v0`.

    It is never above `LARGEST_RADIUS`, so `v0` must be within it; in single precision within
    `LARGEST_SINGLE_NORM`.
    """
    largest = LARGEST_SINGLE_NORM if single else LARGEST_RADIUS
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(v0, axis=(-2, -1)).max())
    if norm >= largest:
        raise ValueError(f"{name} must have a Frobenius norm below {largest:g}; it has {norm:.6g}")
    if radius is None:
        return min(DEFAULT_RADIUS * (norm if norm > 0.0 else 1.0), largest)
    check_positive("radius", radius)
    if not norm < radius <= LARGEST_RADIUS:
        least = f"larger than |v0| = {norm:.6g} (Frobenius norm)"
        raise argument_error("radius", f"{least} and at most {LARGEST_RADIUS:g}", radius)
    return float(radius)


def saved_steps(
    steps: int,
    dt: float,
    times: Sequence[float] | NDArray[np.float64] | None,
    save_every: int | None,
) -> tuple[int, ...]:
    """Return the grid indices to store: `times`, every `save_every` steps, or both ends.

    Raise ValueError if both are given, or a time is off the grid, outside it, or not after the one
    before.
    """
    if times is not None and save_every is not None:
        raise ValueError(
            f"times and save_every={save_every!r} cannot be used together; pass only one"
        )
    if save_every is not None:
        check_count("save_every", save_every)
        regular = range(0, steps + 1, save_every)
        return tuple(sorted({*regular, steps}))
    if times is None:
        return (0, steps)
    wanted = real_array(times, "times")
    if wanted.ndim != 1 or wanted.size == 0:
        raise ValueError(f"times must be a non-empty list of numbers; got shape {wanted.shape}")
    if not np.isfinite(wanted).all():
        raise ValueError("times must be finite; some are NaN or infinite")
    with np.errstate(over="ignore"):
        index = np.rint(wanted / dt)
    for t, i in zip(wanted, index, strict=True):
        if not -0.5 < i < steps + 0.5:
            raise ValueError(f"times must lie in [0, {steps * dt:.12g}]; got {t:.12g}")
        if abs(t - i * dt) > 1e-6 * dt:
            raise ValueError(
                f"times contains {t:.12g}, which is off the grid of multiples of {dt:.12g}; "
                f"the nearest grid time is {i * dt:.12g}"
            )
    saved = tuple(int(i) for i in index)
    for a, b in pairwise(saved):
        if b <= a:
            raise ValueError(
                f"times must be strictly increasing; got {b * dt:.12g} after {a * dt:.12g}"
            )
    return saved


def device_name(device: str | torch.device) -> str:
    """Return the name of an available device; "cpu" does not load torch."""
    return "cpu" if device == "cpu" else str(check_device(device))


def precision_name(dtype: str | torch.dtype) -> str:
    """Return "float64" or "float32", without loading torch."""
    prefix = "" if isinstance(dtype, str) else "torch."
    if str(dtype) not in [prefix + name for name in _PRECISIONS]:
        raise argument_error("dtype", "'float64' or 'float32'", dtype)
    return str(dtype).removeprefix(prefix)


def check_device(device: str | torch.device) -> torch.device:
    """Return the torch device if it is supported and available."""
    resolved = named_device(device)
    if resolved.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (resolved.index or 0) >= count:
            if count == 0:
                raise ValueError(f"device {str(device)!r}: torch finds no CUDA device here")
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
    return getattr(torch, precision_name(dtype))
