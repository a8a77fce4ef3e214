"""Errors in the statistics: distances, rates, levels, scores."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMPARE = "shaped_attention/statistics/compare.py"
_DENSITY = "shaped_attention/statistics/density.py"
_DISTANCES = "shaped_attention/statistics/distances.py"
_OBSERVABLES = "shaped_attention/numerics/observables.py"
_RATES = "shaped_attention/statistics/rates.py"
_SCORES = "shaped_attention/torch_models/scores.py"

ESTIMATES = [
    Mutant(
        "compare-no-bonferroni",
        _COMPARE,
        "level = (1 - confidence) / max(1, tests)",
        "level = 1 - confidence",
        ("test_compare.py::test_resolution_pays_for_the_number_of_observables",),
    ),
    Mutant(
        "density-boundary-tilted-outwards",
        _DENSITY,
        "(a2[k] - a1[k] * u)",
        "(a2[k] + a1[k] * u)",
        ("test_density.py::test_the_correction_removes_the_bias_at_the_boundary",),
    ),
    Mutant(
        "density-band-of-one-side",
        _DENSITY,
        "ndtri(0.5 + 0.5 * confidence)",
        "ndtri(confidence)",
        (
            "test_density.py::test_bands_of_the_kernel_estimate_cover_a_flat_density_up_to_the_boundary",
        ),
    ),
    Mutant(
        "distances-margin-one-sided",
        _DISTANCES,
        "log = math.log(4.0 / (1.0 - confidence))",
        "log = math.log(2.0 / (1.0 - confidence))",
        ("test_distances.py::test_margin_is_the_massart_constant",),
    ),
    Mutant(
        "observables-mean-rho-over-all",
        _OBSERVABLES,
        "/ (m * (m - 1))",
        "/ (m * m)",
        ("test_observables.py::test_known_values_of_an_equicorrelated_matrix",),
    ),
    Mutant(
        "rates-error-of-amplitude",
        _RATES,
        "covariance[1, 1]",
        "covariance[0, 0]",
        ("test_rates.py::test_the_error_of_a_rate_is_its_own",),
    ),
    Mutant(
        "scores-spectrum-coefficient",
        _SCORES,
        "ratio * (2 + ratio)",
        "ratio * (1 + 2 * ratio)",
        ("test_scores.py::test_the_spectrum_has_its_moments[0.25]",),
    ),
    Mutant(
        "diffusion-of-a-pattern-without-its-share",
        "shaped_attention/theory/moments.py",
        "sum(share * part.diffusion for share, part in shares)",
        "sum(part.diffusion for share, part in shares)",
        ("test_starts.py::test_the_limit_of_a_pattern_is_the_mean_of_its_limits",),
    ),
]
