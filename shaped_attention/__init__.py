"""Token covariances of very deep, very wide random transformers.

Simulate finite networks with real weights (`simulate_network`), the exact chain of their
covariances (`simulate_chain`) and the stochastic differential equation that they converge to
(`integrate_sde`), and compare their laws (`compare`).
"""

import lazy_loader

from shaped_attention.libraries import lazily

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = lazily(__name__, __getattr__)
