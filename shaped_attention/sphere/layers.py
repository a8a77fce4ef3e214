"""Discrete networks whose continuum limits are self-attention flows, with noise and without.

    "after"     X' = N(X + h A(X)),    N(y) = y / |y| for each token    Post-LN
    "before"    X' = X + h A(N(X))                                      Pre-LN
    None        X' = X + h A(X)

with A the attention (and MLP) before the projection. As h -> 0 with time = layer * h, they converge
to the flows of `sphere_flow` with an error of order h. With h = 1 the first is the network of
Geshkovski, Letrouit, Polyanskiy and Rigollet (arXiv 2312.10794), section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_nonnegative,
    check_positive,
    check_width,
)
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.arguments import saved_steps
from shaped_attention.samplers.loop import run_paths
from shaped_attention.samplers.network import WeightProduct
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import Specification
from shaped_attention.samplers.steppers import Array
from shaped_attention.samplers.steppers.torch_descriptions import TorchStepper
from shaped_attention.sphere.attention import SphereAttention
from shaped_attention.sphere.flow import check_normalise, flow_result, measured
from shaped_attention.sphere.integrate import CHUNK_ENTRIES, Keep
from shaped_attention.sphere.starts import SpherePart, unit_rows
from shaped_attention.sphere.token_attention import TokenAttention


@recorded("sphere network")
def sphere_network(
    attention: SphereAttention | TokenAttention,
    start: Float[Tensor, "samples N r"],
    step: float,
    layers: int,
    *,
    sigma: float = 0.0,
    centred: bool = False,
    seed: int = 0,
    normalise: str | None = "after",
    save_every: int = 1,
    keep: str | Callable[[Tensor], Tensor] = "V",
) -> xr.Dataset:
    """Pass tokens through the layers of a network and keep their Gram matrices.

    Parameters
    ----------
    attention
        Attention of every layer; matrices that depend on time are evaluated at layer * step.
    start
        Unit tokens (samples, N, r), from `uniform_start`, `equiangular_start` or `given_start`. All
        coordinates, r = d, are needed for a `TokenAttention` and for noise, as
        ``uniform_start(tokens, d, samples, reduced=False)`` draws them; min(N, d) suffice for a
        `SphereAttention` without noise.
    step
        Positive step h; 1 in practical networks.
    layers
        Number of layers.
    sigma
        Strength of the noise of a `SphereAttention`, at least 0: one layer is
        X' = N(X + s h w X + sigma sqrt(h) w X W / sqrt d), with a Gaussian matrix W (d, d) for each
        layer and sample, and s = -1 for repulsion.
    centred
        Whether s = 0, for value matrices of mean 0 as at initialisation; sigma must be positive.
    seed
        Seed of the random matrices (integer >= 0). They are independent of an initial
        condition with the same seed and of the noise of `noisy_chain`.
    normalise
        Where a layer normalises, as in `sphere_flow`. Noise needs "after".
    save_every
        Number of layers between stored ones; layer 0 and the last layer are always stored.
    keep
        "V" for the Gram matrices, or a function of Gram matrices (B, N, N) that returns (B, ...);
        chunks of samples call it from several threads.

    Returns
    -------
    xarray.Dataset
        A result like that of `sphere_flow`, at times layer * step, with the layer as a second
        coordinate. `V` has unit diagonal only for "after".

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If the norm of a token overflows, as under USA without normalisation, which explodes in
        finite time; if a token to be normalised is zero; or if a layer takes a token past 0 under
        "before", as under repulsion, whose flow reaches length 0 in finite time.
    """
    attention.check_start(start)
    _check_layers(sigma, centred, step, layers, seed, save_every)
    check_normalise(normalise)
    if sigma > 0.0 and (normalise != "after" or isinstance(attention, TokenAttention)):
        raise argument_error(
            "sigma", "0 unless attention is a SphereAttention and normalise='after'", sigma
        )
    dimension = start.shape[-1]
    key = stream_key(seed, "sphere", SpherePart.NOISY_NETWORK)

    def move(tokens: Tensor, layer: int, samples: Tensor) -> Tensor:
        time = tokens.new_full((len(tokens),), layer * step)
        read = _normalised(tokens, layer) if normalise == "before" else tokens
        mixed = attention.moved(read, time, samples)
        moved = tokens if centred else tokens + step * mixed
        if normalise == "before" and bool(((moved * tokens).sum(-1) < 0.0).any()):
            raise FloatingPointError(
                f"layer {layer + 1} takes a token past 0, where it has no direction"
            )
        if sigma > 0.0:
            product = WeightProduct(Draws(key, samples, layer))
            moved = moved + sigma * math.sqrt(step / dimension) * product(mixed, dimension)
        return _normalised(moved, layer + 1) if normalise == "after" else moved

    return _run(start, step, layers, save_every, move, keep, normalise != "after")


@recorded("noisy chain")
def noisy_chain(
    attention: SphereAttention,
    start: Float[Tensor, "samples N r"],
    dimension: int,
    sigma: float,
    step: float,
    layers: int,
    *,
    centred: bool = False,
    seed: int = 0,
    save_every: int = 1,
    keep: str | Callable[[Tensor], Tensor] = "V",
) -> xr.Dataset:
    """Sample Gram matrices with the law of a noisy `sphere_network`, at a cost independent of d.

    Write X = F Q with F (N, r) and Q (r, d) with orthonormal rows. Q W is an (r, d) Gaussian
    matrix. Its part H = (Q W) Q^T along Q is Gaussian (r, r). Its part orthogonal to Q is
    independent of H and has the Gram matrix of a Gaussian (r, d - r) matrix,
    B B^T ~ Wishart_r(d - r, I). So before normalisation

        R' = D D^T + E E^T,   D = F + s h w F + sigma sqrt(h/d) w F H,   E = sigma sqrt(h/d) w F B,

    exactly. The next F is [D, E] with normalised rows, reduced by QR to N columns if it has more. B
    has c rows, as many as w F has columns, and d - r columns if d - r <= c + 1, else c, so F never
    has more than d columns.

    As h -> 0 this integrates, to weak order 1, the SDE of Gram matrices with the drift
    `SphereAttention.gram_field` and the bracket `gram_bracket`. For any h its matrices are positive
    semidefinite with unit diagonal. `sphere.theory.two_tokens` has the limit for two tokens.

    Parameters
    ----------
    attention, sigma, step, layers, centred, save_every, keep
        As for `sphere_network`.
    start
        Unit tokens (samples, N, r) from `uniform_start`, `equiangular_start` or `given_start`.
    dimension
        Dimension d of the networks, at least min(N, r).
    seed
        Seed of the noise (integer >= 0), which is independent of an initial condition with the same
        seed.

    Returns
    -------
    xarray.Dataset like that of `sphere_network`.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    FloatingPointError
        If a token becomes zero, which has no direction.
    """
    attention.check_start(start)
    check_width("dimension", dimension)
    count, rank = start.shape[-2], min(start.shape[-2:])
    if dimension < rank:
        raise argument_error("dimension", f"at least {rank}, the rank of the start", dimension)
    _check_layers(sigma, centred, step, layers, seed, save_every)
    key = stream_key(seed, "sphere", SpherePart.NOISY_CHAIN)

    def move(tokens: Tensor, layer: int, samples: Tensor) -> Tensor:
        if tokens.shape[-1] > count:
            tokens = _reduced(tokens)
        mixed = attention.moved(tokens)
        moved = tokens if centred else tokens + step * mixed
        if sigma == 0.0:
            return _normalised(moved, layer + 1)
        columns = tokens.shape[-1]
        draws, scale = Draws(key, samples, layer), sigma * math.sqrt(step / dimension)

        moved = moved + scale * (mixed @ draws.normal(columns, columns))
        if dimension > columns:
            rest = draws.wishart_factor(columns, dimension - columns)
            moved = torch.cat([moved, scale * (mixed @ rest)], dim=-1)
        unit = _normalised(moved, layer + 1)
        return unit_rows(_reduced(unit)) if unit.shape[-1] > count else unit

    return _run(start, step, layers, save_every, move, keep)


class _Layers(TorchStepper):
    """A stepper of tokens (rows, 1, N, r), in chunks that stay in the cache; no path stops."""

    def __init__(
        self, spec: Specification, move: Callable[[Tensor, int, Tensor], Tensor], entries: int
    ) -> None:
        super().__init__(spec, size=1)
        self._move, self._entries = move, entries

    def chunk(self) -> int:
        """Return how many samples move together."""
        return max(1, CHUNK_ENTRIES // self._entries)

    def norms(self, paths: Paths, moving: Tensor, least: float) -> Tensor:
        """Return 0: there is no radius."""
        return torch.zeros(len(paths.grid), device=self.device)

    def moved(self, paths: Paths, moving: Tensor, lengths: Array, point: int) -> Tensor:
        """Return the tokens after a layer."""
        # A thread has torch's gradients on, whatever holds where it was started.
        with torch.no_grad():
            tokens = self._move(paths.state[:, 0], point, self.numbers_of(paths))
        if not bool(torch.isfinite(tokens.square().sum(-1)).all()):
            raise FloatingPointError(f"layer {point + 1} gives tokens that are not finite")
        # All rows move, and the number of columns may change.
        paths.state = tokens[:, None]
        return paths.state


def _run(
    start: Float[Tensor, "samples N r"],
    step: float,
    layers: int,
    save_every: int,
    move: Callable[[Tensor, int, Tensor], Tensor],
    keep: str | Keep,
    lengths: bool = False,
) -> xr.Dataset:
    """Run a network of any kind, whose tokens may have `lengths`.

    `move` maps tokens, the layer's number and the samples' numbers to the next tokens.
    """
    v0 = np.eye(start.shape[-2])
    state = start[:, None].double().cpu().numpy()
    spec = Specification(
        "sphere", (), v0, v0, 0, layers, step, saved_steps(layers, step, None, save_every),
        len(start), 0, math.inf, str(start.device), "float64", progress=False,
        embedded=lambda spec, first, count: state[first : first + count],
    )  # fmt: skip

    def kept(paths: Paths, point: int) -> Array:
        return measured(paths.state[:, 0], keep).detach().cpu().numpy()

    stepper = _Layers(spec, move, start[0].numel())
    data = run_paths(stepper, {"kept": kept})["kept"]
    result = flow_result(data, start, keep, lengths)
    result = result.assign_coords(time=spec.times, layer=("time", np.array(spec.saved)))
    return result.assign_attrs(horizon=float(spec.times[-1]))


def _normalised(x: Float[Tensor, "B N r"], layer: int) -> Float[Tensor, "B N r"]:
    """Normalise tokens (B, N, r), the output of the layer with this number, counted from 1."""
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    if not bool(((norms > 0.0) & (norms < torch.inf)).all()):
        raise FloatingPointError(f"layer {layer} gives a token of length 0 or infinity")
    return x / norms


def _reduced(factor: Float[Tensor, "B N c"]) -> Float[Tensor, "B N N"]:
    """Return a factor of the same Gram matrices with N <= c columns: R^T if factor^T = Q R."""
    return torch.linalg.qr(factor.mT, mode="r").R.mT


def _check_layers(
    sigma: float, centred: bool, step: float, layers: int, seed: int, save_every: int
) -> None:
    check_positive("step", step)
    # Without noise nothing moves centred tokens.
    (check_positive if centred else check_nonnegative)("sigma", sigma)
    check_count("layers", layers)
    check_count("save_every", save_every)
    check_count("seed", seed, lowest=0)
