"""Token covariances of very deep, very wide random transformers.

Finite networks with real weights (`simulate_network`), the exact chain of their covariances
(`simulate_chain`), the stochastic differential equation they converge to (`integrate_sde`), and
how far apart their laws are (`compare`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
