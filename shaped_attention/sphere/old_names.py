"""Functions of `shaped_attention.sphere` that are now called in another way, for one release."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import xarray as xr
from torch import Tensor

from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.array_arguments import also_of_arrays
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.circle import Array, circle_wasserstein2
from shaped_attention.sphere.layers import sphere_network
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.token_attention import Perceptron, TokenAttention, perceptron_of

random_tokens = partial(uniform_start, reduced=False)
random_attention = TokenAttention.random


@recorded("noisy network", observe="keep")
def noisy_network(
    attention: SphereAttention,
    start: Tensor,
    sigma: float,
    step: float,
    layers: int,
    *,
    seed: int = 0,
    save_every: int = 1,
    keep: str | Callable[[Tensor], Tensor] | None = "V",
) -> xr.Dataset:
    """Return `sphere_network` with noise."""
    result = sphere_network(
        attention, start, step, layers, sigma=sigma, seed=seed, save_every=save_every, keep=keep
    )
    # The record is that of this call.
    del result.attrs["specification"]
    return result


def circle_distance_to_density(angles: Array, density: Array) -> Array:
    """Return `circle_wasserstein2` to a density."""
    return circle_wasserstein2(angles, density=density)


@also_of_arrays("v")
def common_noise_drift(
    attention: SphereAttention, v: Tensor, dimension: int, sigma: float
) -> Tensor:
    """Return `SphereAttention.gram_field` with noise."""
    return attention.gram_field(v, sigma, dimension)


@also_of_arrays("angles")
def angle_field(angles: Tensor, attention: SphereAttention) -> Tensor:
    """Return `SphereAttention.angle_field`."""
    return attention.angle_field(angles)


def relu_mlp(inner: Tensor, outer: Tensor, bias: Tensor | None = None) -> Perceptron:
    """Return the function of tokens that these matrices are as `mlp` of `TokenAttention`."""
    return perceptron_of((inner, outer) if bias is None else (inner, outer, bias))
