"""Errors near explosions: the clock and the laws."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BOUNDS = "shaped_attention/theory/explosion/bounds.py"
_CLOCK_STEP = "shaped_attention/samplers/clock_step.py"
_EXPLOSIONS = "shaped_attention/statistics/explosion_estimate.py"

EXPLOSION = [
    Mutant(
        "clock-linear-mean-m-for-m-plus-1",
        _CLOCK_STEP,
        "mean = ((root.shape[-1] + 1) / 8.0 * parts.rate)",
        "mean = (root.shape[-1] / 8.0 * parts.rate)",
        ("test_clock.py::test_a_single_token_keeps_its_law",),
    ),
    Mutant(
        "clock-cubic-noise-sign",
        _CLOCK_STEP,
        "odd = (5.0 / 6.0) * first + (1.0 / 12.0) * (ahead + behind)",
        "odd = (7.0 / 6.0) * first - (1.0 / 12.0) * (ahead + behind)",
        ("test_clock.py::test_noise_of_a_step_has_the_moments_of_the_second_order[0.0]",),
    ),
    Mutant(
        "explosion-likelihood-log-f-once",
        _EXPLOSIONS,
        "- 2.0 * log_f.sum()",
        "- log_f.sum()",
        (
            "test_clock.py::test_explosions_differ_from_paths_that_only_reach_the_radius"
            "[0.6-0.5-0.75-live]",
        ),
    ),
    Mutant(
        "trace-bound-without-tokens",
        _BOUNDS,
        "rate = math.sqrt(m * beta / (2.0 * law.k))",
        "rate = math.sqrt(beta / (2.0 * law.k))",
        ("test_explosion_bounds.py::test_bound_for_any_number_of_tokens[False-2]",),
    ),
    Mutant(
        "clock-barrier-shift-halved",
        "shaped_attention/samplers/steppers/__init__.py",
        "SHIFT = 0.5826",
        "SHIFT = 0.2913",
        ("test_clock_step.py::test_the_barrier_is_moved_by_what_a_path_passes_between_steps",),
    ),
    Mutant(
        "clock-drift-of-first-order",
        _CLOCK_STEP,
        "new = new + (0.5 * (drift + parts.drift(new + drift * step))) * step",
        "new = new + drift * step",
        ("test_clock_step.py::test_a_step_has_the_moments_of_the_law_to_the_second_order",),
    ),
    Mutant(
        "clock-growth-of-each-layer-of-a-pattern",
        _CLOCK_STEP,
        "half = (0.5 * parts.share) * step",
        "half = 0.5 * step",
        ("test_clock_step.py::test_layers_of_a_pattern_share_the_time[layer0]",),
    ),
]
