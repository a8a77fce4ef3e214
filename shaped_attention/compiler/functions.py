"""Branch-free elementary functions, emitted as polynomials.

The functions of the C library act on one number at a time. These are polynomials after a reduction
of the argument (Muller, *Elementary Functions*, 2016, ch. 11), accurate to a few units in the last
place of their type; the tests check this against NumPy on the whole range in use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.chebyshev import cheb2poly
from numpy.typing import NDArray
from scipy.special import erfcx

from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.text import Real

Array = NDArray[np.float64]
Coefficients = tuple[float, ...]

_LN2 = math.log(2.0)
_SPLIT = {"double": (0.693147180369123816490, 1.90821492927058770002e-10),
          "float": (0.693359375, -2.12194440054690583e-4)}  # fmt: skip
"""ln 2 in two parts, of which multiples of the first have no rounding."""

_MANTISSA = {"double": 52, "float": 23}
_BIAS = {"double": 1023, "float": 127}
_SQRT_HALF = {"double": 0x3FE6A09E667F3BCD, "float": 0x3F3504F3}
_LEAST_EXP = {"double": -700.0, "float": -87.0}
_WHOLE_EXP = {"double": (-746.0, 710.0), "float": (-104.0, 89.0)}
_TANH_STOP = 0.3


def _fit(
    function: Callable[[Array], Array], start: float, stop: float, degree: int
) -> Coefficients:
    """Return the coefficients (constant first) of a Chebyshev interpolant on [start, stop]."""
    chebyshev = Chebyshev.interpolate(function, degree, domain=[start, stop])
    return tuple(float(c) for c in chebyshev.convert(domain=[-1, 1], kind=Polynomial).coef)


def _scaled_fit(
    function: Callable[[Array], Array], start: float, stop: float, degree: int
) -> Coefficients:
    """Return the coefficients of the interpolant on [start, stop] in y, rescaled to [-1, 1]."""
    chebyshev = Chebyshev.interpolate(function, degree, domain=[start, stop])
    return tuple(float(c) for c in cheb2poly(np.asarray(chebyshev.coef, dtype=np.float64)))


# exp(z^2) erfc(z) / t as a smooth function of t = K / (K + z), for 0 <= z <= Z; K minimises the
# number of terms, and erfc(Z) is near the smallest number.
ERFC_K = 3.5
ERFC_Z = {"double": 27.0, "float": 10.0}
_EXP_STOP = 0.3466


@cache
def coefficients(name: str, real: str) -> Coefficients:
    """Return the coefficients of a function, of the degree that the type asks for."""
    single = real == "float"
    match name:
        case "log":
            degree = 3 if single else 7
            return _fit(lambda z: np.arctanh(np.sqrt(z)) / np.sqrt(z), 0.0, 0.0295, degree)
        case "sin":
            degree = 3 if single else 7
            return _fit(lambda z: np.sin(np.sqrt(z) * np.pi / 2) / np.sqrt(z), 0.0, 0.25, degree)
        case "cos":
            return _fit(lambda z: np.cos(np.sqrt(z) * np.pi / 2), 0.0, 0.25, 4 if single else 7)
        case "asin":
            degree = 5 if single else 13
            return _fit(lambda z: np.arcsin(np.sqrt(z)) / np.sqrt(z), 0.0, 0.25, degree)
        case "erfc":
            k = ERFC_K
            low = k / (k + ERFC_Z[real])
            return _scaled_fit(lambda t: erfcx(k / t - k) / t, low, 1.0, 9 if single else 19)
        case "exp":
            # exp(r) = 1 + r + r^2 g(r) for the reduced argument |r| <= ln 2 / 2.
            terms = np.array([1.0 / math.factorial(k) for k in range(21, 1, -1)])
            rest = _scaled_fit(
                lambda r: np.asarray(np.polyval(terms, r), dtype=np.float64),
                -_EXP_STOP, _EXP_STOP, 4 if single else 9,
            )  # fmt: skip
            return (1.0, 1.0, *(c / _EXP_STOP**k for k, c in enumerate(rest)))
        case _:
            # tanh(x) = x - x^3 g(x^2): the polynomial is a small correction of x.
            terms_of_tanh = (
                1.0 / 3.0, -2.0 / 15.0, 17.0 / 315.0, -62.0 / 2835.0, 1382.0 / 155925.0,
                -21844.0 / 6081075.0, 929569.0 / 638512875.0, -6404582.0 / 10854718875.0,
                443861162.0 / 1856156927625.0, -18888466084.0 / 194896477400625.0,
            )  # fmt: skip
            return terms_of_tanh[: 6 if single else 10]


def polynomial(e: Emitter, coefficients: Sequence[float], x: Real) -> Real:
    """Emit a polynomial, constant first.

    Odd and even powers are two chains of multiplications and additions, half as long as Horner's:
    their latency is what takes time. The constant, the largest term, is added last.
    """
    square, last = e.fmul(x, x), len(coefficients) - 1
    odd: Real = coefficients[last - 1 + last % 2]
    even: Real = coefficients[last - last % 2]
    for i in range(last - 3 + last % 2, 0, -2):
        odd = e.fma(odd, square, coefficients[i])
    for i in range(last - last % 2 - 2, 0, -2):
        even = e.fma(even, square, coefficients[i])
    return e.fma(x, e.fma(even, x, odd), coefficients[0])


def _nearest(e: Emitter) -> float:
    """Return what rounds a number to an integer when it is added; that is in the lowest bits."""
    return 1.5 * 2.0 ** _MANTISSA[e.real]


def _reduced(e: Emitter, x: Real) -> tuple[str, Real]:
    """Return the bits of the nearest multiple k of ln 2, in the lowest, and exp(x - k ln 2)."""
    high, low = _SPLIT[e.real]
    shifted = e.fma(x, 1.0 / _LN2, _nearest(e))
    k = e.fsub(shifted, _nearest(e))
    r = e.fma(k, -low, e.fma(k, -high, x))
    return e.to_bits(shifted), polynomial(e, coefficients("exp", e.real), r)


def _integers(e: Emitter, name: str, a: str, b: int) -> str:
    return e.new(f"{name} {e.of(f'i{e.bits}')} {a}, {e.word(b)}")


def exp(e: Emitter, x: Real) -> Real:
    """Emit the exponential of x up to the largest number; it is that of -700 (-87) below."""
    least = _LEAST_EXP[e.real]
    # What is not a number remains so.
    bits, y = _reduced(e, e.select(e.compare("olt", x, least), least, x))
    power = _integers(e, "shl", _integers(e, "add", bits, _BIAS[e.real]), _MANTISSA[e.real])
    return e.fmul(y, e.from_bits(power))


def whole_exp(e: Emitter, x: Real) -> Real:
    """Emit the exponential of any number: infinite or 0 beyond the range, NaN for NaN.

    It is scaled by two powers of 2, since neither 2^1024 nor 2^-1075 is a double.
    """
    least, most = _WHOLE_EXP[e.real]
    x = e.select(e.compare("olt", x, least), least, x)
    x = e.select(e.compare("ogt", x, most), most, x)
    bits, y = _reduced(e, x)
    # Positive, and without the bits that rounded to an integer.
    mask = 0xFFFFF if e.real == "double" else 0xFFFF
    both = _integers(e, "and", _integers(e, "add", bits, 2 * _BIAS[e.real]), mask)
    half = _integers(e, "lshr", both, 1)
    rest = e.new(f"sub {e.of(f'i{e.bits}')} {both}, {half}")
    powers = [e.from_bits(_integers(e, "shl", part, _MANTISSA[e.real])) for part in (half, rest)]
    return e.fmul(e.fmul(y, powers[0]), powers[1])


def log(e: Emitter, x: Real) -> Real:
    """Emit the natural logarithm of a positive normal number."""
    width, bias, half = _MANTISSA[e.real], _BIAS[e.real], _SQRT_HALF[e.real]
    one = bias << width
    shifted = _integers(e, "add", e.to_bits(x), one - half)
    # An integer in the mantissa of 2^52 is that number plus 2^52.
    whole = (bias + width) << width
    exponent = e.from_bits(_integers(e, "or", _integers(e, "lshr", shifted, width), whole))
    exponent_value = e.fsub(exponent, 2.0**width + bias)
    rest = _integers(e, "and", shifted, (1 << width) - 1)
    mantissa = e.from_bits(_integers(e, "add", rest, half))
    s = e.fdiv(e.fsub(mantissa, 1.0), e.fadd(mantissa, 1.0))
    series = e.fmul(e.fmul(2.0, s), polynomial(e, coefficients("log", e.real), e.fmul(s, s)))
    return e.fma(exponent_value, _LN2, series)


def _with_sign(e: Emitter, size: Real, x: Real) -> Real:
    return e.select(e.compare("oge", x, 0.0), size, e.neg(size))


def tanh(e: Emitter, x: Real) -> Real:
    """Emit the hyperbolic tangent, with a small relative error also near 0."""
    a = e.absolute(x)
    power = exp(e, e.fmul(-2.0, a))
    square = e.fmul(x, x)
    small = e.fmul(square, polynomial(e, coefficients("tanh", e.real), square))
    near = e.fsub(a, e.fmul(a, small))
    far = e.fdiv(e.fsub(1.0, power), e.fadd(1.0, power))
    return _with_sign(e, e.select(e.compare("olt", a, _TANH_STOP), near, far), x)


def logistic(e: Emitter, x: Real) -> Real:
    """Emit 1 / (1 + exp(-x))."""
    power = exp(e, e.neg(e.absolute(x)))
    low = e.fdiv(power, e.fadd(1.0, power))
    return e.select(e.compare("oge", x, 0.0), e.fsub(1.0, low), low)


def softplus(e: Emitter, x: Real) -> Real:
    """Emit log(1 + exp(x)), with a small relative error also where it is near 0."""
    power = whole_exp(e, e.neg(e.absolute(x)))
    total = e.fadd(1.0, power)
    above = e.fsub(total, 1.0)
    # The quotient undoes the rounding of 1 + e (Kahan).
    quotient = e.fmul(log(e, total), e.fdiv(power, above))
    tail = e.select(e.compare("ogt", above, 0.0), quotient, power)
    return e.fadd(e.select(e.compare("ogt", x, 0.0), x, 0.0), tail)


def sincos_turns(e: Emitter, turns: Real) -> tuple[Real, Real]:
    """Emit sine and cosine of 2 pi `turns` for 0 <= turns < 1."""
    quarters = e.fmul(4.0, turns)
    shifted = e.fadd(quarters, _nearest(e))
    r = e.fsub(quarters, e.fsub(shifted, _nearest(e)))
    quadrant, square = e.to_bits(shifted), e.fmul(r, r)
    s = e.fmul(r, polynomial(e, coefficients("sin", e.real), square))
    c = polynomial(e, coefficients("cos", e.real), square)
    kind = e.of(f"i{e.bits}")
    odd = e.new(f"icmp ne {kind} {_integers(e, 'and', quadrant, 1)}, {e.word(0)}")
    sine, cosine = e.select(odd, c, s), e.select(odd, s, c)

    def turned(x: Real, quarter: str) -> Real:
        # The second bit of a quadrant is the sign of its sine, and that of the next of its cosine.
        sign = _integers(e, "shl", _integers(e, "and", quarter, 2), e.bits - 2)
        return e.from_bits(e.new(f"xor {kind} {e.to_bits(x)}, {sign}"))

    return turned(sine, quadrant), turned(cosine, _integers(e, "add", quadrant, 1))


def arccos(e: Emitter, x: Real) -> Real:
    """Emit the arc cosine for -1 <= x <= 1, with a small relative error also near x = 1."""
    a = e.absolute(x)
    near_one = e.compare("ogt", a, 0.5)
    z = e.select(near_one, e.fmul(0.5, e.fsub(1.0, a)), e.fmul(a, a))
    root = e.select(near_one, e.sqrt(z), a)
    arcsine = e.fmul(root, polynomial(e, coefficients("asin", e.real), z))
    positive = e.select(near_one, e.fmul(2.0, arcsine), e.fsub(0.5 * math.pi, arcsine))
    return e.select(e.compare("oge", x, 0.0), positive, e.fsub(math.pi, positive))


def normal_cdf(e: Emitter, x: Real) -> Real:
    """Emit the distribution function of the standard normal law."""
    k, far = ERFC_K, ERFC_Z[e.real]
    scaled = e.fmul(e.absolute(x), math.sqrt(0.5))
    # What is not a number remains so.
    z = e.select(e.compare("ogt", scaled, far), far, scaled)
    low = k / (k + far)
    t = e.fdiv(k, e.fadd(k, z))
    y = e.fsub(e.fmul(e.fsub(t, low), 2.0 / (1.0 - low)), 1.0)
    table = coefficients("erfc", e.real)
    square = e.fmul(y, y)
    even, odd = polynomial(e, table[::2], square), polynomial(e, table[1::2], square)
    power = exp(e, e.neg(e.fmul(z, z)))
    tail = e.fmul(e.fmul(e.fmul(0.5, t), e.fma(y, odd, even)), power)
    return e.select(e.compare("olt", x, 0.0), tail, e.fsub(1.0, tail))
