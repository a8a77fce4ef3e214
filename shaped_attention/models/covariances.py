"""Token covariances along a torch model, as a result for `compare` and the figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from torch import nn

from shaped_attention.checks import real_array
from shaped_attention.models.recording import INPUT, record_outputs, stack_outputs
from shaped_attention.results.provenance import recorded


@recorded()
def record_covariances(
    model: nn.Module,
    inputs: Any,
    choose: Callable[[str, nn.Module], bool] | None = None,
    *,
    times: Sequence[float] | None = None,
    initial: bool = True,
) -> xr.Dataset:
    """Record V = X X^T / n of the token streams that modules of any torch model return.

    The result has the variables of a sampler's, so `compare` and `plots.trajectories` accept it.
    Its samples are the inputs of one model and share the weights. The law over random weights
    requires one model per sample (`xarray.concat` joins their results along ``sample``).

    Parameters
    ----------
    model
        Model, called once without gradients as ``model(inputs)`` (``model(**inputs)`` for a dict).
    inputs
        Its input.
    choose
        Function of a module's name and the module: whether its output (..., m, n), or the first
        element of a tuple, is recorded. By default the blocks of a `ShapedTransformer`.
    times
        Time t of the output of each chosen module, positive and increasing. By default l / n after
        l layers: a chosen module is one layer, or a block of a `ShapedTransformer`, whose layers
        have as many blocks as its `layer`.
    initial
        Whether to record the input of the first chosen module, as V at t = 0.

    Returns
    -------
    xarray.Dataset with `V` (time, sample, row, col), where leading axes of the outputs are
    flattened to samples; `stopping_time` (sample), infinite; and the coordinate `module` (time)
    with the names.

    Raises
    ------
    ValueError
        If no module is chosen, the outputs are not token streams of one shape, or `times` are not
        positive and increasing, one for each module.
    """
    if choose is None:
        choose = _is_shaped_block
    outputs = record_outputs(model, inputs, choose, initial=initial)
    x = stack_outputs(list(outputs.values()))
    v = (x @ x.mT / x.shape[-1]).reshape(len(x), -1, *2 * (x.shape[-2],))
    modules = [model.get_submodule(name) for name in outputs if name != INPUT]
    later = _times(modules, x.shape[-1]) if times is None else _checked_times(times, len(modules))
    return xr.Dataset(
        {
            "V": (("time", "sample", "row", "col"), v.numpy()),
            "stopping_time": ("sample", np.full(v.shape[1], np.inf)),
        },
        coords={
            "time": np.array([0.0, *later] if initial else later),
            "module": ("time", list(outputs)),
        },
    )


def _times(modules: list[nn.Module], width: int) -> list[float]:
    """Return the time l / n of each module, after l layers."""
    layers = [getattr(module, "layers_done", k) for k, module in enumerate(modules, start=1)]
    return [layer / width for layer in layers]


def _checked_times(times: Sequence[float], count: int) -> list[float]:
    """Return the times of recorded modules as a list; raise ValueError if they are invalid."""
    values = real_array(times, "times")
    grow = values.ndim == 1 and bool((np.diff(values, prepend=0.0) > 0.0).all())
    if not (grow and len(values) == count and np.isfinite(values).all()):
        raise ValueError(
            f"times={times!r:.80}: {count} positive and increasing numbers are needed, one for "
            "each chosen module"
        )
    return values.tolist()


def _is_shaped_block(_name: str, module: nn.Module) -> bool:
    return hasattr(module, "layers_done")
