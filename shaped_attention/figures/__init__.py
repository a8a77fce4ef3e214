"""Figures: drawings of results, named recipes of data and drawing, and the paper's figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["paper", "plots", "recipes"])
