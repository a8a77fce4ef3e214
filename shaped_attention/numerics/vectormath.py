"""Branch-free elementary functions that a compiler turns into vector instructions.

The functions of the C library act on one number at a time. These are polynomials after a reduction
of the argument (Muller, *Elementary Functions*, 2016, ch. 11), accurate to a few units in the last
place; the tests check this against NumPy on the whole range in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.chebyshev import cheb2poly
from numpy.typing import NDArray
from scipy.special import erfcx

from shaped_attention.numerics.jit import intrinsic, scalar

Float64Array = NDArray[np.float64]


def _fit(
    function: Callable[[Float64Array], Float64Array], stop: float, degree: int
) -> tuple[float, ...]:
    """Return the coefficients (constant first) of a Chebyshev interpolant on [0, stop]."""
    chebyshev = Chebyshev.interpolate(function, degree, domain=[0.0, stop])
    return tuple(float(c) for c in chebyshev.convert(domain=[-1, 1], kind=Polynomial).coef)


def _scaled_fit(
    function: Callable[[Float64Array], Float64Array], start: float, stop: float, degree: int
) -> tuple[float, ...]:
    """Return the coefficients of the interpolant on [start, stop] in y, rescaled to [-1, 1]."""
    chebyshev = Chebyshev.interpolate(function, degree, domain=[start, stop])
    return tuple(float(c) for c in cheb2poly(np.asarray(chebyshev.coef, dtype=np.float64)))


# Each fitted function is even in the reduced argument x and is written as a polynomial in x^2.
_LOG = _fit(lambda z: np.arctanh(np.sqrt(z)) / np.sqrt(z), 0.0295, 7)
_SIN = _fit(lambda z: np.sin(np.sqrt(z) * np.pi / 2) / np.sqrt(z), 0.25, 7)
_COS = _fit(lambda z: np.cos(np.sqrt(z) * np.pi / 2), 0.25, 7)
_ASIN = _fit(lambda z: np.arcsin(np.sqrt(z)) / np.sqrt(z), 0.25, 13)
# exp(z^2) erfc(z) / t as a smooth function of t = K / (K + z), for 0 <= z <= Z; K minimises the
# number of terms, and erfc(Z) is near the smallest double. In y in [-1, 1] it is even + y odd, both
# polynomials in y^2: two short loops are unrolled and vectorised, a long one is not.
_ERFC_K, _ERFC_Z = 3.5, 27.0
_ERFC_LOW = _ERFC_K / (_ERFC_K + _ERFC_Z)
_ERFC = _scaled_fit(lambda t: erfcx(_ERFC_K / t - _ERFC_K) / t, _ERFC_LOW, 1.0, 19)
_ERFC_EVEN, _ERFC_ODD = _ERFC[::2], _ERFC[1::2]
# exp(r) = 1 + r + r^2 g(r) for the reduced argument |r| <= ln 2 / 2; two terms fewer than Taylor's.
_EXP_STOP = 0.3466
_EXP_TERMS = np.array([1.0 / math.factorial(k) for k in range(21, 1, -1)])
_EXP_REST = _scaled_fit(
    lambda r: np.asarray(np.polyval(_EXP_TERMS, r), dtype=np.float64), -_EXP_STOP, _EXP_STOP, 9
)
_EXP = (1.0, 1.0, *(c / _EXP_STOP**k for k, c in enumerate(_EXP_REST)))
# tanh(x) = x - x^3 g(x^2) for |x| <= 0.3: the polynomial is a small correction of x.
_TANH_STOP = 0.3
_TANH = (1.0 / 3.0, -2.0 / 15.0, 17.0 / 315.0, -62.0 / 2835.0, 1382.0 / 155925.0,
         -21844.0 / 6081075.0, 929569.0 / 638512875.0, -6404582.0 / 10854718875.0,
         443861162.0 / 1856156927625.0, -18888466084.0 / 194896477400625.0)  # fmt: skip

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
def tanh(x):  # type: ignore[no-untyped-def]
    """Return the hyperbolic tangent, with a small relative error also near 0."""
    a = abs(x)
    e = exp(-2.0 * a)
    square = x * x
    near = a - a * (square * polynomial(_TANH, square))
    size = near if a < _TANH_STOP else (1.0 - e) / (1.0 + e)
    return size if x >= 0.0 else -size


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
