"""Errors in self-attention on the sphere."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SPHERE_BRIDGE = "shaped_attention/sphere/layers.py"
_SPHERE_CLUSTERS = "shaped_attention/sphere/clusters.py"
_SPHERE_DYNAMICS = "shaped_attention/sphere/attention.py"
_SPHERE_EQUIANGULAR = "shaped_attention/sphere/equiangular.py"
_SPHERE_INTEGRATE = "shaped_attention/sphere/integrate.py"
_SPHERE_LAYERS = "shaped_attention/sphere/layers.py"
_SPHERE_MEAN_FIELD = "shaped_attention/sphere/mean_field.py"
_SPHERE_RANDOM_VALUES = "shaped_attention/sphere/random_values.py"
_SPHERE_TOKEN_ATTENTION = "shaped_attention/sphere/token_attention.py"
_SPHERE_TWO_TOKENS = "shaped_attention/sphere/two_tokens.py"


SPHERE = [
    Mutant(
        "sphere-usa-divides-by-others",
        _SPHERE_DYNAMICS,
        "return torch.exp(logits) / count",
        "return torch.exp(logits) / (count - 1)",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[2-USA]",),
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
    ),
    Mutant(
        "sphere-integrator-weights",
        _SPHERE_INTEGRATE,
        "(2.0 * first + 3.0 * second + 4.0 * third) / 9.0",
        "(3.0 * first + 3.0 * second + 3.0 * third) / 9.0",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[2-SA]",),
    ),
    Mutant(
        "theory-closing-rate-counts-all",
        _SPHERE_EQUIANGULAR,
        "1.0 / (np.exp(beta * left) + tokens - 1)",
        "1.0 / (np.exp(beta * left) + tokens)",
        ("test_sphere.py::test_meeting_times_are_those_of_the_curve",),
    ),
    Mutant(
        "clusters-order-not-rooted",
        _SPHERE_CLUSTERS,
        ".clamp(min=0.0).sqrt() / gram.shape[-1]",
        ".clamp(min=0.0) / gram.shape[-1] ** 2",
        ("test_sphere_clusters.py::test_measures_are_those_of_the_tokens",),
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
    ),
    Mutant(
        "layers-time-of-next-layer",
        _SPHERE_LAYERS,
        "(len(tokens),), layer * step)",
        "(len(tokens),), (layer + 1) * step)",
        ("test_sphere_layers.py::test_layers_take_the_matrices_of_their_time",),
    ),
    Mutant(
        "bridge-wishart-dof",
        _SPHERE_BRIDGE,
        "draws.wishart_factor(columns, dimension - columns)",
        "draws.wishart_factor(columns, dimension)",
        ("test_sphere_noisy_layers.py::test_chain_and_network_have_the_same_law[4-8]",),
    ),
    Mutant(
        "bridge-drift-at-order-one-over-d",
        _SPHERE_RANDOM_VALUES,
        "(1.0 - (2.0 - gram * gram) / dimension)",
        "(1.0 - (1.0 - gram * gram) / dimension)",
        ("test_sphere_noisy_layers.py::test_the_drift_is_the_mean_of_one_small_step[3]",),
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
        "(dimension - 2) / np.cosh",
        "(dimension - 1) / np.cosh",
        ("test_sphere_random_values.py::test_in_two_dimensions_the_angle_decides",),
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
        "random-values-bracket-sign",
        _SPHERE_RANDOM_VALUES,
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
]
