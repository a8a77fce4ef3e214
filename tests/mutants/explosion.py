"""Errors near explosions: the clock, the laws, and rare events."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION_LIMIT = "shaped_attention/blocks/attention_limit.py"
_ATTENTION_MOMENTS = "shaped_attention/blocks/score_moments.py"
_BOUNDS = "shaped_attention/theory/explosion/bounds.py"
_CLOCK_STEP = "shaped_attention/samplers/clock_step.py"
_CLOCK_TILES = "shaped_attention/numerics/clock_tiles.py"
_CORRELATION = "shaped_attention/theory/explosion/correlation.py"
_EXACT_LAWS = "tests/exact_laws.py"
_EXPLOSIONS = "shaped_attention/statistics/explosion_estimate.py"
_PATHS = "shaped_attention/samplers/paths.py"
_RARE_RUNS = "shaped_attention/statistics/rare_event_runs.py"
_REACTION = "shaped_attention/statistics/reaction.py"
_SPLITTING = "shaped_attention/statistics/splitting.py"

EXPLOSION = [
    Mutant(
        "clock-linear-mean-m-for-m-plus-1",
        _CLOCK_STEP,
        "mean = ((root.shape[-1] + 1) / 8.0 * parts.rate)",
        "mean = (root.shape[-1] / 8.0 * parts.rate)",
        ("test_clock.py::test_a_single_token_keeps_its_law",),
        blind=True,
    ),
    Mutant(
        "clock-cubic-noise-sign",
        _CLOCK_STEP,
        "odd = (5.0 / 6.0) * first + (1.0 / 12.0) * (ahead + behind)",
        "odd = (7.0 / 6.0) * first - (1.0 / 12.0) * (ahead + behind)",
        ("test_clock.py::test_noise_of_a_step_has_the_moments_of_the_second_order[0.0]",),
        blind=True,
    ),
    Mutant(
        "clock-norm-spread-half-the-linear-noise",
        _CLOCK_STEP,
        "along = (2.0 * parts.rate) * column_sums",
        "along = parts.rate * column_sums",
        ("test_clock.py::test_spread_of_the_norm_is_that_of_the_diffusion[full]",),
        blind=True,
    ),
    Mutant(
        "attention-noise-drift-square-once",
        _ATTENTION_LIMIT,
        "(factor @ (2.0 * (inner @ inner) + trace * inner))",
        "(factor @ (inner @ inner + trace * inner))",
        ("test_clock.py::test_second_order_of_the_noise_is_that_of_its_derivatives[full]",),
        blind=True,
    ),
    Mutant(
        "attention-noise-drift-diagonal-index",
        _ATTENTION_MOMENTS,
        "asked * (parity * diagonal(key_mean).mT)) @ w",
        "asked * (parity * diagonal(key_mean))) @ w",
        ("test_clock.py::test_second_order_of_the_noise_is_that_of_its_derivatives[causal]",),
        blind=True,
    ),
    Mutant(
        "attention-noise-along-not-centred",
        _ATTENTION_MOMENTS,
        "scores = weighted - w * row_sums(weighted)",
        "scores = weighted",
        ("test_clock.py::test_noise_along_a_direction_is_the_variance_of_that_entry[causal]",),
        blind=True,
    ),
    Mutant(
        "clock-tiles-barrier-moved-outwards",
        _CLOCK_TILES,
        "radius * math.exp(-shift * deviation)",
        "radius * math.exp(shift * deviation)",
        ("test_clock.py::test_executors_follow_the_same_paths[full]",),
        blind=True,
    ),
    Mutant(
        "clock-process-shift-of-a-whole-step",
        _PATHS,
        "np.sqrt(spread * lengths)",
        "np.sqrt(spread * self.task.dt)",
        ("test_clock.py::test_executors_follow_the_same_paths[full]",),
        blind=True,
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
        blind=True,
    ),
    Mutant(
        "splitting-branches-at-the-level-itself",
        _SPLITTING,
        "np.argmax(self.scores[:, parents] > level, axis=0)",
        "np.argmax(self.scores[:, parents] >= level, axis=0)",
        ("test_rare_events.py::test_the_mean_of_many_small_runs_is_the_probability[ties-ever]",),
        blind=True,
    ),
    Mutant(
        "branches-reuse-the-numbers-of-the-first-paths",
        _PATHS,
        "first=first,",
        "first=0,",
        (
            "test_rare_event_branches.py::test_a_path_that_begins_late_has_the_increments_of_its_number_from_there"
            "[False]",
        ),
        blind=True,
    ),
    Mutant(
        "reaction-noise-scale-gamma-squared",
        _REACTION,
        "delta += p.gamma**4 / (4.0 * p.tau0**2 * block.heads)",
        "delta += p.gamma**2 / (4.0 * p.tau0**2 * block.heads)",
        ("test_rare_events.py::test_attention_is_half_of_the_noise_at_its_scale",),
        blind=True,
    ),
    Mutant(
        "rare-event-shift-of-half-the-variance",
        _REACTION,
        "math.sqrt(rate * step / (1.0",
        "math.sqrt(0.5 * rate * step / (1.0",
        ("test_rare_event_clock.py::test_deviation_of_a_step_is_that_of_the_law[0.1]",),
        blind=True,
    ),
    Mutant(
        "inverse-square-two-delta",
        _EXACT_LAWS,
        "(3.0 * law.delta - 2.0 * law.alpha) * growth",
        "(2.0 * law.delta - 2.0 * law.alpha) * growth",
        ("test_explosion_solvers.py::test_marginal_law_of_u",),
        blind=True,
    ),
    Mutant(
        "trace-bound-without-tokens",
        _BOUNDS,
        "rate = math.sqrt(m * beta / (2.0 * law.k))",
        "rate = math.sqrt(beta / (2.0 * law.k))",
        ("test_explosion_bounds.py::test_bound_for_any_number_of_tokens[False-2]",),
        blind=True,
    ),
    Mutant(
        "correlation-half-delta-in-the-determinant",
        _CORRELATION,
        "(law.alpha - 0.25 * law.delta) * squares",
        "(law.alpha - 0.5 * law.delta) * squares",
        ("test_correlation_law.py::test_final_values_have_the_law_of_the_determinant",),
        blind=True,
    ),
    Mutant(
        "clock-barrier-shift-halved",
        "shaped_attention/samplers/steppers/__init__.py",
        "SHIFT = 0.5826",
        "SHIFT = 0.2913",
        ("test_clock_step.py::test_the_barrier_is_moved_by_what_a_path_passes_between_steps",),
        blind=True,
    ),
    Mutant(
        "clock-drift-of-first-order",
        _CLOCK_STEP,
        "new = new + (0.5 * (drift + parts.drift(new + drift * step))) * step",
        "new = new + drift * step",
        ("test_clock_step.py::test_a_step_has_the_moments_of_the_law_to_the_second_order",),
        blind=True,
    ),
    Mutant(
        "clock-noise-not-moved-by-the-drift",
        _CLOCK_STEP,
        "Dual(root, (moved,))",
        "Dual(root, (noise,))",
        ("test_clock.py::test_noise_of_a_step_has_the_moments_of_the_second_order[2.0]",),
        blind=True,
    ),
    Mutant(
        "clock-growth-of-each-layer-of-a-pattern",
        _CLOCK_STEP,
        "half = (0.5 * parts.share) * step",
        "half = 0.5 * step",
        ("test_clock_step.py::test_layers_of_a_pattern_share_the_time[layer0]",),
        blind=True,
    ),
    Mutant(
        "clock-stopped-factor-at-all-stored-times",
        _PATHS,
        "ended = ~self._living() & (point * self.task.dt >= self._times())",
        "ended = ~self._living()",
        ("test_clock.py::test_stored_values_of_stopped_paths_are_those_where_they_stopped",),
        blind=True,
    ),
    Mutant(
        "clock-branches-from-the-grid-point-before",
        _PATHS,
        "left=whole(left, self.task.dt)",
        "left=whole(None, self.task.dt)",
        (
            "test_rare_event_clock.py::test_a_path_that_begins_late_has_the_increments_of_its_number_from_there",
        ),
        blind=True,
    ),
    Mutant(
        "plain-paths-of-all-blocks-with-one-seed",
        _RARE_RUNS,
        '{"study": "plain paths", "start": start}',
        '{"study": "plain paths"}',
        ("test_rare_event_runs.py::test_plain_paths_of_all_blocks_are_different",),
        blind=True,
    ),
    Mutant(
        "pilot-deviation-over-the-median-itself",
        _RARE_RUNS,
        "math.sqrt(float(np.median(np.concatenate(squares))) / _MEDIAN)",
        "math.sqrt(float(np.median(np.concatenate(squares)))) / _MEDIAN",
        ("test_rare_event_clock.py::test_deviation_of_pilot_steps_is_that_of_the_law",),
        blind=True,
    ),
    Mutant(
        "rare-event-runs-numbered-as-they-finished",
        _RARE_RUNS,
        'for record in records[1:]:\n        number = record.pop("run")',
        'for number, record in enumerate(records[1:]):\n        record.pop("run")',
        ("test_rare_event_runs.py::test_runs_in_a_file_are_known_by_their_numbers",),
        blind=True,
    ),
]
