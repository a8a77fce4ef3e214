"""Models in torch: a trainable shaped transformer, recorded covariances, attention scores."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["scores"])
