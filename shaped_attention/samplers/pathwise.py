"""Derivatives of paths: the chain and the limit as differentiable functions of parameters and V_0.

The seed of a sampler fixes its random numbers, whatever the parameters are. A path is therefore a
function of the parameters, and its derivative is the limit of the difference quotients of
`simulate_chain`, and of `integrate_sde` with fixed steps, with common random numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.overrides import Overrides, overridden
from shaped_attention.blocks.reasons import check_chain, check_limit, limit_of
from shaped_attention.checks import argument_error, check_count
from shaped_attention.rows.step import State, covariance
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.sde import count_steps
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.starts import frames_with_means
from shaped_attention.samplers.steppers.torch_descriptions import DescriptionStepper


def pathwise(
    layer: Layer,
    v0: Float[Tensor, "m m"],
    *,
    samples: int,
    width: int | None = None,
    depth: int | None = None,
    horizon: float | None = None,
    step: float | None = None,
    parameters: Overrides | Sequence[Overrides] | None = None,
    radius: float | None = None,
    seed: int = 0,
) -> Float[Tensor, "sample m m"]:
    """Sample the final covariances of the chain or of the limit, which torch can differentiate.

    They agree up to rounding with those of `simulate_chain` (with `width` and `depth`) or of
    `integrate_sde` with ``method="direct"`` (with `horizon` and `step`) at the same seed. Automatic
    differentiation keeps every step of every sample in memory.

    Parameters
    ----------
    layer
        As in the samplers.
    v0
        Initial covariance (m, m), a tensor on the CPU or on an accelerator, in double or single
        precision; positive definite if it requires gradients.
    samples, width, depth, horizon, step, radius, seed
        As in the samplers; give either width and depth or horizon and step.
    parameters
        Tensors that replace parameters, by name: a dictionary for a layer of one block, otherwise
        a list with one dictionary for each block of the layer (or of all layers of a pattern). A
        tensor has one value, or one for each layer or step. The parameters of a block inside a
        block are a dictionary under the name of its field.

    Returns
    -------
    Tensor (samples, m, m) with the device and precision of `v0`. A path that reaches the radius
    stops there, and so do its derivatives.

    Raises
    ------
    ValueError
        If the arguments select neither or both of chain and limit, or one is outside its range.
    FloatingPointError
        If a covariance is not finite.

    Warns
    -----
    UserWarning
        If paths of the limit reached the radius.

    Examples
    --------
    >>> from shaped_attention import ShapedAttention
    >>> gamma = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    >>> v = pathwise(ShapedAttention(gamma=0.5), torch.eye(2, dtype=torch.float64), width=64,
    ...              depth=16, samples=256, parameters={"gamma": gamma})
    >>> v[:, 0, 1].square().mean().backward()
    >>> bool(gamma.grad > 0)
    True
    """
    if not isinstance(v0, Tensor):
        raise argument_error("v0", "a tensor (m, m)", v0)
    if v0.ndim != 2:
        raise ValueError(f"v0 must be a matrix (m, m); got shape {tuple(v0.shape)}")
    if v0.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"v0 must be of dtype torch.float64 or torch.float32; got {v0.dtype}")
    steps, dt = _grid(width, depth, horizon, step)
    layer, tensors = overridden(layer, parameters, steps)
    if width is not None:
        check_chain(layer)
    else:
        check_limit(layer)
    spec = specify(
        layer, v0.detach(), width=width, steps=steps, dt=dt, samples=samples, seed=seed,
        radius=radius, device=v0.device, dtype=v0.dtype,
    )  # fmt: skip
    stepper = DescriptionStepper(replace(spec, overrides=tensors), size=1)
    paths = Paths(stepper, 0, samples)
    if v0.requires_grad:
        factor = _differentiable_start(v0, width // spec.groups if width else len(v0))
        if spec.means:
            factor = factor @ torch.from_numpy(frames_with_means(spec, 0, samples)).to(v0)
        paths.state = factor.expand_as(paths.state)
    while paths.behind(steps):
        paths.advance(steps)
    stopped = int(np.isfinite(paths.stopping_times()).sum())
    if stopped and width is None and not limit_of(spec.blocks[0]).normalised:
        warnings.warn(
            f"{stopped} of {samples} paths reached the radius with a fixed step, which is wrong "
            "near an explosion; their values dominate means and derivatives, and the mean of the "
            "derivatives of a functional of stopped paths is not the derivative of its mean "
            "(explosion_law has exact derivatives)",
            UserWarning,
            stacklevel=2,
        )
    v: Tensor = covariance(State(paths.state.unbind(1)))
    if not torch.isfinite(v.detach()).all():
        raise FloatingPointError(
            "pathwise produced covariances that are not finite; a smaller radius or step, or less "
            "extreme parameters of the blocks, would keep them from overflowing"
        )
    return v


def _grid(
    width: int | None, depth: int | None, horizon: float | None, step: float | None
) -> tuple[int, float]:
    """Return the number of steps and their length."""
    if width is not None and depth is not None and horizon is None and step is None:
        check_count("width", width)
        check_count("depth", depth)
        return depth, 1.0 / width
    if horizon is not None and step is not None and width is None and depth is None:
        steps = count_steps(horizon, step)
        return steps, float(horizon) / steps
    raise ValueError(
        "give either width and depth, or horizon and step; got "
        f"width={width!r}, depth={depth!r}, horizon={horizon!r}, step={step!r}"
    )


def _differentiable_start(v0: Tensor, columns: int) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(v0)
    if failed or columns < len(v0):
        raise ValueError(
            "v0 requires gradients, which do not exist at a singular matrix; "
            + ("pass v0.detach()" if failed else f"the width must be at least {len(v0)}")
        )
    return factor
