from . import theory
from .attention import SphereAttention
from .circle import angles_of, circle_wasserstein2, tokens_of
from .clusters import (
    close_pairs,
    cluster_count,
    cluster_masses,
    order_parameter,
    spectral_gap,
)
from .figures.catalogue import figure_data
from .flow import sphere_flow
from .layers import noisy_chain, sphere_network
from .mean_field import mean_field
from .normalisation import MixLN
from .propagation_of_chaos import mean_field_distance
from .random_weights import RandomHeads, RandomMLP
from .starts import equiangular_start, given_start, uniform_start
from .token_attention import TokenAttention
from .trained import (
    example_hidden_states,
    inner_products,
    read_hidden_states,
    record_hidden_states,
)

__all__ = [
    "MixLN",
    "RandomHeads",
    "RandomMLP",
    "SphereAttention",
    "TokenAttention",
    "angles_of",
    "circle_wasserstein2",
    "close_pairs",
    "cluster_count",
    "cluster_masses",
    "equiangular_start",
    "example_hidden_states",
    "figure_data",
    "given_start",
    "inner_products",
    "mean_field",
    "mean_field_distance",
    "noisy_chain",
    "order_parameter",
    "read_hidden_states",
    "record_hidden_states",
    "spectral_gap",
    "sphere_flow",
    "sphere_network",
    "theory",
    "tokens_of",
    "uniform_start",
]
