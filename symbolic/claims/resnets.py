"""Claims on residual networks: layers as Euler steps of a flow, and maps of their first state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import asinh, exp, sinh, tanh

from sympy import Abs, Expr, Function, Integer, Max, Rational, Symbol, limit, oo
from sympy import exp as exponential

from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note

LAYERS = 4
FIRST_PRINTED = 1


def states(indices: Iterable[int]) -> dict[int, Expr]:
    """Return the states after the layers x_(k+1) = x_k + g(W_k x_k + b_k), k in `indices`."""
    activation = Function("g")
    x: dict[int, Expr] = {k: Symbol(f"x_{k}") for k in range(LAYERS + 1)}
    for k in indices:
        x[k + 1] = x[k] + activation(Symbol(f"W_{k}") * x[k] + Symbol(f"b_{k}"))
    return x


def _first_layer() -> Finding:
    """Check which starts the state x_L depends on."""
    printed = states(range(FIRST_PRINTED, LAYERS))[LAYERS]
    mended = states(range(LAYERS))[LAYERS]
    starts = {Symbol(f"x_{k}") for k in range(LAYERS)}
    return imprecise(
        f"L = {LAYERS}: with k from 1 the state x_L is a function of x_1, and x_0 is in no layer; "
        "with k from 0 it is a function of x_0",
        part_that_holds=mended.free_symbols & starts == {Symbol("x_0")},
        part_that_fails=Symbol("x_0") not in printed.free_symbols,
    )


Field = Callable[[float, float], float]
"""A velocity by time and place."""


def euler(field: Field, start: float, step: float, count: int) -> float:
    """Return the state after the layers x + step * field(k step, x), k from 0 to `count` - 1."""
    x = start
    for k in range(count):
        x += step * field(k * step, x)
    return x


def error_ratio(field: Field, start: float, end: float) -> float:
    """Return by which factor the error at time 1 falls from 512 layers to 1024."""
    return (euler(field, start, 1 / 512, 512) - end) / (euler(field, start, 1 / 1024, 1024) - end)


START, WEIGHT = 0.7, -3.0


def _steady(_time: float, x: float) -> float:
    return tanh(WEIGHT * x)


def flow(integral: float) -> float:
    """Return the state under x' = w(t) tanh(a x) when the integral of w has a value.

    sinh(a x) grows by the factor exp(a times the integral).
    """
    return asinh(exp(WEIGHT * integral) * sinh(WEIGHT * START)) / WEIGHT


def _continuous_time() -> Finding:
    """Compare layers with the flow of tanh(w x)."""
    rate = Symbol("a", positive=True)
    count = Symbol("L", positive=True)
    linear = limit(count * (exponential(rate) - (1 + rate / count) ** count), count, oo)

    return imprecise(
        "layers with the step 1/L: for x' = a x the error at time 1 is a^2 e^a / (2 L) to leading "
        "order (exact limit), for x' = tanh(-3x) it halves from 512 to 1024 layers; layers as "
        "printed have the step 1: x - tanh(3x) has not come to rest after 20 layers, where the "
        "flow at time 20 is below 1e-20",
        part_that_holds=(linear - rate**2 * exponential(rate) / 2).simplify() == 0
        and abs(error_ratio(_steady, START, flow(1.0)) - 2) < 0.05,
        part_that_fails=abs(euler(_steady, START, 1.0, 20)) > 0.1 and abs(flow(20.0)) < 1e-20,
    )


def _outer_and_inner_weights() -> Finding:
    """Compare layers with the flow of w(t) tanh(a x), w(t) = 1 + t."""

    def growing(time: float, x: float) -> float:
        return (1 + time) * _steady(time, x)

    return imprecise(
        "layers x + h w(kh) sigma(a x), h = 1/L, sigma = tanh, a = -3 and w(t) = 1 + t: the error "
        "at time 1 halves from 512 to 1024 layers. With the printed step 1 and w = 1 the layers "
        "have not come to rest after 20 layers, where the flow at time 20 is below 1e-20",
        part_that_holds=abs(error_ratio(growing, START, flow(1.5)) - 2) < 0.05,
        part_that_fails=abs(euler(_steady, START, 1.0, 20)) > 0.1 and abs(flow(20.0)) < 1e-20,
    )


def layer(x: Expr, step: Expr) -> Expr:
    """Return x + step * relu(-2x)."""
    return x + step * Max(0, -2 * x)


def _flow_map() -> Finding:
    points = [Rational(k, 4) for k in range(-8, 9)]
    small = [layer(x, Rational(1, 4)) for x in points]
    return imprecise(
        "a flow map of a Lipschitz field is one-to-one (Picard-Lindelof); the layer x + relu(-2x) "
        "= |x| maps -1 and 1 to 1. With the factor 1/4 the layer increases strictly on a grid, as "
        "every layer in one dimension with step times Lipschitz constant below 1",
        part_that_holds=all(a < b for a, b in pairwise(small)),
        part_that_fails=all(layer(x, Integer(1)) == Abs(x) for x in points)
        and layer(Integer(-1), Integer(1)) == layer(Integer(1), Integer(1)),
    )


CLAIMS = [
    note(
        "resnet-indices",
        "A ResNet x_(k+1) = x_k + g(W_k x_k + b_k), k = 1, ..., L-1, is the map from x_0 to x_L.",
        Verdict.IMPRECISE,
        _first_layer,
        at("002:8", r"k = 1, 2, \dots, L-1"),
        at("002:17", r"NN = \text{Map } x_0 \rightarrow x_L"),
        corrected="Let k run from 0 to L-1; or call the start x_1.",
        why="With k from 1 no layer acts on x_0.",
    ),
    note(
        "resnet-continuous-time",
        "In continuous time these layers are x' = g(W_t x + b_t).",
        Verdict.IMPRECISE,
        _continuous_time,
        at("002:13-14", r"\dot{x}(t) = g(W_t x(t) + b_t)"),
        corrected="Write the layers with a step: x_(k+1) = x_k + (T/L) g(W_k x_k + b_k). As L "
        "grows they "
        "converge to the flow with an error of order 1/L.",
        why="The layers as printed are Euler steps of size 1, which need not be near the flow.",
    ),
    note(
        "residual-layers-in-continuous-time",
        "In continuous time the layers x(k+1) = x(k) + w(k) sigma(a(k) x(k) + b(k)) are x' = w(t) "
        "sigma(a(t) x + b(t)), 0 <= t <= T.",
        Verdict.IMPRECISE,
        _outer_and_inner_weights,
        at(
            "004:199-203",
            r"\mathbf{x}(k+1) = \mathbf{x}(k) + w(k)\sigma(a(k)\mathbf{x}(k) + b(k))",
            r"\dot{\mathbf{x}}(t) = w(t)\sigma(a(t)\mathbf{x}(t) + b(t))",
        ),
        corrected="Write x(k+1) = x(k) + h w(kh) sigma(a(kh) x(k) + b(kh)) with h = T/L and "
        "smooth functions "
        "w, a, b of time. As L grows these layers converge to the ODE, with an error of order 1/L.",
        why="As printed the layers are Euler steps of size 1, and k counts layers where t is time.",
    ),
    note(
        "resnet-flow-map",
        "The network is the flow map from x(0) to x(T).",
        Verdict.IMPRECISE,
        _flow_map,
        at("002:18", r"NN = \text{flow map } x(0) \rightarrow x(T)"),
        corrected="The network in continuous time is the flow map; the ResNet with the step T/L "
        "is an approximation of it, with an error of order 1/L.",
        why="Flow maps are one-to-one; the ResNet layer x + relu(-2x) = |x| is not.",
    ),
]
