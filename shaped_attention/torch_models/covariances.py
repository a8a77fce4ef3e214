"""Token covariances along a torch model, as a result for `compare` and the figures.

A model of the `transformers` library is recognised by its attributes, so that the library is not
needed here: it has a `config` with `num_hidden_layers`, and one list of that many layers.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from shaped_attention.checks import argument_error, real_array
from shaped_attention.results.provenance import recorded
from shaped_attention.torch_models.recording import INPUT, accepts, record_call, stack_outputs

_LISTS = ("layers", "layer", "h", "blocks", "block")
"""Names of the list of layers in models of the library."""


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

    The result has the variables of a sampler's result or, for a model of the `transformers`
    library, of one of `simulate_model`, so `compare` and `plots.trajectories` accept it. Its
    samples are the inputs of one model and share the weights. The law over random weights requires
    one model per sample: give several models, or join results with `xarray.concat` along
    ``sample``.

    Parameters
    ----------
    model
        Model, called once without gradients as ``model(inputs)`` (``model(**inputs)`` for a dict);
        or several, as a list or an iterator that makes one at a time.
    inputs
        Input of the model. For a model of the `transformers` library, token ids (m,) or (batch, m),
        or a dict. Padding positions are recorded too.
    choose
        Function of a module's name and the module that returns whether to record its output (...,
        m, n), or for a tuple its first element. By default the blocks of a `ShapedTransformer`, or
        the layers of a model of the `transformers` library: an object with
        ``config.num_hidden_layers`` and a list of that many layers.
    times
        Time t of the output of each chosen module, positive and increasing. By default a block of a
        `ShapedTransformer` has t = l / n after l layers, and all other modules have positions.
    initial
        Whether to record the input of the first chosen module, as V at t = 0 or position 0.

    Returns
    -------
    xarray.Dataset with `V` (position, sample, row, col), position l after l chosen modules, or
    (time, sample, row, col) with `stopping_time` (sample), infinite; leading axes of outputs are
    flattened to samples, and the coordinate `module` has the names. `compare` and `model_summary`
    accept it, as they accept a result of `simulate_model`.

    For a model of the `transformers` library,

    - `V` before the final norm, with the coordinate `model` (sample), a digest of the weights;
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
    one = isinstance(model, nn.Module | str) or not isinstance(model, Iterable)
    records = []
    for each in [model] if one else model:
        records.append(_record(each, inputs, choose, times, initial))  # noqa: PERF401  (stacklevel)
    if not records:
        raise argument_error("model", "a torch.nn.Module, or several", [])
    if len({tuple(each["V"].transpose("sample", ...).shape[1:]) for each in records}) > 1:
        raise ValueError("model contains models of different depths")
    joined = xr.concat(
        records, "sample", data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    return records[0] if len(records) == 1 else joined.assign_attrs(records[0].attrs)


def _record(
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
                "times can be given only for modules selected by choose; the layers of a model of "
                "the transformers library have positions instead"
            )
        return _record_language_model(model, inputs, initial)
    outputs, _ = record_call(model, inputs, choose or _is_shaped_block, initial=initial)
    v, width = _covariances(outputs), next(iter(outputs.values())).shape[-1]
    modules = [model.get_submodule(name) for name in outputs if name != INPUT]
    ends = [getattr(module, "layers_done", None) for module in modules]
    if times is None and None in ends:
        data = {"V": (("position", "sample", "row", "col"), v)}
        return xr.Dataset(data, _positions(outputs, len(v), initial))
    # A block of a ShapedTransformer knows how many layers end with it.
    known = [x / width for x in ends if x is not None]
    later = known if times is None else _checked_times(times, len(modules))
    return xr.Dataset(
        {
            "V": (("time", "sample", "row", "col"), v),
            "stopping_time": ("sample", np.full(v.shape[1], np.inf)),
        },
        coords={
            "time": np.array([0.0, *later] if initial else later),
            "module": ("time", list(outputs)),
        },
    )


def _positions(outputs: Mapping[str, Tensor], count: int, initial: bool) -> dict[str, Any]:
    """Return the coordinates of recorded modules, of which each is a layer."""
    numbers = np.arange(count) + (not initial)
    return {
        "position": ("position", numbers, {"long_name": "layers"}),
        "module": ("position", list(outputs)),
    }


def _checked_times(times: Sequence[float], count: int) -> list[float]:
    """Return the times of recorded modules as a list; raise ValueError if they are invalid."""
    values = real_array(times, "times")
    grow = values.ndim == 1 and bool((np.diff(values, prepend=0.0) > 0.0).all())
    if not (grow and len(values) == count and np.isfinite(values).all()):
        what = f"{count} positive and increasing numbers, one for each chosen module"
        raise argument_error("times", what, times)
    return values.tolist()


def _is_shaped_block(_name: str, module: nn.Module) -> bool:
    return hasattr(module, "layers_done")


def _covariances(outputs: Mapping[str, Tensor]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return X X^T / n of token streams of one shape, with leading axes flattened to samples."""
    x = stack_outputs(list(outputs.values()))
    return (x @ x.mT / x.shape[-1]).reshape(len(x), -1, *2 * (x.shape[-2],)).numpy()


def layer_names(model: nn.Module) -> list[str]:
    """Return the names of the layers of a language model, or [] if it is not recognised as one.

    They are in a list of `num_hidden_layers` modules. Such a list inside another is not one of
    layers, and a list with a usual name is preferred.

    Raises
    ------
    ValueError
        If several lists remain.
    """
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    depth = getattr(config, "num_hidden_layers", None)
    lists = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == depth
    ]
    outer = [x for x in lists if not any(x.startswith(f"{other}.") for other in lists)]
    layers = [x for x in outer if x.rpartition(".")[2] in _LISTS] or outer
    if len(layers) > 1:
        raise ValueError(
            f"model has several lists of {depth} modules, {' and '.join(layers)}; give choose, a "
            "function that chooses the layers"
        )
    return [f"{name}.{k}" if name else f"{k}" for name in layers for k in range(depth or 0)]


def _record_language_model(model: nn.Module, inputs: Any, initial: bool) -> xr.Dataset:
    """Return what `record_covariances` documents for models of the `transformers` library."""
    _warn_of_dropout(model)
    # Without its head a model returns the tokens after the final norm.
    base = getattr(model, "base_model", model)
    base = base if isinstance(base, nn.Module) and layer_names(base) else model
    names, config = layer_names(base), model.config
    eager = getattr(base.config, "_attn_implementation", None) == "eager"
    reports = eager and accepts(base, "output_attentions")
    outputs, result = record_call(
        base, _on_device(base, inputs), lambda name, _: name in names, initial=initial,
        **({"output_attentions": True} if reports else {}),
    )  # fmt: skip
    v = _covariances(outputs)
    samples, tokens = v.shape[1], v.shape[2]
    data: dict[str, Any] = {"V": (("position", "sample", "row", "col"), v)}
    digest = {"model": ("sample", [_fingerprint(model)] * samples)}
    coords = _positions(outputs, len(v), initial) | digest
    final = getattr(result, "last_hidden_state", None)
    if isinstance(final, Tensor):
        final = final.detach().to("cpu", torch.float64)
        data["V_final"] = (("sample", "row", "col"), _covariances({"": final})[0])
    weights = getattr(result, "attentions", None) or ()
    if len(weights) == len(names) and all(isinstance(x, Tensor) for x in weights):
        # (batch, heads, m, m) in each layer.
        parts = [_entropies_and_counts(x.detach().to("cpu", torch.float64)) for x in weights]
        entropies, counts = (torch.stack(part) for part in zip(*parts, strict=True))
        shape = (len(names), -1, samples, tokens)
        data["attention_entropy"] = (
            ("layer", "head", "sample", "row"), entropies.reshape(shape).numpy()
        )  # fmt: skip
        data["tokens_seen"] = (("layer", "sample", "row"), counts.numpy())
        coords["layer"] = np.arange(1, len(names) + 1)
    name = getattr(config, "_name_or_path", "") or getattr(config, "model_type", "model")
    precision = torch.finfo(next(base.parameters()).dtype).eps
    return xr.Dataset(data, coords, {"precision": precision, "model": f"{name}, recorded"})


def _entropies_and_counts(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entropies (heads, batch, m) of attention weights (batch, heads, m, m).

    Also return the numbers of tokens with positive weights, (batch, m). Masked tokens have the
    weight 0; one that is seen may have it by underflow, so that the largest number over the heads
    counts.
    """
    entropies = torch.special.entr(weights).sum(-1).transpose(0, 1)
    return entropies, (weights > 0.0).sum(-1).amax(1)


def _on_device(model: nn.Module, inputs: Any) -> Any:
    """Return the inputs of a model on its device: token ids (batch, m) as a tensor, or a dict."""
    device = next(model.parameters()).device
    if isinstance(inputs, Mapping):
        return {k: x.to(device) if isinstance(x, Tensor) else x for k, x in inputs.items()}
    try:
        ids = torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError):
        ids = torch.zeros(0)
    if ids.ndim not in (1, 2) or ids.numel() == 0 or ids.is_floating_point() or ids.is_complex():
        what = "token ids (m,) or (batch, m), or a dict of the model's inputs"
        raise argument_error("inputs", what, inputs)
    return torch.atleast_2d(ids).to(device)


def _fingerprint(model: nn.Module) -> str:
    """Return a text that differs between models with different weights."""
    digest = 0
    for weight in model.parameters():
        some = weight.detach().flatten()[:64].to("cpu", torch.float64)
        digest = zlib.crc32(some.numpy().tobytes(), digest)
    return f"{digest:08x}"


def _warn_of_dropout(model: nn.Module) -> None:
    if not model.training:
        return
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    rates.append(getattr(model.config, "attention_dropout", None) or 0.0)
    if max(rates) > 0.0:
        warnings.warn(
            "model is in training mode, with dropout, which the law at initialisation does not "
            "include; model.eval() switches dropout off",
            UserWarning,
            stacklevel=6,
        )
