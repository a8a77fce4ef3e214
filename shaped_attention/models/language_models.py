"""Covariances and attention of a model of the `transformers` library, layer by layer.

Such a model is recognised by its attributes, so that the library is not needed here: it has a
`config` with `num_hidden_layers`, and one list of so many layers.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from shaped_attention.models.recording import (
    accepts,
    call_model,
    record_outputs,
    stack_outputs,
)

_LISTS = ("layers", "layer", "h", "blocks", "block")
"""Names of the list of layers in models of the library."""


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
    found = [x for x in outer if x.rpartition(".")[2] in _LISTS] or outer
    if len(found) > 1:
        raise ValueError(
            f"model has several lists of {depth} modules, {' and '.join(found)}; choose, a "
            "function that chooses the layers, is needed"
        )
    return [f"{name}.{k}" if name else f"{k}" for name in found for k in range(depth or 0)]


def record_language_model(model: nn.Module, inputs: Any, initial: bool) -> xr.Dataset:
    """Return what `record_covariances` documents for models of the `transformers` library."""
    _warn_of_dropout(model)
    # Without its head a model returns the tokens after the final norm.
    base = getattr(model, "base_model", model)
    base = base if isinstance(base, nn.Module) and layer_names(base) else model
    names, given = layer_names(base), _on_device(base, inputs)
    options = {}
    if _returns_attentions(base):
        options["output_attentions"] = True
    found: list[Any] = []
    outputs = record_outputs(
        base, inputs, lambda name, _: name in names, initial=initial,
        call=lambda: found.append(call_model(base, given, **options)),
    )  # fmt: skip
    v = _covariances(stack_outputs(list(outputs.values())))
    samples, tokens = v.shape[1], v.shape[2]
    data: dict[str, Any] = {"V": (("position", "sample", "row", "col"), v.numpy())}
    coords: dict[str, Any] = {
        "position": ("position", np.arange(len(v)) + (not initial), {"long_name": "layers"}),
        "module": ("position", list(outputs)),
        "model": ("sample", [_fingerprint(model)] * samples),
    }
    final = getattr(found[0], "last_hidden_state", None)
    if isinstance(final, Tensor):
        data["V_final"] = (("sample", "row", "col"), _covariances(final[None])[0].numpy())
    weights = getattr(found[0], "attentions", None) or ()
    if len(weights) == len(names) and all(isinstance(x, Tensor) for x in weights):
        # (batch, heads, m, m) in each layer.
        found_in = [_entropies_and_counts(x.detach().to("cpu", torch.float64)) for x in weights]
        entropies, counts = (torch.stack(part) for part in zip(*found_in, strict=True))
        shape = (len(names), -1, samples, tokens)
        data["attention_entropy"] = (
            ("layer", "head", "sample", "row"), entropies.reshape(shape).numpy()
        )  # fmt: skip
        data["tokens_seen"] = (("layer", "sample", "row"), counts.numpy())
        coords["layer"] = np.arange(1, len(names) + 1)
    attrs = {"precision": torch.finfo(_dtype(base)).eps, "model": f"{_name(model)}, recorded"}
    return xr.Dataset(data, coords, attrs)


def _entropies_and_counts(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entropies (heads, batch, m) of attention weights (batch, heads, m, m).

    Also return the numbers of tokens with positive weights, (batch, m). Masked tokens have the
    weight 0; one that is seen may have it by underflow, so that the largest number over the heads
    counts.
    """
    entropies = torch.special.entr(weights).sum(-1).transpose(0, 1)
    return entropies, (weights > 0.0).sum(-1).amax(1)


def _covariances(x: Tensor) -> Tensor:
    """Return X X^T / n of tokens (layers, ..., m, n), with leading axes flattened to samples."""
    x = x.detach().to("cpu", torch.float64)
    return (x @ x.mT / x.shape[-1]).reshape(len(x), -1, *2 * (x.shape[-2],))


def _on_device(model: nn.Module, inputs: Any) -> Any:
    """Return the inputs of a model: token ids (m,) or (batch, m) as a tensor, or a dict."""
    if isinstance(inputs, Mapping):
        return inputs
    try:
        ids = torch.as_tensor(inputs)
    except (TypeError, ValueError, RuntimeError):
        ids = torch.zeros(0)
    if ids.ndim not in (1, 2) or ids.numel() == 0 or ids.is_floating_point() or ids.is_complex():
        raise ValueError(
            f"inputs={inputs!r:.60}: token ids (m,) or (batch, m), or a dict of the model's "
            "inputs, are needed"
        )
    return torch.atleast_2d(ids).to(next(model.parameters()).device)


def _returns_attentions(model: nn.Module) -> bool:
    eager = getattr(model.config, "_attn_implementation", None) == "eager"
    return eager and accepts(model, "output_attentions")


def _dtype(model: nn.Module) -> torch.dtype:
    return next(model.parameters()).dtype


def _name(model: nn.Module) -> str:
    config: Any = model.config
    return str(getattr(config, "_name_or_path", "") or getattr(config, "model_type", "model"))


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
            "model is in training mode, with dropout; model.eval() switches it off, as in the law "
            "at initialisation",
            UserWarning,
            stacklevel=6,
        )
