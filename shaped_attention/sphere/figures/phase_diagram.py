"""Phase diagrams of clustering: P(<x_1, x_2> >= 1 - delta) over time and beta."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from shaped_attention.checks import check_count, check_values
from shaped_attention.results.over_grid import over_grid
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.devices import named_device
from shaped_attention.sphere.clusters import close_pairs
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import checked_times, sphere_flow
from shaped_attention.sphere.starts import uniform_start
from shaped_attention.sphere.theory import meeting_time

DIMENSIONS = (2, 8, 32, 128, 512, 1024)
BETAS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5,
         9.0)  # fmt: skip


@recorded()
def phase_diagram(
    dimensions: Sequence[int] = DIMENSIONS,
    betas: Sequence[float] = BETAS,
    times: ArrayLike | None = None,
    *,
    tokens: int = 32,
    delta: float = 1e-3,
    samples: int = 2**10,
    seed: int = 0,
    tolerance: float = 1e-4,
    normalised: bool = True,
    device: str = "cpu",
    progress: bool | None = None,
) -> xr.Dataset:
    """Compute the probability that two tokens are close, from uniform tokens in each dimension.

    Parameters
    ----------
    dimensions
        Dimensions d of the ambient space, one for each panel.
    betas
        Inverse temperatures beta, one for each row.
    times
        Increasing times >= 0; by default 61 from 0 to 30.
    tokens
        Number of tokens N >= 2.
    delta
        Two tokens are close if their cosine is at least 1 - delta; strictly between 0 and 1.
    samples
        Number of realisations in each dimension, the same for all beta.
    seed
        Seed of the random numbers (integer >= 0).
    tolerance
        Largest local error of a token per step of the flow.
    normalised
        Whether attention is normalised by its sum (SA) or not (USA).
    device
        Device of the flow: 'cpu', 'cuda' or 'cuda:INDEX'.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    xarray.Dataset with `probability` (dimension, beta, time), the mean over realisations and over
    the pairs of tokens (which are exchangeable), and `curve` (beta), the time at which equiangular
    tokens from cosine 0 are this close: the limit of high dimension.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    check_count("tokens", tokens, lowest=2)
    at = checked_times(np.linspace(0.0, 30.0, 61) if times is None else times)
    check_values("dimensions", dimensions)
    check_values("betas", betas)
    place = named_device(device)
    curve = [meeting_time(delta, tokens, beta, 0.0, normalised) for beta in betas]
    close = partial(close_pairs, delta=delta)

    def panel(dimension: int) -> xr.Dataset:
        start = uniform_start(tokens, dimension, samples, seed).to(place)
        flow = sphere_flow(
            SphereAttention(0.0, normalised), start, at.tolist(),
            betas=[float(beta) for beta in betas], observe=close, tolerance=tolerance,
        )  # fmt: skip
        probability = flow["observed"].mean("sample").to_numpy()
        return xr.Dataset({"probability": (("beta", "time"), probability)})

    found = over_grid(panel, {"dimension": dimensions}, progress=progress)
    return (
        found.assign(curve=("beta", curve))
        .assign_coords(beta=list(betas), time=at)
        .assign_attrs(attention="SA" if normalised else "USA")
    )
