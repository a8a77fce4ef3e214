from . import theory
from .attention import SphereAttention
from .circle import angles_of, tokens_of
from .clusters import (
    close_pairs,
    cluster_count,
    cluster_masses,
    order_parameter,
)
from .flow import sphere_flow
from .layers import noisy_chain, sphere_network
from .mean_field import mean_field
from .starts import equiangular_start, given_start, uniform_start
from .token_attention import TokenAttention

__all__ = [
    "SphereAttention",
    "TokenAttention",
    "angles_of",
    "close_pairs",
    "cluster_count",
    "cluster_masses",
    "equiangular_start",
    "given_start",
    "mean_field",
    "noisy_chain",
    "order_parameter",
    "sphere_flow",
    "sphere_network",
    "theory",
    "tokens_of",
    "uniform_start",
]
