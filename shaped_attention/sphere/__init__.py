"""Self-attention on the sphere: clustering, energies, phase diagrams.

The second half of the notes behind this package, after Geshkovski, Letrouit, Polyanskiy and
Rigollet (arXiv 2312.10794). For Q = K = I and V = +-I everything is a function of the Gram matrix
of the tokens, at a cost that does not depend on their dimension.
"""

from shaped_attention.sphere.dynamics import SphereAttention
from shaped_attention.sphere.flow import sphere_flow
from shaped_attention.sphere.phase import phase_diagram
from shaped_attention.sphere.starts import equiangular_start, given_start, uniform_start
from shaped_attention.sphere.theory import equiangular_cosine, equiangular_field, meeting_time

__all__ = [
    "SphereAttention",
    "equiangular_cosine",
    "equiangular_field",
    "equiangular_start",
    "given_start",
    "meeting_time",
    "phase_diagram",
    "sphere_flow",
    "uniform_start",
]
