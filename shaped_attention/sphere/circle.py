"""Tokens on the circle: angles, their field, and Kuramoto's model with its closed form.

For d = 2 a token is x = (cos a, sin a), and the flow of `SphereAttention` is

    da_i/dt = -(1 / Z_i) sum_j exp(beta cos(a_i - a_j)) sin(a_i - a_j).

At beta = 0 it is Kuramoto's model of identical oscillators, da_i/dt = -R sin(a_i - psi) with
R e^{i psi} the mean of e^{i a_j} (Geshkovski et al., arXiv 2312.10794, section 7). Its mean field
preserves the family of Poisson kernels (Ott and Antonsen, Chaos 18, 2008).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Complex, Float
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.checks import check_finite, real_array, with_types
from shaped_attention.sphere.array_arguments import also_of_arrays
from shaped_attention.sphere.dynamics import SphereAttention


@also_of_arrays("tokens")
def angles_of(tokens: Float[Tensor, "*B N 2"]) -> Float[Tensor, "*B N"]:
    """Return the angles in (-pi, pi] of tokens (..., N, 2) on the unit circle.

    Accepts a tensor or an array and returns the same kind.

    Raises
    ------
    ValueError
        If the tokens do not have two coordinates.
    """
    if tokens.ndim < 2 or tokens.shape[-1] != 2:
        raise ValueError(f"tokens have shape {tuple(tokens.shape)}; (..., N, 2) is needed")
    return torch.atan2(tokens[..., 1], tokens[..., 0])


@also_of_arrays("angles")
def tokens_of(angles: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N 2"]:
    """Return the tokens (cos a, sin a) (..., N, 2) of angles (..., N).

    Accepts a tensor or an array and returns the same kind.
    """
    return torch.stack([torch.cos(angles), torch.sin(angles)], dim=-1)


@also_of_arrays("angles")
@with_types
def angle_field(angles: Float[Tensor, "*B N"], attention: SphereAttention) -> Float[Tensor, "*B N"]:
    """Return da_i/dt = -sum_j w_ij sin(a_i - a_j) at angles (..., N), with + for V = -I.

    The weights w_ij are those of `attention`. Accepts a tensor or an array and returns the same
    kind.
    """
    if angles.ndim < 1:
        raise ValueError(f"angles have shape {tuple(angles.shape)}; (..., N) is needed")
    apart = angles[..., :, None] - angles[..., None, :]
    speed = -(attention.weights(torch.cos(apart)) * torch.sin(apart)).sum(-1)
    return -speed if attention.repulsion else speed


def mean_direction(angles: Float[Tensor, "*B N"]) -> Complex[Tensor, "*B"]:
    """Return R e^{i psi}, the mean of e^{i a_j} over tokens with angles (..., N)."""
    return torch.polar(torch.ones_like(angles), angles).mean(-1)


def poisson_density(angles: ArrayLike, radius: float) -> NDArray[np.float64]:
    """Return the Poisson kernel (1 - r^2) / (2 pi (1 - 2 r cos a + r^2)) at `angles`.

    Under this law e^{i a} has mean r.

    Raises
    ------
    ValueError
        If the radius r is not in [0, 1), or an angle is not finite.
    """
    _check_radius("radius", radius)
    a = real_array(angles, "angles")
    if not np.isfinite(a).all():
        raise ValueError("angles have NaN or infinite entries; finite numbers are needed")
    # 1 - 2 r cos a + r^2 without cancellation for r near 1.
    below = (1.0 - radius) ** 2 + 4.0 * radius * np.sin(0.5 * a) ** 2
    return (1.0 - radius**2) / (2.0 * math.pi * below)


def poisson_radius(times: ArrayLike, start: float) -> NDArray[np.float64]:
    """Return the radius r of the mean field at beta = 0 from a Poisson kernel of radius `start`.

    r' = r (1 - r^2) / 2, so r(t)^2 = 1 / (1 + (1 / r_0^2 - 1) e^{-t}). This is Ott and Antonsen's
    z' = (z - conj(z) z^2) / 2 for identical oscillators without rotation.

    Raises
    ------
    ValueError
        If `start` is not in [0, 1), or a time is negative or not finite.
    """
    _check_radius("start", start)
    t = real_array(times, "times")
    if not np.isfinite(t).all() or (t < 0.0).any():
        raise ValueError("times: finite numbers >= 0 are needed")
    return start / np.sqrt(start**2 + (1.0 - start**2) * np.exp(-t))


def _check_radius(name: str, value: float) -> None:
    check_finite(name, value)
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name}={value!r}: a number >= 0 and below 1 is needed")
