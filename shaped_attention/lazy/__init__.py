"""Lazily revealed weights: networks of any width, exactly in law, at a cost that does not grow.

    space = lazy.Space(65536, samples=1000, seed=0)
    x = space.normal(4)
    w = lazy.Matrix(space, space, std=space.n**-0.5)
    y = x + x @ w

A Gaussian weight matrix that is met only in products with a few rows needs to be known only along
these rows, so the cost does not depend on the width, in forward and backward passes and in training
steps. See `matrices` for the law and its proof.
"""

from shaped_attention.lazy.derivatives import vjp
from shaped_attention.lazy.layers import Layers
from shaped_attention.lazy.low_rank import Factors
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.space import Space
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import Sum
from shaped_attention.rows.tape import Tape

__all__ = ["Factors", "Layers", "Matrix", "Rows", "Space", "Sum", "Tape", "vjp"]
