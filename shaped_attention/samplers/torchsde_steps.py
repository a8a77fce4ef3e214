"""Steps of the limit by torchsde's Euler scheme, from one call for drift and noise.

Time is counted in steps, which makes torchsde's clock exact (dt = 1), and its Brownian motion is
replaced by increments keyed by (seed, sample, step): see `shaped_attention.numerics.draws`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torchsde
from torch import Tensor

from shaped_attention.numerics.threads import shared
from shaped_attention.samplers.paths import Paths


class _System:
    """The limit as torchsde sees it: flat states, our own Brownian motion, and time in steps."""

    noise_type = "general"
    sde_type = "ito"
    levy_area_approximation = "none"

    def __init__(self, paths: Paths) -> None:
        self._paths, self._on_host = paths, paths.stepper.xp is np
        self.shape = paths.brownian_shape
        self._last: dict[str, tuple[Any, Tensor]] = {}

    def flat(self, array: Any, name: str) -> Tensor:
        """Return an array of a stepper as a flat tensor with the same memory."""
        # Most steppers use the same arrays again; torch's views of them take time in each step.
        if name not in self._last or self._last[name][0] is not array:
            tensor: Tensor = torch.from_numpy(array) if self._on_host else array
            self._last[name] = array, tensor.flatten(1)
        return self._last[name][1]

    def unflat(self, tensor: Tensor, like: Any) -> Any:
        """Return an array of the stepper with the shape of another."""
        shaped = tensor.reshape(like.shape)
        return np.ascontiguousarray(shaped.numpy()) if self._on_host else shaped

    def f_and_g_prod(self, t: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return drift times the step, and the noise of Brownian increments v."""
        paths = self._paths
        increments, state = v.numpy() if self._on_host else v, self.unflat(y, paths.state)
        drift, noise = paths.drift_and_noise(state, increments, round(float(t)))
        return self.flat(drift, "drift"), self.flat(noise, "noise")

    def __call__(self, start: Tensor, end: Tensor) -> Tensor:
        """Return the Brownian increments of one whole step."""
        return self.flat(self._paths.increments(round(float(start))), "increments")


@shared
@contextmanager
def _generator_put_back(accelerators: list[torch.device]) -> Iterator[None]:
    """Restore torch's global generator, from which torchsde draws when it probes the system."""
    with torch.random.fork_rng(devices=accelerators):
        yield


def advance(paths: Paths, point: int, budget: int) -> bool:
    """Take at most `budget` steps towards a grid point; return whether all of them were taken."""
    system, begin = _System(paths), int(paths.grid[0])
    end = min(begin + budget, point)
    device = paths.state.device if isinstance(paths.state, Tensor) else torch.device("cpu")
    with torch.no_grad(), _generator_put_back([device] if device.type == "cuda" else []):
        states = torchsde.sdeint(
            system,
            system.flat(paths.state, "state"),
            torch.tensor([begin, end], dtype=torch.float64),
            bm=system,
            method="euler",
            dt=1.0,
        )
    paths.state = system.unflat(states[-1], paths.state)
    paths.grid[:] = paths.taken[:] = end
    paths.finish()
    return end == begin + budget
