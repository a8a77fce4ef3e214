"""The exact covariance chain: V_l -> V_{l+1} in law as in a network of width n, without the width.

Write V = F F^T with F (m, m) and X = sqrt(n) F Q, where Q (m, n) has orthonormal rows (this needs
n >= m). For a weight matrix W (n, p) of independent N(0, 1) entries, Q W is an (m, p) matrix of
independent N(0, 1) entries too, so

- queries and keys: ``X W_Q / sqrt n = F G_Q`` with G_Q (m, n_k) Gaussian, and
  ``G_Q G_K^T = B K^T`` in law with B B^T ~ Wishart_m(n_k) and K (m, m) Gaussian, independent:
  rotate G_Q = B U with orthonormal rows U; then K = G_K U^T;
- a branch ``Z = M W`` (M any matrix that depends on the past) added to the skip connection:
  the part of W's rows along Q is Gaussian (m, m), the rest enters only through its Gram, a
  Wishart matrix with n - m degrees of freedom (`shaped_attention.rows.step`);
- hidden units of a network layer: n independent columns N(0, V);
- several heads without an output projection: the columns fall into groups, and the state is the
  groups' Grams (`shaped_attention.blocks.attention`);
- LayerNorm: the state also has the means of the tokens (`shaped_attention.blocks.normalised`).

By induction the law of V_{l+1} given the past depends only on V_l. Wishart matrices come from
Bartlett's factor, so the cost of attention does not depend on n or n_k.
"""

from __future__ import annotations

from typing import Unpack

import xarray as xr
from numpy.typing import ArrayLike

from shaped_attention.blocks.base import Layer
from shaped_attention.blocks.reasons import check_chain
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.arguments import check_other_seed
from shaped_attention.samplers.loop import sample
from shaped_attention.samplers.specification import SamplerOptions, specify, with_options
from shaped_attention.samplers.steppers import stepper_of


@recorded(sampler="chain")
@with_options(SamplerOptions)
def simulate_chain(
    layer: Layer,
    v0: ArrayLike,
    *,
    width: int,
    depth: int,
    samples: int,
    seed: int = 0,
    **options: Unpack[SamplerOptions],
) -> xr.Dataset:
    """Sample the covariances of finite networks exactly, without their weight matrices.

    The law is that of `simulate_network` with the same arguments. Compiled code runs on the
    CPU, torch on other devices; both use the same random numbers and agree to rounding.

    Parameters
    ----------
    layer
        A block, a list of the blocks of a layer in the order in which they act, or a `Pattern`.
    v0
        Initial covariance (m, m), positive semidefinite and possibly singular, or one per sample
        (samples, m, m), such as ``result.V.isel(time=-1)`` of an earlier run with another seed.
    width, depth
        Width n and number of layers L >= 1; layer l is at time l / n. A width below m requires a
        `v0` of rank at most n.
    samples
        Number of independent networks.
    seed
        Integer >= 0. Together with the arguments above and `radius` it determines the result.
    times
        Times to store, multiples of 1 / n in [0, L / n]; by default the first and the last.
    save_every
        Alternative to `times`: number of layers between stored ones. The last is always stored.
    radius
        Paths stop at the first layer where the Frobenius norm of V reaches the radius, and keep
        that value; by default 10^4 times the norm of `v0`.
    device, dtype
        'cpu' or 'cuda', 'float64' or 'float32'.
    chunk, memory
        Number of samples simulated together, by default as many as fit, and the most that working
        arrays may take: a number of bytes or a size such as "8 GiB". By default one sample may take
        half of what is free, and samples together at most 2 GiB. They do not change the result.
    progress
        Whether to show a progress bar; by default only if the standard error stream is a terminal.
    keep
        What to store at each time: "V"; "observables", all of `observables` as `kept` (time,
        sample, observable); or "module:function", a function from V (samples, m, m) to numbers
        (samples,).

    Returns
    -------
    xarray.Dataset with `V` (time, sample, row, col) or `kept`, and `stopping_time` (sample), which
    is infinite for paths that did not stop. `attrs` holds everything needed to repeat the call.

    Raises
    ------
    ValueError
        If an argument is outside its range; the message names it.
    """
    check_chain(layer)
    check_other_seed(v0, "chain", seed)
    spec = specify(layer, v0, width=width, steps=depth, samples=samples, seed=seed, **options)
    return sample(stepper_of(spec), {"width": width, "depth": depth})[0]
