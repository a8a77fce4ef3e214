"""The arc-cosine kernel of a covariance, the mean of ReLU's hidden units."""

from __future__ import annotations

import math
from typing import Any

from shaped_attention.libraries import torch
from shaped_attention.numerics.dual import Dual
from shaped_attention.numerics.jit import LANES, kernel, scalar
from shaped_attention.numerics.operations import registry as at
from shaped_attention.numerics.operations.entrywise import leaky, sign, sqrt
from shaped_attention.numerics.operations.parts import diagonal
from shaped_attention.numerics.operations.registry import M, check_square, operation, primitive
from shaped_attention.numerics.operations.stacks import mirror, plain
from shaped_attention.numerics.vectormath import arccos


def _with_tangents(v: Dual) -> Dual:
    """Use dK_ab = (pi - phi) dV_ab + sin(phi) (s_b dV_aa / s_a + s_a dV_bb / s_b) / 2.

    Here s_a^2 = V_aa and cos(phi) = V_ab / (s_a s_b). The angle comes from the kernel itself,
    J(cos x) = sin x + cos x (pi - x), at x = arccos(|cos phi|) / 2, where cos x >= 1 / sqrt 2.
    """
    length = sqrt(diagonal(v.value))
    some = sign(length)
    safe = length + (1.0 - some)
    ratio = v.value / (safe @ safe.mT)
    cosine = sqrt(0.5 * leaky(ratio, 1.0, -1.0) + 0.5)
    # At equal tokens, where the root has no derivative, it does not move.
    square = leaky(1.0 - cosine * cosine, 1.0, 0.0)
    apart = sign(square)
    sine = apart * sqrt(square + (1.0 - apart))
    half = math.pi - (arc_cosine_kernel(cosine) - sine) / cosine
    angle = (some @ some.mT) * (sign(ratio) * (0.5 * math.pi - 2.0 * half) + 0.5 * math.pi)
    turn = sine * cosine

    def tangent(d: Any) -> Any:
        grown = (some * diagonal(d) / safe) @ length.mT
        return angle * d + turn * (grown + grown.mT)

    return v.through(arc_cosine_kernel(v.value), tangent)


@primitive(
    trace=lambda v: v.elementwise("arc_cosine"), tangent=_with_tangents, check=check_square
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


@scalar
def _value(a, b, c):  # type: ignore[no-untyped-def]
    """Return the kernel of two tokens with the variances a, b and the covariance c."""
    # Roots before the product, which could underflow; what is not a number remains so.
    scale = math.sqrt(a) * math.sqrt(b)
    r = c / scale if scale != 0.0 else 0.0
    r = 1.0 if r > 1.0 else -1.0 if r < -1.0 else r
    return scale * (math.sqrt(1.0 - r * r) + r * (math.pi - arccos(r)))


@kernel
def _tile(line, numbers, buf):  # type: ignore[no-untyped-def]
    out, a, rows = line[at.OUT], line[at.A], line[at.ROWS]
    for i in range(rows):
        for p in range(LANES):
            buf[out + i * rows + i, p] = math.pi * buf[a + i * rows + i, p]
        for j in range(i):
            x, y, z = a + i * rows + i, a + j * rows + j, a + i * rows + j
            for p in range(LANES):
                value = _value(buf[x, p], buf[y, p], buf[z, p])
                buf[out + i * rows + j, p] = value
                buf[out + j * rows + i, p] = value


@kernel
def _stacks(v, out):  # type: ignore[no-untyped-def]
    for s in range(v.shape[0]):
        for i in range(v.shape[1]):
            for j in range(i):
                out[s, i, j] = _value(v[s, i, i], v[s, j, j], v[s, i, j])
            out[s, i, i] = math.pi * v[s, i, i]
    mirror(out)


operation("arc_cosine", tile=_tile, blas=plain(_stacks), growth=1.0)
