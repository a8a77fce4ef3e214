from . import theory
from .attention import SphereAttention
from .clusters import close_pairs, cluster_count, cluster_masses
from .flow import sphere_flow
from .layers import noisy_chain, sphere_network
from .mean_field import mean_field
from .starts import equiangular_start, given_start, uniform_start
from .token_attention import TokenAttention

__all__ = [
    "SphereAttention",
    "TokenAttention",
    "close_pairs",
    "cluster_count",
    "cluster_masses",
    "equiangular_start",
    "given_start",
    "mean_field",
    "noisy_chain",
    "sphere_flow",
    "sphere_network",
    "theory",
    "uniform_start",
]
