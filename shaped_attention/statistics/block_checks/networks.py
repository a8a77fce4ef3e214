"""Networks of real weights against the chain."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from scipy import stats

from shaped_attention.numerics.observables import observables
from shaped_attention.samplers.chain import simulate_chain
from shaped_attention.samplers.network import simulate_network
from shaped_attention.statistics.block_checks.report import Check, Trial, judged, untested

_LEVEL = 1e-3
"""Probability that a correct block fails a statistical check."""


def networks(trial: Trial) -> Iterator[Check]:
    """Networks against the chain, after one layer and after four, by Kolmogorov and Smirnov."""
    name = "branch against chain"
    if reason := trial.block.no_chain:
        yield untested(name, f"there is no chain: {reason}")
        return
    options: dict[str, Any] = {
        "width": trial.width, "depth": 4, "seed": trial.seed, "save_every": 1, "progress": False,
    }  # fmt: skip
    network, chain = (
        run(trial.block, trial.v0, samples=count * trial.samples, **options)["V"].to_numpy()
        for run, count in ((simulate_network, 1), (simulate_chain, 10))
    )
    pairs = {f"layer {i}": (observables(network[i]), observables(chain[i])) for i in (1, 4)}
    values = [
        # Rounding errors differ where a law has atoms.
        (float(stats.ks_2samp(a[key].round(9), b[key].round(9)).pvalue), f"{key}, {word}")
        for word, (a, b) in pairs.items()
        for key in a
    ]
    p, where = min(values)
    n, m = network.shape[1], chain.shape[1]
    apart = math.sqrt(0.5 * math.log(2.0 * len(values) / _LEVEL) / (n * m / (n + m)))
    corrected = min(1.0, p * len(values))
    yield judged(
        name, corrected > _LEVEL,
        f"smallest p-value times the number of tests ({len(values)}): {corrected:.2g} ({where})",
        f"a distance of {apart:.2g} between distribution functions, in half of all cases",
    )  # fmt: skip
