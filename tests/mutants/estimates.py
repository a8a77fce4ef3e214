"""Errors in the statistics: distances, rates, levels, stopping times, scores, sweeps."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMPARE = "shaped_attention/compare.py"
_CONVERGENCE = "shaped_attention/convergence.py"
_DISTANCES = "shaped_attention/distances.py"
_LEVELS = "shaped_attention/levels.py"
_MULTILEVEL = "shaped_attention/multilevel.py"
_OBSERVABLES = "shaped_attention/observables.py"
_RATES = "shaped_attention/rates.py"
_SCORES = "shaped_attention/scores.py"
_STOPPING = "shaped_attention/stopping.py"
_SWEEP_HISTOGRAMS = "shaped_attention/sweep/histograms.py"
_SWEEP_READING = "shaped_attention/sweep/reading.py"
_SWEEP_SCHEDULE = "shaped_attention/sweep/schedule.py"
_TRANSPORT = "shaped_attention/transport.py"

_COMPARE_TESTS = ("test_compare.py",)
_COUPLING_TESTS = ("test_coupling.py",)
_DISTANCES_TESTS = ("test_distances.py",)
_MULTILEVEL_TESTS = ("test_multilevel.py",)
_OBSERVABLES_TESTS = ("test_observables.py",)
_RATES_TESTS = ("test_rates.py",)
_SCORES_TESTS = ("test_scores.py",)
_STOPPING_TESTS = ("test_stopping.py",)
_SWEEP_TESTS = ("test_sweep.py",)
_SWEEP_READING_TESTS = ("test_sweep_reading.py",)
_TRANSPORT_TESTS = ("test_transport.py",)

ESTIMATES = [
    Mutant(
        "compare-frobenius-lengths",
        _COMPARE,
        "np.where(a == b, 1.0, math.sqrt(2.0))",
        "np.where(a == b, 1.0, 2.0)",
        _COMPARE_TESTS,
        blind=True,
    ),
    Mutant(
        "compare-no-bonferroni",
        _COMPARE,
        "simultaneous = 1 - (1 - confidence) / len(names)",
        "simultaneous = confidence",
        _COMPARE_TESTS,
        blind=True,
    ),
    Mutant(
        "distances-energy-without-two",
        _DISTANCES,
        "np.sqrt(2 * squares)",
        "np.sqrt(squares)",
        _DISTANCES_TESTS,
        blind=True,
    ),
    Mutant(
        "distances-margin-one-sided",
        _DISTANCES,
        "log = math.log(4.0 / (1.0 - confidence))",
        "log = math.log(2.0 / (1.0 - confidence))",
        _DISTANCES_TESTS,
        blind=True,
    ),
    Mutant(
        "transport-ranks-swapped",
        _TRANSPORT,
        "(levels - 1) // m, (levels - 1) // n",
        "(levels - 1) // n, (levels - 1) // m",
        _TRANSPORT_TESTS,
        blind=True,
    ),
    Mutant(
        "transport-centre-forgotten",
        _TRANSPORT,
        "- y[k][again[1]] - centre[k]) ** 2",
        "- y[k][again[1]]) ** 2",
        _TRANSPORT_TESTS,
        blind=True,
    ),
    Mutant(
        "observables-mean-rho-over-all",
        _OBSERVABLES,
        "/ (m * (m - 1))",
        "/ (m * m)",
        _OBSERVABLES_TESTS,
        blind=True,
    ),
    Mutant(
        "observables-rank-of-squares",
        _OBSERVABLES,
        "positive = np.maximum(eigenvalues, 0.0)",
        "positive = np.maximum(eigenvalues, 0.0) ** 2",
        _OBSERVABLES_TESTS,
        blind=True,
    ),
    Mutant(
        "convergence-dof-of-whole-width",
        _CONVERGENCE,
        "dof = width // groups - m",
        "dof = width - m",
        ("test_coupling.py::test_the_sde_of_a_pair_has_the_law_of_the_sde[heads]",),
        blind=True,
    ),
    Mutant(
        "convergence-extrapolation",
        _CONVERGENCE,
        "2 * weak[-1, :, 3] - weak[-2, :, 3]",
        "1.5 * weak[-1, :, 3] - 0.5 * weak[-2, :, 3]",
        ("test_coupling.py::test_the_extrapolated_value_is_the_limit",),
        blind=True,
    ),
    Mutant(
        "rates-error-of-amplitude",
        _RATES,
        "covariance[1, 1]",
        "covariance[0, 0]",
        _RATES_TESTS,
        blind=True,
    ),
    Mutant(
        "rates-noise-of-one-sample",
        _RATES,
        "noise = 0.5 * math.sqrt(2.0 / samples)",
        "noise = 0.5 * math.sqrt(1.0 / samples)",
        _RATES_TESTS,
        blind=True,
    ),
    Mutant(
        "multilevel-not-extrapolated",
        _MULTILEVEL,
        "float(columns[2].sum() + last.mean[0])",
        "float(columns[2].sum())",
        _MULTILEVEL_TESTS,
        blind=True,
    ),
    Mutant(
        "multilevel-allocation-without-weight",
        _MULTILEVEL,
        "np.arange(len(levels)) < len(levels) - 1, 1.0, 2.0)",
        "np.arange(len(levels)) < len(levels) - 1, 1.0, 1.0)",
        _MULTILEVEL_TESTS,
        blind=True,
    ),
    Mutant(
        "levels-coarse-increment-halved",
        _LEVELS,
        "advance(1, step // 2, half + increment)",
        "advance(1, step // 2, 2.0**0.5 * increment)",
        _MULTILEVEL_TESTS,
        blind=True,
    ),
    Mutant(
        "levels-merge-of-variances",
        _LEVELS,
        "apart**2 * (self.count * count / total)",
        "apart**2 * (count / total)",
        _MULTILEVEL_TESTS,
        blind=True,
    ),
    Mutant(
        "stopping-bounds-one-sided",
        _STOPPING,
        "tail = (1.0 - level) / 2.0",
        "tail = 1.0 - level",
        _STOPPING_TESTS,
        blind=True,
    ),
    Mutant(
        "stopping-exit-below-only",
        _STOPPING,
        "(eigenvalues[..., 0] < smallest) | (eigenvalues[..., -1] > largest)",
        "(eigenvalues[..., 0] < smallest) | (eigenvalues[..., 0] > largest)",
        _STOPPING_TESTS,
        blind=True,
    ),
    Mutant(
        "scores-error-of-one-rank-more",
        _SCORES,
        "np.linalg.norm(s[rank:])",
        "np.linalg.norm(s[rank + 1 :])",
        _SCORES_TESTS,
        blind=True,
    ),
    Mutant(
        "scores-spectrum-coefficient",
        _SCORES,
        "ratio * (2 + ratio)",
        "ratio * (1 + 2 * ratio)",
        _SCORES_TESTS,
        blind=True,
    ),
    Mutant(
        "sweep-variance-without-between",
        _SWEEP_SCHEDULE,
        "(q.sum(0) + between)",
        "q.sum(0)",
        _SWEEP_READING_TESTS,
        blind=True,
    ),
    Mutant(
        "sweep-interval-one-sided",
        _SWEEP_SCHEDULE,
        "norm.isf((1.0 - level) / 2.0)",
        "norm.isf(1.0 - level)",
        _SWEEP_READING_TESTS,
        blind=True,
    ),
    Mutant(
        "sweep-quantile-at-lower-edge",
        _SWEEP_HISTOGRAMS,
        "low + share * (high - low)",
        "low",
        _SWEEP_READING_TESTS,
        blind=True,
    ),
    Mutant(
        "sweep-histogram-shifted",
        _SWEEP_HISTOGRAMS,
        "padded[bin_], padded[bin_ + 1]",
        "padded[bin_ + 1], padded[bin_ + 1]",
        _SWEEP_READING_TESTS,
        blind=True,
    ),
    Mutant(
        "sweep-target-at-first-time",
        _SWEEP_SCHEDULE,
        "self._moments(unit)[-1, column]",
        "self._moments(unit)[0, column]",
        ("test_sweep.py", "test_sweep_reading.py"),
        blind=True,
    ),
    Mutant(
        "distances-quantile-rank-one-lower",
        _DISTANCES,
        "return rank - 1",
        "return rank - 2",
        ("test_distances.py", "test_transport.py"),
    ),
    Mutant(
        "convergence-gain-of-one-side",
        _CONVERGENCE,
        "independent = on_chain.var() + on_limit.var()",
        "independent = on_chain.var()",
        _COUPLING_TESTS,
    ),
    Mutant(
        "convergence-strong-error-of-one-path",
        _CONVERGENCE,
        "error = distance.std() / math.sqrt(samples)",
        "error = distance.std() / samples",
        _COUPLING_TESTS,
    ),
    Mutant(
        "multilevel-last-weight-not-in-the-error",
        _MULTILEVEL,
        "sum(level.error2 for level in levels) + 3.0 * levels[-1].error2",
        "sum(level.error2 for level in levels)",
        _MULTILEVEL_TESTS,
    ),
    Mutant(
        "multilevel-bias-by-twelve",
        _MULTILEVEL,
        "shrink = 3.0 * 4.0 **",
        "shrink = 12.0 * 4.0 **",
        _MULTILEVEL_TESTS,
    ),
    Mutant(
        "levels-cost-of-the-fine-path-alone",
        _LEVELS,
        "sum(grid.steps for grid in self.grids)",
        "self.grids[0].steps",
        _MULTILEVEL_TESTS,
    ),
    Mutant(
        "stopping-map-one-seed",
        _STOPPING,
        "own = seed + i * len(tau0s) + j",
        "own = seed",
        _STOPPING_TESTS,
    ),
    Mutant(
        "stopping-depth-rounded-down",
        _STOPPING,
        "math.ceil(width * horizon - 1e-9)",
        "math.floor(width * horizon + 1e-9)",
        _STOPPING_TESTS,
    ),
    Mutant(
        "sweep-distances-of-densities",
        _SWEEP_READING,
        '.sum("block").cumsum("bin")',
        '.sum("block")',
        _SWEEP_READING_TESTS,
    ),
    Mutant(
        "sweep-target-half-as-wide",
        _SWEEP_SCHEDULE,
        "bool(half <= target.half_width)",
        "bool(half <= 2.0 * target.half_width)",
        ("test_sweep.py", "test_sweep_reading.py"),
    ),
]
