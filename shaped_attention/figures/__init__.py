"""Figures: drawings of results, recipes of data and drawing by name, the paper's figures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["paper", "plots", "recipes"])
