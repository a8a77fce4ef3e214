"""Errors in self-attention on the sphere."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SPHERE_BRIDGE = "shaped_attention/sphere/layers.py"
_SPHERE_CIRCLE_DISTANCE = "shaped_attention/sphere/circle.py"
_SPHERE_CLUSTERS = "shaped_attention/sphere/clusters.py"
_SPHERE_DYNAMICS = "shaped_attention/sphere/attention.py"
_SPHERE_ENCODER_DECODER = "shaped_attention/sphere/figures/encoder_decoder.py"
_SPHERE_EQUIANGULAR = "shaped_attention/sphere/equiangular.py"
_SPHERE_ENSEMBLES = "shaped_attention/sphere/token_attention.py"
_SPHERE_INTEGRATE = "shaped_attention/sphere/integrate.py"
_SPHERE_LAYERS = "shaped_attention/sphere/layers.py"
_SPHERE_MEAN_FIELD = "shaped_attention/sphere/mean_field.py"
_SPHERE_MIXTURE = "shaped_attention/sphere/figures/mixture.py"
_SPHERE_NORMALISATION = "shaped_attention/sphere/normalisation.py"
_SPHERE_NOISE = "shaped_attention/sphere/figures/noise.py"
_SPHERE_PHASE = "shaped_attention/sphere/figures/phase.py"
_SPHERE_RANDOM_WEIGHTS = "shaped_attention/sphere/random_weights.py"
_SPHERE_SINKHORN = "shaped_attention/sphere/sinkhorn.py"
_SPHERE_THEORY = "shaped_attention/sphere/theory.py"
_SPHERE_TOKEN_ATTENTION = "shaped_attention/sphere/token_attention.py"
_SPHERE_TWO_TOKENS = "shaped_attention/sphere/two_tokens.py"


SPHERE = [
    Mutant(
        "sphere-usa-divides-by-others",
        _SPHERE_DYNAMICS,
        "return torch.exp(logits) / count",
        "return torch.exp(logits) / (count - 1)",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[2-USA]",),
        blind=True,
    ),
    Mutant(
        "sphere-energy-without-half",
        _SPHERE_DYNAMICS,
        "(2.0 * self.beta * count**2)",
        "(self.beta * count**2)",
        (
            "test_sphere.py::test_the_energy_never_decreases_and_has_the_derivative_of_the_identity"
            "[True]",
        ),
        blind=True,
    ),
    Mutant(
        "sphere-integrator-weights",
        _SPHERE_INTEGRATE,
        "(2.0 * first + 3.0 * second + 4.0 * third) / 9.0",
        "(3.0 * first + 3.0 * second + 3.0 * third) / 9.0",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[2-SA]",),
        blind=True,
    ),
    Mutant(
        "theory-closing-rate-counts-all",
        _SPHERE_EQUIANGULAR,
        "1.0 / (own + tokens - 1)",
        "1.0 / (own + tokens)",
        ("test_sphere.py::test_meeting_times_are_those_of_the_curve",),
        blind=True,
    ),
    Mutant(
        "sphere-peri-without-length-of-attention",
        _SPHERE_NORMALISATION,
        '"sandwich": Places(True, True, 0.0)',
        '"sandwich": Places(True, False, 0.0)',
        (
            "test_sphere_normalisation.py::"
            "test_equiangular_tokens_follow_the_equation_of_their_scheme[True]",
        ),
    ),
    Mutant(
        "theory-lengths-grow-before-mix-ln-switches",
        _SPHERE_EQUIANGULAR,
        "args=(first == places.until,)",
        "args=(True,)",
        ("test_sphere_normalisation.py::test_mix_ln_switches_at_its_time",),
    ),
    Mutant(
        "theory-uniform-energy-argument",
        _SPHERE_THEORY,
        "0.25 * beta * beta",
        "0.5 * beta * beta",
        ("test_sphere_clusters.py::test_energy_of_the_uniform_law[2]",),
        blind=True,
    ),
    Mutant(
        "clusters-order-not-rooted",
        _SPHERE_CLUSTERS,
        ".clamp(min=0.0).sqrt() / gram.shape[-1]",
        ".clamp(min=0.0) / gram.shape[-1] ** 2",
        ("test_sphere_clusters.py::test_measures_are_those_of_the_tokens",),
        blind=True,
    ),
    Mutant(
        "mean-field-energy-without-half",
        _SPHERE_MEAN_FIELD,
        "circulant(0.5 * width**2 * energy)",
        "circulant(width**2 * energy)",
        (
            "test_sphere_mean_field.py::test_at_beta_zero_poisson_kernels_stay_so_and_errors_fall_with_the_square_of_a_cell"
            "[True]",
        ),
        blind=True,
    ),
    Mutant(
        "mean-field-second-stage",
        _SPHERE_MEAN_FIELD,
        "second = 0.75 * density + 0.25 * (first",
        "second = 0.5 * density + 0.5 * (first",
        (
            "test_sphere_mean_field.py::test_at_beta_zero_poisson_kernels_stay_so_and_errors_fall_with_the_square_of_a_cell"
            "[True]",
        ),
        blind=True,
    ),
    Mutant(
        "noise-bands",
        _SPHERE_NOISE,
        "_BAND = (0.1, 0.9)",
        "_BAND = (0.05, 0.95)",
        ("test_sphere_noisy_layers.py::test_the_bands_of_the_figure_hold_eight_samples_in_ten",),
        blind=True,
    ),
    Mutant(
        "ensembles-wigner-variance",
        _SPHERE_ENSEMBLES,
        "(square + square.mT) / 2.0**0.5",
        "(square + square.mT) / 2.0",
        ("test_sphere_phase.py::test_wigner_matrices_have_the_semicircle_law",),
        blind=True,
    ),
    Mutant(
        "circle-distance-variance-in-cell",
        _SPHERE_CIRCLE_DISTANCE,
        "(width * share) ** 2 / 12.0",
        "(width * share) ** 2 / 3.0",
        (
            "test_sphere_mean_field.py::test_the_distance_to_a_density_is_the_limit_of_that_to_its_quantiles",
        ),
        blind=True,
    ),
    Mutant(
        "circle-distance-no-turn",
        _SPHERE_CIRCLE_DISTANCE,
        "np.take_along_axis(x, within, axis=1) + _TURN * turns",
        "np.take_along_axis(x, within, axis=1) + 0.5 * _TURN * turns",
        ("test_sphere_mean_field.py::test_distances_are_those_of_the_assignment_problem[1-1]",),
        blind=True,
    ),
    Mutant(
        "token-flow-forms-transposed",
        _SPHERE_TOKEN_ATTENTION,
        "forms = key.mT @ query, None",
        "forms = query.mT @ key, None",
        (
            "test_sphere_tokens.py::test_heads_and_mlp_are_those_written_out_token_by_token"
            "[True-True]",
        ),
        blind=True,
    ),
    Mutant(
        "token-flow-mean-of-heads",
        _SPHERE_TOKEN_ATTENTION,
        "moved = moved.sum(1)",
        "moved = moved.mean(1)",
        (
            "test_sphere_tokens.py::test_heads_and_mlp_are_those_written_out_token_by_token"
            "[True-True]",
        ),
        blind=True,
    ),
    Mutant(
        "layers-time-of-next-layer",
        _SPHERE_LAYERS,
        "(len(tokens),), layer * step)",
        "(len(tokens),), (layer + 1) * step)",
        ("test_sphere_layers.py::test_layers_take_the_matrices_of_their_time",),
        blind=True,
    ),
    Mutant(
        "bridge-wishart-dof",
        _SPHERE_BRIDGE,
        "draws.wishart_factor(root.shape[-1], dimension - columns)",
        "draws.wishart_factor(root.shape[-1], dimension)",
        ("test_sphere_noisy_layers.py::test_chain_and_network_have_the_same_law[4-8]",),
        blind=True,
    ),
    Mutant(
        "bridge-drift-at-order-one-over-d",
        _SPHERE_RANDOM_WEIGHTS,
        "(1.0 - (2.0 - gram * gram) / dimension)",
        "(1.0 - (1.0 - gram * gram) / dimension)",
        ("test_sphere_noisy_layers.py::test_the_drift_is_the_mean_of_one_small_step[3]",),
        blind=True,
    ),
    Mutant(
        "random-values-centred-keeps-mean",
        _SPHERE_BRIDGE,
        "moved = tokens if centred else tokens + step * mixed\n        if sigma == 0.0",
        "moved = tokens + step * mixed\n        if sigma == 0.0",
        (
            "test_sphere_random_values.py::test_the_sde_has_the_law_of_networks_and_of_the_chain"
            "[64-1000]",
        ),
    ),
    Mutant(
        "two-tokens-dimension-less-one",
        _SPHERE_TWO_TOKENS,
        "(dimension - 2) * towards",
        "(dimension - 1) * towards",
        ("test_sphere_random_values.py::test_in_two_dimensions_the_angle_decides",),
    ),
    Mutant(
        "random-heads-averaged",
        _SPHERE_RANDOM_WEIGHTS,
        "torch.cat(parts, dim=-1) / math.sqrt(self.heads)",
        "torch.cat(parts, dim=-1) / self.heads",
        ("test_sphere_random_weights.py::test_the_root_of_heads_is_that_of_their_mean[2]",),
    ),
    Mutant(
        "random-mlp-kernel-of-the-first-coefficients",
        "shaped_attention/blocks/activations.py",
        "(x * here - math.sqrt(n) * before) / math.sqrt(n + 1.0)",
        "(x * here - n * before) / math.sqrt(n + 1.0)",
        ("test_sphere_random_mlp.py::test_kernels_are_integrals_in_the_plane[gelu]",),
    ),
    Mutant(
        "sphere-interpolation-slopes-swapped",
        _SPHERE_INTEGRATE,
        "(b * first - a * last)",
        "(a * first - b * last)",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[2-SA]",),
    ),
    Mutant(
        "clusters-one-squaring-less",
        _SPHERE_CLUSTERS,
        "range(math.ceil(math.log2(gram.shape[-1])))",
        "range(math.ceil(math.log2(gram.shape[-1])) - 1)",
        ("test_sphere_clusters.py::test_the_ends_of_a_path_are_joined_when_they_come_first[4]",),
    ),
    Mutant(
        "mean-field-order-of-centres",
        _SPHERE_MEAN_FIELD,
        "2.0 * math.sin(0.5 * self.width) *",
        "self.width *",
        ("test_sphere_mean_field.py::test_the_order_is_that_of_constant_cells",),
    ),
    Mutant(
        "noise-network-error-without-root",
        _SPHERE_NOISE,
        "values.std(1, ddof=1) / network_samples**0.5",
        "values.std(1, ddof=1)",
        ("test_sphere_noisy_layers.py::test_the_standard_error_of_networks_is_that_of_their_mean",),
    ),
    Mutant(
        "noise-shaped-clock-gamma",
        _SPHERE_NOISE,
        '_bands("shaped_", gamma**2 * result["time"]',
        '_bands("shaped_", gamma * result["time"]',
        (
            "test_sphere_noisy_layers.py::test_the_clock_of_the_shaped_chain_is_the_variance_of_its_noise"
            "[0.5]",
        ),
    ),
    Mutant(
        "ensembles-chunks-share-matrices",
        _SPHERE_PHASE,
        "first=first, normalised=normalised",
        "first=0, normalised=normalised",
        (
            "test_sphere_phase.py::test_each_realisation_of_a_phase_has_matrices_of_its_own"
            "[ginibre]",
        ),
    ),
    Mutant(
        "phase-curve-of-sa",
        _SPHERE_PHASE,
        "beta, 0.0, normalised) for beta",
        "beta, 0.0) for beta",
        ("test_sphere_phase.py::test_the_curve_of_a_phase_diagram_is_that_of_its_attention",),
    ),
    Mutant(
        "layers-repulsion-attracts",
        _SPHERE_DYNAMICS,
        "return -moved if self.repulsion else moved",
        "return moved",
        (
            "test_sphere_layers.py::test_networks_converge_to_their_flows_at_rate_one"
            "[repulsion-after]",
        ),
    ),
    Mutant(
        "token-flow-sum-of-composed-heads",
        _SPHERE_TOKEN_ATTENTION,
        "self._through_mlp(moved).mean(1)",
        "self._through_mlp(moved).sum(1)",
        ("test_sphere_tokens.py::test_a_composed_mlp_is_that_of_each_head_written_out",),
    ),
    Mutant(
        "sinkhorn-energy-without-tokens",
        _SPHERE_DYNAMICS,
        "torch.special.xlogy(plan, count * plan)",
        "torch.special.xlogy(plan, plan)",
        ("test_sphere_sinkhorn.py::test_where_all_rows_have_one_sum_it_is_softmax_attention[3.0]",),
    ),
    Mutant(
        "sinkhorn-rows-for-columns",
        _SPHERE_SINKHORN,
        "(kernel.mT @ left)",
        "(kernel @ left)",
        (
            "test_sphere_sinkhorn.py::test_general_queries_and_keys_have_the_limit_of_sinkhorns_iterations",
        ),
        blind=True,
    ),
    Mutant(
        "composed-mlp-without-bias",
        _SPHERE_TOKEN_ATTENTION,
        "self.inner.to(tokens).mT + bias)",
        "self.inner.to(tokens).mT)",
        ("test_sphere_tokens.py::test_a_composed_mlp_is_that_of_each_head_written_out",),
        blind=True,
    ),
    Mutant(
        "random-values-bracket-sign",
        _SPHERE_RANDOM_WEIGHTS,
        "+ first * both * second",
        "- first * both * second",
        (
            "test_sphere_random_values.py::test_drift_and_bracket_are_those_of_one_explicit_layer[3]",
        ),
    ),
    Mutant(
        "two-tokens-tails-of-slope-one",
        _SPHERE_TWO_TOKENS,
        "tails = log_scale[[0, -1]] - np.log(np.abs(ends))",
        "tails = log_scale[[0, -1]]",
        (
            "test_sphere_random_values.py::test_with_repulsion_the_tilted_secant_is_integrated[30-0.9]",
        ),
    ),
    Mutant(
        "encoder-decoder-first-time-near",
        _SPHERE_ENCODER_DECODER,
        "len(at) - np.argmax(apart[::-1], axis=0)",
        "np.argmax(~apart, axis=0)",
        ("test_sphere_positions.py::test_joining_and_diffusion_by_position_are_those_written_out",),
    ),
    Mutant(
        "encoder-decoder-place-in-vech",
        _SPHERE_ENCODER_DECODER,
        "place * (place + 3) // 2",
        "place * (place + 1) // 2",
        ("test_sphere_positions.py::test_joining_and_diffusion_by_position_are_those_written_out",),
    ),
    Mutant(
        "mixture-half-a-turn",
        _SPHERE_MIXTURE,
        "ordered[..., :1] + 2.0 * math.pi",
        "ordered[..., :1] + math.pi",
        ("test_sphere_clusters.py::test_the_mixture_of_the_figure",),
    ),
]
