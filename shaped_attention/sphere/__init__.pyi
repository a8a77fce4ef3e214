from .circle import angle_field, angles_of, tokens_of
from .circle_distance import (
    circle_distance_to_density,
    circle_wasserstein2,
)
from .clusters import (
    close_pairs,
    cluster_count,
    order_parameter,
    spectral_gap,
)
from .dynamics import SphereAttention
from .figures.clustering_with_noise import clustering_with_noise
from .figures.clusters_and_energy import energy_curves, metastability
from .figures.phase_diagram import phase_diagram
from .figures.random_matrices import ensemble_phase, random_attention
from .flow import sphere_flow
from .layers import sphere_network
from .mean_field import mean_field
from .noisy_layers import common_noise_drift, noisy_chain, noisy_network
from .propagation_of_chaos import mean_field_distance
from .starts import equiangular_start, given_start, uniform_start
from .theory import (
    equiangular_cosine,
    equiangular_field,
    final_rate,
    meeting_time,
)
from .token_attention import TokenAttention, relu_mlp
from .token_flow import random_tokens, token_flow
from .trained import (
    example_hidden_states,
    inner_products,
    read_hidden_states,
    record_hidden_states,
)

__all__ = [
    "SphereAttention",
    "TokenAttention",
    "angle_field",
    "angles_of",
    "circle_distance_to_density",
    "circle_wasserstein2",
    "close_pairs",
    "cluster_count",
    "clustering_with_noise",
    "common_noise_drift",
    "energy_curves",
    "ensemble_phase",
    "equiangular_cosine",
    "equiangular_field",
    "equiangular_start",
    "example_hidden_states",
    "final_rate",
    "given_start",
    "inner_products",
    "mean_field",
    "mean_field_distance",
    "meeting_time",
    "metastability",
    "noisy_chain",
    "noisy_network",
    "order_parameter",
    "phase_diagram",
    "random_attention",
    "random_tokens",
    "read_hidden_states",
    "record_hidden_states",
    "relu_mlp",
    "spectral_gap",
    "sphere_flow",
    "sphere_network",
    "token_flow",
    "tokens_of",
    "uniform_start",
]
