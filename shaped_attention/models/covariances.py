"""Token covariances along a torch model, as a result for `compare` and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from torch import nn

from shaped_attention.checks import real_array
from shaped_attention.models.language_models import layer_names, record_language_model
from shaped_attention.models.recording import INPUT, record_outputs, stack_outputs
from shaped_attention.results.provenance import recorded


@recorded()
def record_covariances(
    model: Any,
    inputs: Any,
    choose: Callable[[str, nn.Module], bool] | None = None,
    *,
    times: Sequence[float] | None = None,
    initial: bool = True,
) -> xr.Dataset:
    """Record V = X X^T / n of the token streams that modules of any torch model return.

    The result has the variables of a sampler's or, for a model of the `transformers` library, those
    of `simulate_model`'s, so `compare` and `plots.trajectories` accept it. Its samples are the
    inputs of one model and share the weights. The law over random weights requires one model per
    sample: give several models, or join results with `xarray.concat` along ``sample``.

    Parameters
    ----------
    model
        Model, called once without gradients as ``model(inputs)`` (``model(**inputs)`` for a dict);
        or several, as a list or an iterator that makes one at a time.
    inputs
        Its input. For a model of the `transformers` library, token ids (m,) or (batch, m), or a
        dict. Padding positions are recorded too.
    choose
        Function of a module's name and the module: whether its output (..., m, n), or the first
        element of a tuple, is recorded. By default the blocks of a `ShapedTransformer`, or the
        layers of a model of the `transformers` library: an object with ``config.num_hidden_layers``
        and a list of so many layers.
    times
        Time t of the output of each chosen module, positive and increasing. By default l / n after
        l layers: a chosen module is one layer, or a block of a `ShapedTransformer`, whose layers
        have as many blocks as its `layer`. A model of the `transformers` library has positions
        instead, unless `choose` is given.
    initial
        Whether to record the input of the first chosen module, as V at t = 0 or position 0.

    Returns
    -------
    xarray.Dataset with `V` (time, sample, row, col), where leading axes of the outputs are
    flattened to samples; `stopping_time` (sample), infinite; and the coordinate `module` (time)
    with the names.

    For a model of the `transformers` library,

    - `V` (position, sample, row, col), with position l after l layers and before the final norm,
      and the coordinates `module` (position) and `model` (sample), a digest of the weights;
    - `V_final` (sample, row, col) after the final norm, if the model returns `last_hidden_state`;
    - `attention_entropy` (layer, head, sample, row) in nats and `tokens_seen` (layer, sample, row),
      the number of tokens with positive attention weights in any one head, if the model returns its
      attention: it must be loaded with ``attn_implementation="eager"``.

    Raises
    ------
    ValueError
        If no module is chosen, `choose` is not given and several lists may be the layers, the
        outputs are not token streams of one shape, or `times` are not positive and increasing, one
        for each module.

    Warns
    -----
    UserWarning
        If a model of the `transformers` library is in training mode with dropout.
    """
    found = []
    for each in _models(model):
        found.append(_recorded(each, inputs, choose, times, initial))  # noqa: PERF401  (stacklevel)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ValueError("model is empty; at least one torch.nn.Module is needed")
    if len({tuple(each["V"].transpose("sample", ...).shape[1:]) for each in found}) > 1:
        raise ValueError("model: the models have different depths; equal ones are needed")
    joined = xr.concat(
        found, "sample", data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    return joined.assign_attrs(found[0].attrs)


def _models(model: Any) -> Iterable[Any]:
    if isinstance(model, nn.Module) or not isinstance(model, Iterable) or isinstance(model, str):
        return [model]
    return model


def _recorded(
    model: nn.Module,
    inputs: Any,
    choose: Callable[[str, nn.Module], bool] | None,
    times: Sequence[float] | None,
    initial: bool,
) -> xr.Dataset:
    """Return the record of one model."""
    if choose is None and isinstance(model, nn.Module) and layer_names(model):
        if times is not None:
            raise ValueError(
                f"times={times!r:.80}: the layers of a model of the transformers library have "
                "positions; choose, a function that chooses modules, is needed for times"
            )
        return record_language_model(model, inputs, initial)
    outputs = record_outputs(model, inputs, choose or _is_shaped_block, initial=initial)
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
