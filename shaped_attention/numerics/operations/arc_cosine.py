"""The arc-cosine kernel of a covariance, the mean of ReLU's hidden units."""

from __future__ import annotations

import math
from typing import Any

from shaped_attention.compiler import functions
from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Int, Real
from shaped_attention.libraries import torch
from shaped_attention.numerics.operations.registry import (
    Here,
    M,
    check_square,
    operation,
    primitive,
)


@primitive(
    trace=lambda v: v.elementwise("arc_cosine"), check=check_square
)  # fmt: skip
def arc_cosine_kernel(v: M) -> M:
    """Return sqrt(V_aa V_bb) J(rho_ab), J(r) = sqrt(1 - r^2) + r (pi - arccos r).

    This kernel of Cho and Saul (2009) is positive semidefinite, with the diagonal pi V_aa. A rho
    outside [-1, 1] by rounding is clamped.
    """
    matrix: Any = v
    root = matrix.diagonal(dim1=-2, dim2=-1).sqrt()
    scale = root[..., :, None] * root[..., None, :]
    r = matrix / torch.where(scale > 0.0, scale, 1.0)
    # J' = pi - arccos r is finite at r = +-1, where the derivatives of the two terms are not.
    inside = r.abs() < 1.0
    s = torch.where(inside, r, 0.0)
    angle = (1.0 - s * s).sqrt() + s * (math.pi - torch.arccos(s))
    return scale * torch.where(inside, angle, math.pi * r.clamp(min=0.0))


def _emitted(e: Emitter, a: Real, b: Real, c: Real) -> Real:
    """Emit the kernel of two tokens with the variances a, b and the covariance c."""
    # Roots before the product, which could underflow; what is not a number remains so.
    scale = e.fmul(e.sqrt(a), e.sqrt(b))
    some = e.compare("une", scale, 0.0)
    r = e.select(some, e.fdiv(c, scale), 0.0)
    r = e.select(e.compare("ogt", r, 1.0), 1.0, r)
    r = e.select(e.compare("olt", r, -1.0), -1.0, r)
    angle = e.fmul(r, e.fsub(math.pi, functions.arccos(e, r)))
    return e.fmul(scale, e.fadd(e.sqrt(e.fsub(1.0, e.fmul(r, r))), angle))


def _emit(e: Emitter, here: Here) -> None:
    (v,), out = here.inputs, here.out

    def row(i: Int, _: object) -> None:
        def entry(j: Int, _: object) -> None:
            x = _emitted(e, v.load(e, i, i), v.load(e, j, j), v.load(e, i, j))
            out.store(e, x, i, j)
            out.store(e, x, j, i)

        e.loop(0, i, 1, entry, may_be_empty=True)
        out.store(e, e.fmul(math.pi, v.load(e, i, i)), i, i)

    e.loop(0, here.node.shape[0], 1, row)


operation("arc_cosine", emit=_emit, growth=1.0)
