"""Time the flow on the sphere: against Euler's scheme in R^d, by dimension, and against scipy.

`python -m benchmarks.sphere` (three minutes). A row of panels of the phase diagram, N = 32, t up to
30, 19 beta from 0 to 9, at d = 1024, from the same 16 initial conditions: by the flow, and by
Euler's scheme in R^d with step 0.1 in float64, each with its largest error in V against a flow with
tolerance 1e-9. Then the cost of the flow from d = 32 to 10^6, initial condition included. Then
field evaluations per sample and errors of the flow's pair of orders 3 and 2, and of scipy's
integrators, which run one sample at a time.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

import numpy as np
import torch
from scipy.integrate import solve_ivp

from shaped_attention.sphere import (
    SphereAttention,
    close_pairs,
    given_start,
    sphere_flow,
    uniform_start,
)
from shaped_attention.sphere.integrate import integrate_flow

TOKENS, DIMENSION, SAMPLES, ROUNDS = 32, 1024, 16, 3
BETAS = [float(beta) for beta in np.linspace(0.0, 9.0, 19)]
TIMES = np.linspace(0.0, 30.0, 61)
STEP, DELTA, TOLERANCE = 0.1, 1e-3, 1e-4
LOOSE = 5e-3
"""A tolerance with about the error of Euler's scheme."""
DIMENSIONS = (32, 1024, 32_768, 1_000_000)


def flow(start: torch.Tensor, tolerance: float, *, whole: bool = False) -> np.ndarray:
    """Return close pairs, or V, for all beta at `TIMES`."""
    look = (lambda v: v) if whole else partial(close_pairs, delta=DELTA)
    flows = (
        sphere_flow(SphereAttention(beta), start, TIMES.tolist(), keep=look, tolerance=tolerance)
        for beta in BETAS
    )
    return np.stack([found["kept"].values for found in flows])


def euler(tokens: torch.Tensor, beta: float, *, whole: bool = False) -> np.ndarray:
    """Return the same for one beta, by explicit steps in R^d projected onto the sphere."""
    attention, every, kept = SphereAttention(beta), round((TIMES[1] - TIMES[0]) / STEP), []
    for step in range(round(TIMES[-1] / STEP) + 1):
        if step % every == 0:
            gram = tokens @ tokens.mT
            kept.append(gram if whole else close_pairs(gram, DELTA))
        tokens = tokens + STEP * attention.field(tokens)
        tokens = tokens / tokens.norm(dim=-1, keepdim=True)
    return torch.stack(kept).numpy()


def seconds(function: partial) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def against_euler() -> None:
    """Time a panel by both methods, and print their errors."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, TOKENS, DIMENSION, dtype=torch.float64, generator=generator)
    x = x / x.norm(dim=-1, keepdim=True)
    start = given_start(x)
    # Euler's work does not depend on beta: three of the 19 represent all.
    some = BETAS[::9]
    flow(start, TOLERANCE)
    rounds = [
        (
            seconds(partial(flow, start, TOLERANCE)) / len(BETAS),
            seconds(partial(flow, start, LOOSE)) / len(BETAS),
            statistics.mean(seconds(partial(euler, x, beta)) for beta in some),
        )
        for _ in range(ROUNDS)
    ]
    costs = [statistics.median(column) / SAMPLES for column in zip(*rounds, strict=True)]
    exact = flow(start, 1e-9, whole=True)
    errors = [
        np.abs(flow(start, tolerance, whole=True) - exact).max() for tolerance in (TOLERANCE, LOOSE)
    ]
    errors.append(
        max(np.abs(euler(x, beta, whole=True) - exact[BETAS.index(beta)]).max() for beta in some)
    )
    names = (f"flow, tolerance {TOLERANCE:g}", f"flow, tolerance {LOOSE:g}", "Euler in R^d")
    for name, cost, error in zip(names, costs, errors, strict=True):
        print(
            f"{name:22} {cost * 1e3:6.2f} ms per realisation and beta, error of V {error:.1e}, "
            f"{costs[-1] / cost:.0f} times as fast as Euler"
        )


def by_dimension() -> None:
    """Time the flow in several dimensions."""

    def one(dimension: int) -> float:
        def run() -> None:
            flow(uniform_start(TOKENS, dimension, SAMPLES), TOLERANCE)

        return seconds(partial(run))

    rounds = [[one(dimension) for dimension in DIMENSIONS] for _ in range(ROUNDS)]
    costs = [statistics.median(column) / SAMPLES for column in zip(*rounds, strict=True)]
    for dimension, cost in zip(DIMENSIONS, costs, strict=True):
        print(f"d = {dimension:>9,}: {cost * 1e3:.1f} ms, {cost / costs[0]:.2f} of that at d = 32")


def against_scipy() -> None:
    """Print evaluations of the field, and errors, at beta = 4 and t = 10."""
    attention, start, end = SphereAttention(4.0), uniform_start(8, 8, 32), 10.0

    def last(tolerance: float) -> tuple[np.ndarray, float]:
        asked = 0

        def field(x: torch.Tensor, t: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
            nonlocal asked
            asked += len(x)
            return attention.moved(x, t, which)

        found = integrate_flow(field, start, [end], lambda x: x @ x.mT, tolerance)[0]
        return found, asked / len(start)

    exact, _ = last(1e-11)

    def of_scipy(method: str, tolerance: float) -> tuple[float, float]:
        counts, errors = [], []
        for tokens, known in zip(start, exact, strict=True):

            def field(_t: float, flat: np.ndarray, shape: torch.Size = tokens.shape) -> np.ndarray:
                return attention.field(torch.from_numpy(flat).view(shape)).numpy().ravel()

            solved = solve_ivp(
                field, (0.0, end), tokens.numpy().ravel(), method=method,
                rtol=tolerance, atol=tolerance,
            )  # fmt: skip
            x = solved.y[:, -1].reshape(tokens.shape)
            counts.append(solved.nfev)
            errors.append(np.abs(x @ x.T - known).max())
        return statistics.mean(counts), max(errors)

    for tolerance in (1e-3, 1e-5, 1e-7):
        found, asked = last(tolerance)
        words = [f"ours {asked:5.0f} ({np.abs(found - exact).max():.0e})"]
        for method in ("RK23", "RK45", "DOP853"):
            count, error = of_scipy(method, tolerance)
            words.append(f"{method} {count:5.0f} ({error:.0e})")
        print(f"tolerance {tolerance:.0e}: evaluations (error)  " + ",  ".join(words))


def main() -> None:
    """Measure, and print all three comparisons."""
    against_euler()
    by_dimension()
    against_scipy()


if __name__ == "__main__":
    main()
