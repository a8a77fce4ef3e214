"""Errors in self-attention on the sphere."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SPHERE_BRIDGE = "shaped_attention/sphere/layers.py"
_SPHERE_CLUSTERS = "shaped_attention/sphere/clusters.py"
_SPHERE_DYNAMICS = "shaped_attention/sphere/attention.py"
_SPHERE_EQUIANGULAR = "shaped_attention/sphere/theory.py"
_SPHERE_INTEGRATE = "shaped_attention/sphere/integrate.py"
_SPHERE_MEAN_FIELD = "shaped_attention/sphere/mean_field.py"
_SPHERE_RANDOM_VALUES = "shaped_attention/sphere/random_values.py"
_SPHERE_TOKEN_ATTENTION = "shaped_attention/sphere/token_attention.py"
_SPHERE_TWO_TOKENS = "shaped_attention/sphere/two_tokens.py"


SPHERE = [
    Mutant(
        "sphere-usa-divides-by-others",
        _SPHERE_DYNAMICS,
        "torch.exp(logits) / seen",
        "torch.exp(logits) / (seen - 1)",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[USA]",),
    ),
    Mutant(
        "sphere-integrator-weights",
        _SPHERE_INTEGRATE,
        "(2.0 * first + 3.0 * second + 4.0 * third) / 9.0",
        "(3.0 * first + 3.0 * second + 3.0 * third) / 9.0",
        ("test_sphere.py::test_gram_flow_is_the_token_flow[SA]",),
    ),
    Mutant(
        "theory-closing-rate-counts-all",
        _SPHERE_EQUIANGULAR,
        "1.0 / (np.exp(beta * left) + tokens - 1)",
        "1.0 / (np.exp(beta * left) + tokens)",
        ("test_sphere.py::test_meeting_times_are_those_of_the_curve",),
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
        "token-flow-mean-of-heads",
        _SPHERE_TOKEN_ATTENTION,
        "tokens, time, which)).sum(1)",
        "tokens, time, which)).mean(1)",
        (
            "test_sphere_tokens.py::test_heads_and_mlp_are_those_written_out_token_by_token"
            "[True-True]",
        ),
    ),
    Mutant(
        "bridge-wishart-dof",
        _SPHERE_BRIDGE,
        "draws.wishart_factor(columns, dimension - columns)",
        "draws.wishart_factor(columns, dimension)",
        ("test_sphere_random_values.py::test_chain_and_network_have_the_same_law[4-8]",),
    ),
    Mutant(
        "bridge-drift-at-order-one-over-d",
        _SPHERE_RANDOM_VALUES,
        "(1.0 - (2.0 - gram * gram) / dimension)",
        "(1.0 - (1.0 - gram * gram) / dimension)",
        (
            "test_sphere_random_values.py::test_drift_and_bracket_are_those_of_one_explicit_layer[3]",
        ),
    ),
    Mutant(
        "two-tokens-dimension-less-one",
        _SPHERE_TWO_TOKENS,
        "(dimension - 2) / np.cosh",
        "(dimension - 1) / np.cosh",
        ("test_sphere_two_tokens.py::test_in_two_dimensions_the_angle_decides",),
    ),
    Mutant(
        "clusters-one-squaring-less",
        _SPHERE_CLUSTERS,
        "range(math.ceil(math.log2(gram.shape[-1])))",
        "range(math.ceil(math.log2(gram.shape[-1])) - 1)",
        ("test_sphere_clusters.py::test_the_ends_of_a_path_are_joined_when_they_come_first[4]",),
    ),
    Mutant(
        "layers-repulsion-attracts",
        _SPHERE_DYNAMICS,
        "return -moved if self.repulsion else moved",
        "return moved",
        (
            "test_sphere_layers.py::test_networks_converge_to_their_flows_at_rate_one"
            "[after-repulsion]",
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
]
