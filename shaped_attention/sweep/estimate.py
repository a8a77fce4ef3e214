"""How long a sweep takes, from a few samples."""

from __future__ import annotations

from shaped_attention.sweep.specification import Sweep
from shaped_attention.sweep.units import draw, task_of

_SAMPLES = 64


def estimate(sweep: Sweep) -> dict[str, float]:
    """Return the seconds that each sampler takes on one worker.

    The first, the middle and the last cell are timed, with 64 samples or a unit if that is smaller.
    """
    indices, seconds = list(sweep.indices()), {}
    for sampler in sweep.samplers:
        times = []
        for place in {0, len(indices) // 2, len(indices) - 1}:
            unit = sweep.unit(sampler, indices[place], 0)
            # The first samples load or compile what the others use.
            draw(task_of(sweep, unit._replace(samples=1)))
            few = min(_SAMPLES, unit.samples)
            drawn = draw(task_of(sweep, unit._replace(samples=few)))
            if drawn.error:
                raise ValueError(f"{sampler}: {drawn.error}")
            times.append(drawn.seconds / few)
        seconds[sampler] = sum(times) / len(times) * sweep.samples * len(indices)
    return seconds
