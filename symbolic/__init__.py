"""The derivation by machine: from softmax to the limiting SDE, and a verdict on every claim.

The derivation needs only sympy. ``python -m symbolic --help`` lists the commands.
"""

from symbolic.algebra import Algebra, Field
from symbolic.blocks import ShapedAttention, ShapedMLP
from symbolic.expansion import attention_series, expand_attention, taylor_term
from symbolic.gaussian import (
    half_gaussian_moment,
    isserlis,
    nu,
    score_moment,
    shaped_relu_kernel,
)
from symbolic.limit import Correction, Limit, algebra_of, derive, drift_correction
from symbolic.orders import TermOrder, term_orders
from symbolic.proof import Proof, check_at_points, prove
from symbolic.recursion import Block, NoLimitError, Recursion, skip_only
from symbolic.series import HALF, Series
from symbolic.softmax import (
    derivative,
    derivative_at_zero,
    derivative_tensor,
    differentiated_tensor,
)

__all__ = [
    "HALF",
    "Algebra",
    "Block",
    "Correction",
    "Field",
    "Limit",
    "NoLimitError",
    "Proof",
    "Recursion",
    "Series",
    "ShapedAttention",
    "ShapedMLP",
    "TermOrder",
    "algebra_of",
    "attention_series",
    "check_at_points",
    "derivative",
    "derivative_at_zero",
    "derivative_tensor",
    "derive",
    "differentiated_tensor",
    "drift_correction",
    "expand_attention",
    "half_gaussian_moment",
    "isserlis",
    "nu",
    "prove",
    "score_moment",
    "shaped_relu_kernel",
    "skip_only",
    "taylor_term",
    "term_orders",
]
