"""Statistics of V: distances between laws, errors by width, expectations, stopping times."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["stopping"])
