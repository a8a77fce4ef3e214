"""Self-attention on the sphere: clustering, energies, phase diagrams, mean field.

The second half of the notes behind this package, after Geshkovski, Letrouit, Polyanskiy and
Rigollet (arXiv 2312.10794). For Q = K = I and V = +-I everything is a function of the Gram matrix
of the tokens, at a cost that does not depend on their dimension (`sphere_flow`); other matrices,
heads and an MLP need the tokens themselves (`token_flow`).
"""

from shaped_attention.sphere.bridge import common_noise_drift, noisy_chain, noisy_network
from shaped_attention.sphere.chaos import mean_field_distance
from shaped_attention.sphere.circle import angle_field, angles_of, tokens_of
from shaped_attention.sphere.circle_distance import (
    circle_distance_to_density,
    circle_wasserstein2,
)
from shaped_attention.sphere.clusters import (
    close_pairs,
    cluster_count,
    order_parameter,
    spectral_gap,
)
from shaped_attention.sphere.curves import energy_curves, metastability
from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.ensembles import ensemble_phase, random_attention
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.layers import sphere_network
from shaped_attention.sphere.mean_field import mean_field
from shaped_attention.sphere.noise import clustering_with_noise
from shaped_attention.sphere.phase import phase_diagram
from shaped_attention.sphere.starts import equiangular_start, given_start, uniform_start
from shaped_attention.sphere.theory import (
    equiangular_cosine,
    equiangular_field,
    final_rate,
    meeting_time,
    two_token_cosine,
)
from shaped_attention.sphere.token_attention import TokenAttention, relu_mlp
from shaped_attention.sphere.token_flow import random_tokens, token_flow
from shaped_attention.sphere.trained import (
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
    "two_token_cosine",
    "uniform_start",
]
