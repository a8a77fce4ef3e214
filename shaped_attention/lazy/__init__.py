"""Lazily revealed weights: networks of any width, exactly in law, at a cost that does not grow.

    space = lazy.Space(65536, samples=1000, seed=0)
    x = space.normal(4)
    w = lazy.Matrix(space, space, std=space.n**-0.5)
    y = x + x @ w

A Gaussian weight matrix that is met only in products with a few rows needs to be known only along
these rows, so the cost does not depend on the width, in forward and backward passes and in training
steps. See `matrices` for the law and its proof.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
