"""Residual networks as flow maps: the models that self-attention on the sphere is modelled on.

    network:    x(k + 1) = x(k) + (T / L) w(t_k) s(a(t_k) x(k) + b(t_k)),    t_k = k T / L,
    flow map:   x(0) -> x(T),    dx/dt = w(t) s(a(t) x + b(t)),

with L layers: Euler's method for a neural ordinary differential equation (E, Commun. Math. Stat. 5,
2017; Chen, Rubanova, Bettencourt and Duvenaud, arXiv 1806.07366). If the weights are smooth in
time the network differs from the flow map by order 1 / L, since each layer makes an error of order
1 / L^2 and the flow propagates their sum. Weights that are independent from layer to layer have no
such limit: the network differs from the flow of their mean by a sum of L independent terms of order
1 / L, that is by L^(-1/2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp

from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_positive,
    real_array,
)
from shaped_attention.results.provenance import recorded
from shaped_attention.statistics.rates import fitted_rate

Array = NDArray[np.float64]

Weights = ArrayLike | Callable[[float], ArrayLike]
"""An array, or a function of time that returns one."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "identity": lambda x: x,
}
DEPTHS = (16, 32, 64, 128, 256)
_RELATIVE, _ABSOLUTE = 1e-11, 1e-12


@recorded()
def residual_flow(
    outer: Weights,
    inner: Weights,
    bias: Weights,
    start: ArrayLike,
    depths: Sequence[int] = DEPTHS,
    *,
    horizon: float = 1.0,
    activation: str = "tanh",
) -> xr.Dataset:
    """Compare residual networks of several depths with the flow map that they discretise.

    Parameters
    ----------
    outer, inner, bias
        w (d, h), a (h, d) and b (h,), or functions of the time in [0, horizon] that return them.
        The network evaluates them at the beginning of each layer.
    start
        Inputs x(0) (samples, d), at least two.
    depths
        At least two increasing numbers of layers L.
    horizon
        Time T > 0 of the last layer; the step is T / L.
    activation
        s: "tanh", "relu" or "identity".

    Returns
    -------
    xarray.Dataset with

    - `network` (depth, sample, feature) and `flow_map` (sample, feature): outputs x(L) and x(T),
      the latter by a Runge-Kutta method of order 8 with relative error 1e-11 per step;
    - `error` and `standard` (depth): the mean over the inputs of |x(L) - x(T)|, and its standard
      error;
    - `rate`, `rate_error`: r of the fit a L^-r to the errors, and its standard error.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the shapes do not fit.
    FloatingPointError
        If outputs overflow, or the flow ends before the horizon.
    """
    check_choice("activation", activation, ACTIVATIONS)
    check_positive("horizon", horizon)
    for depth in depths:
        check_count("depths", depth)
    if len(depths) < 2 or list(depths) != sorted(set(depths)):
        raise argument_error("depths", "at least two increasing numbers", list(depths))
    x = real_array(start, "start")
    if x.ndim != 2 or len(x) < 2 or x.shape[1] == 0 or not np.isfinite(x).all():
        raise argument_error("start", "finite inputs (samples, d), at least two", start)
    act, features = ACTIVATIONS[activation], x.shape[1]

    def field(time: float, points: Array) -> Array:
        w, a, b = (
            real_array(value(time) if callable(value) else value, name)
            for name, value in (("outer", outer), ("inner", inner), ("bias", bias))
        )
        if b.ndim != 1 or w.shape != (features, len(b)) or a.shape != (len(b), features):
            shapes = w.shape, a.shape, b.shape
            requirement = f"of shapes ({features}, h), (h, {features}) and (h,)"
            raise argument_error("outer, inner and bias", requirement, shapes)
        return act(points @ a.T + b) @ w.T

    networks = np.empty((len(depths), *x.shape))
    with np.errstate(over="ignore", invalid="ignore"):
        for number, depth in enumerate(depths):
            points, step = x, horizon / depth
            for layer in range(depth):
                points = points + step * field(layer * step, points)
            networks[number] = points
        solved = solve_ivp(
            lambda time, flat: field(time, flat.reshape(x.shape)).ravel(), (0.0, horizon),
            x.ravel(), method="DOP853", rtol=_RELATIVE, atol=_ABSOLUTE,
        )  # fmt: skip
    if not solved.success or not np.isfinite(networks).all():
        raise FloatingPointError("the outputs overflow; choose a smaller horizon or weights")
    end = solved.y[:, -1].reshape(x.shape)
    apart = np.linalg.norm(networks - end, axis=-1)
    error, standard = apart.mean(1), apart.std(1, ddof=1) / len(x) ** 0.5
    rate, rate_error = fitted_rate(np.array(depths, dtype=float), error, standard)
    return xr.Dataset(
        {
            "network": (("depth", "sample", "feature"), networks),
            "flow_map": (("sample", "feature"), end),
            "error": ("depth", error),
            "standard": ("depth", standard),
            "rate": rate,
            "rate_error": rate_error,
        },
        coords={"depth": list(depths)},
    )
