"""Self-attention on the sphere: clustering, energies, phase diagrams, mean field.

This is the second half of the notes behind this package, after Geshkovski, Letrouit, Polyanskiy
and Rigollet (arXiv 2312.10794). For Q = K = I and V = +-I everything is a function of the Gram
matrix of the tokens, at a cost that does not depend on their dimension (`SphereAttention`). Other
matrices, heads and an MLP need the tokens themselves (`TokenAttention`).
"""

import lazy_loader

from shaped_attention.libraries import lazily

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = lazily(__name__, __getattr__)
