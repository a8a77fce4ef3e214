"""Branch-free elementary functions that a compiler turns into vector instructions.

The functions of the C library act on one number at a time. These are polynomials after a reduction
of the argument (Muller, *Elementary Functions*, 2016, ch. 11), accurate to a few units in the last
place; the tests check this against NumPy on the whole range in use.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from shaped_attention.compiler.functions import ERFC_K, ERFC_Z, coefficients
from shaped_attention.numerics.jit import intrinsic, scalar

_LOG, _SIN, _COS, _ASIN, _EXP = (
    coefficients(name, "double") for name in ("log", "sin", "cos", "asin", "exp")
)
_ERFC_K, _ERFC_Z = ERFC_K, ERFC_Z["double"]
_ERFC_LOW = _ERFC_K / (_ERFC_K + _ERFC_Z)
_ERFC = coefficients("erfc", "double")
_ERFC_EVEN, _ERFC_ODD = _ERFC[::2], _ERFC[1::2]

# Conversions between integers and doubles by their bits: AVX2 has no instructions for 64 bits. The
# sum of a double and _NEAREST is rounded to an integer, which is in its lowest bits; an integer
# below 2^52 in the mantissa of 2^52 is that number plus 2^52.
_NEAREST = 1.5 * 2.0**52
_INTEGER = np.uint64(0x4330000000000000)
_ONE = np.uint64(0x3FF0000000000000)
_SQRT_HALF = np.uint64(0x3FE6A09E667F3BCD)
_MANTISSA = np.uint64(0x000FFFFFFFFFFFFF)
_LN2 = math.log(2.0)
_LN2_HIGH = 0.693147180369123816490
_LN2_LOW = 1.90821492927058770002e-10


@intrinsic
def bits_to_float(typingctx: Any, bits: Any) -> Any:
    """Read the 64 bits of an unsigned integer as a double."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@intrinsic
def float_to_bits(typingctx: Any, number: Any) -> Any:
    """Read the 64 bits of a double as an unsigned integer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), generate


@intrinsic
def prefer_wide_vectors(typingctx: Any) -> Any:
    """Let the calling kernel use 512-bit vectors where the processor has them.

    LLVM's default for these processors is 256 bits. The generators become a quarter faster and
    their numbers remain bit-identical. llvmlite's own check does not know this attribute, hence the
    base class's `add`; without a set to add to, the kernel keeps the default.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        attributes = builder.function.attributes
        if isinstance(attributes, set):
            set.add(attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), generate


@scalar
def polynomial(coefficients, x):  # type: ignore[no-untyped-def]
    """Evaluate at x the polynomial with these coefficients, constant first.

    Odd and even powers are two chains of multiplications and additions, half as long as Horner's:
    their latency is what takes time. The constant, the largest term, is added last.
    """
    square, last = x * x, len(coefficients) - 1
    odd, even = coefficients[last - 1 + last % 2], coefficients[last - last % 2]
    for i in range(last - 3 + last % 2, 0, -2):
        odd = odd * square + coefficients[i]
    for i in range(last - last % 2 - 2, 0, -2):
        even = even * square + coefficients[i]
    return coefficients[0] + x * (even * x + odd)


@scalar
def log(x):  # type: ignore[no-untyped-def]
    """Return the natural logarithm of a positive normal double."""
    shifted = float_to_bits(x) + (_ONE - _SQRT_HALF)
    exponent = bits_to_float((shifted >> np.uint64(52)) | _INTEGER) - (2.0**52 + 1023.0)
    mantissa = bits_to_float((shifted & _MANTISSA) + _SQRT_HALF)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    return exponent * _LN2 + 2.0 * s * polynomial(_LOG, s * s)


@scalar
def exp(x):  # type: ignore[no-untyped-def]
    """Return the exponential of x <= 700; below -700 return exp(-700), about 1e-304."""
    x = max(x, -700.0)
    shifted = x * (1.0 / _LN2) + _NEAREST
    k = shifted - _NEAREST
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    power = (float_to_bits(shifted) + np.uint64(1023)) << np.uint64(52)
    return polynomial(_EXP, r) * bits_to_float(power)


@scalar
def whole_exp(x):  # type: ignore[no-untyped-def]
    """Return the exponential of any double: infinite from 709.79, 0 below -745.14, NaN for NaN.

    It is scaled by two powers of 2, since neither 2^1024 nor 2^-1075 is a double.
    """
    x = -746.0 if x < -746.0 else x
    x = 710.0 if x > 710.0 else x
    shifted = x * (1.0 / _LN2) + _NEAREST
    k = shifted - _NEAREST
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    # From 970 to 3070: the sum is positive, and without the bits of _NEAREST.
    both = (float_to_bits(shifted) + np.uint64(2046)) & np.uint64(0xFFFFF)
    half = both >> np.uint64(1)
    first = bits_to_float(half << np.uint64(52))
    return polynomial(_EXP, r) * first * bits_to_float((both - half) << np.uint64(52))


@scalar
def logistic(x):  # type: ignore[no-untyped-def]
    """Return 1 / (1 + exp(-x))."""
    e = exp(-abs(x))
    low = e / (1.0 + e)
    return 1.0 - low if x >= 0.0 else low


@scalar
def softplus(x):  # type: ignore[no-untyped-def]
    """Return log(1 + exp(x)), with a small relative error also where it is near 0."""
    e = whole_exp(-abs(x))
    above = (1.0 + e) - 1.0
    # The quotient undoes the rounding of 1 + e (Kahan).
    tail = log(1.0 + e) * (e / above) if above > 0.0 else e
    return (x if x > 0.0 else 0.0) + tail


@scalar
def sincos_turns(turns):  # type: ignore[no-untyped-def]
    """Return sine and cosine of 2 pi `turns` for 0 <= turns < 1."""
    quarters = 4.0 * turns
    shifted = quarters + _NEAREST
    r = quarters - (shifted - _NEAREST)
    quadrant = float_to_bits(shifted)
    s = r * polynomial(_SIN, r * r)
    c = polynomial(_COS, r * r)
    swapped = (quadrant & np.uint64(1)) != np.uint64(0)
    sine = c if swapped else s
    cosine = s if swapped else c
    # The second bit of a quadrant is the sign of its sine, and that of the next of its cosine.
    below = (quadrant & np.uint64(2)) << np.uint64(62)
    left = ((quadrant + np.uint64(1)) & np.uint64(2)) << np.uint64(62)
    return (
        bits_to_float(float_to_bits(sine) ^ below), bits_to_float(float_to_bits(cosine) ^ left)
    )  # fmt: skip


@scalar
def arccos(x):  # type: ignore[no-untyped-def]
    """Return the arc cosine for -1 <= x <= 1, with a small relative error also near x = 1."""
    a = abs(x)
    near_one = a > 0.5
    z = 0.5 * (1.0 - a) if near_one else a * a
    root = math.sqrt(z) if near_one else a
    arcsine = root * polynomial(_ASIN, z)
    positive = 2.0 * arcsine if near_one else 0.5 * math.pi - arcsine
    return positive if x >= 0.0 else math.pi - positive


@scalar
def normal_cdf(x):  # type: ignore[no-untyped-def]
    """Return the distribution function of the standard normal law, to 1e-15."""
    z = min(abs(x) * math.sqrt(0.5), _ERFC_Z)
    t = _ERFC_K / (_ERFC_K + z)
    y = (t - _ERFC_LOW) * (2.0 / (1.0 - _ERFC_LOW)) - 1.0
    series = polynomial(_ERFC_EVEN, y * y) + y * polynomial(_ERFC_ODD, y * y)
    tail = 0.5 * t * series * exp(-z * z)
    return tail if x < 0.0 else 1.0 - tail
