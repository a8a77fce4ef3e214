"""Steps of the limit by torchsde's Euler scheme, from one call for drift and noise.

Time is counted in steps, which makes torchsde's clock exact (dt = 1). The noise of a step is made
of the numbers keyed by (seed, sample, step), see `shaped_attention.numerics.draws`, in place of
torchsde's Brownian motion.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torchsde
from torch import Tensor

from shaped_attention.numerics.threads import shared
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.steppers import Numpy


class _System:
    """The limit as torchsde sees it: flat states, a Brownian motion, and time in steps."""

    noise_type = "general"
    sde_type = "ito"
    levy_area_approximation = "none"

    def __init__(self, paths: Paths) -> None:
        self._paths, self._on_host = paths, paths.stepper.xp is np
        self.shape = (len(paths.state), 1)
        self._nothing = torch.zeros(self.shape, dtype=torch.float64)

    def flat(self, array: Numpy | Tensor) -> Tensor:
        """Return an array of the stepper as a flat tensor with the same memory."""
        return (array if isinstance(array, Tensor) else torch.from_numpy(array)).flatten(1)

    def unflat(self, tensor: Tensor) -> Numpy | Tensor:
        """Return an array of the stepper, with the shape of a state."""
        shaped = tensor.reshape(self._paths.state.shape)
        return np.ascontiguousarray(shaped.numpy()) if self._on_host else shaped

    def f_and_g_prod(self, t: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return drift times the step, and the noise of the step that begins at a time."""
        drift, noise = self._paths.drift_and_noise(self.unflat(y), round(float(t)))
        return self.flat(drift), self.flat(noise)

    def __call__(self, start: Tensor, end: Tensor) -> Tensor:
        """Return increments of the right shape, which nothing reads."""
        return self._nothing


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
            system.flat(paths.state),
            torch.tensor([begin, end], dtype=torch.float64),
            bm=system,
            method="euler",
            dt=1.0,
        )
    paths.state = system.unflat(states[-1])
    paths.grid[:] = paths.taken[:] = end
    paths.finish()
    return end == begin + budget
