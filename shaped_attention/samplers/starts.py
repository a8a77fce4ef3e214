"""Initial conditions of a run: one covariance, one per sample, or the end of an earlier run."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.checks import argument_error, check_positive, real_array
from shaped_attention.numerics.covariance import check_covariance

DEFAULT_RADIUS = 1e4
"""Default stopping radius, in units of the norm of the starting covariance."""

LARGEST_RADIUS = 1e30
"""One step from within this radius stays finite in double precision."""

LARGEST_SINGLE_NORM = 1e16
"""Paths that start farther out could overflow in their first step in single precision."""


STATE = ("sample", "group", "token", "column")
"""Dimensions of the state of a run in its result."""


def checksum(result: xr.Dataset) -> int:
    """Return a number that changes with the state and the stopping times of a result."""
    state = result["state"].transpose(*STATE).to_numpy()
    return zlib.crc32(result["stopping_time"].to_numpy().tobytes(), zlib.crc32(state.tobytes()))


@dataclass(frozen=True)
class Resumed:
    """The end of an earlier run, which another continues.

    Attributes
    ----------
    v0
        Initial covariances of the earlier run.
    steps
        Number of its steps.
    state, stopping_time
        Its state (samples, groups, m, c) and stopping times (samples,).
    steps_taken, largest_speed
        Steps and largest speed (samples,), if a clock moved its paths.
    """

    v0: NDArray[np.float64]
    steps: int
    state: NDArray[np.float64]
    stopping_time: NDArray[np.float64]
    steps_taken: NDArray[np.int64] | None = None
    largest_speed: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, result: xr.Dataset) -> Resumed:
        """Read the end of a result.

        Raises
        ------
        ValueError
            If it has no state.
        """
        if "state" not in result:
            raise ValueError(
                "result must have its state (made with keep_state=True); it has no state"
            )
        if not set(STATE) <= set(result["state"].dims) or checksum(result) != result.attrs.get(
            "state_checksum", checksum(result)
        ):
            raise ValueError(
                "result must be whole; its state is not the one with which its run ended, as if "
                "samples were selected, joined or averaged"
            )
        specification = json.loads(result.attrs["specification"])
        return cls(
            np.array(specification["v0"]),
            int(result.attrs["steps"]),
            result["state"].transpose(*STATE).to_numpy(),
            result["stopping_time"].to_numpy(),
            *(
                result[name].to_numpy() if name in result else None
                for name in ("steps_taken", "largest_speed")
            ),
        )


def check_starts(v0: ArrayLike, samples: int, name: str = "v0") -> NDArray[np.float64]:
    """Return a valid initial covariance (m, m), or one per sample (samples, m, m).

    Errors name it as the argument `name`.

    Raises
    ------
    ValueError
        As `check_covariance`, and if the number of matrices is not the number of samples.
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
