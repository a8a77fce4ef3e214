"""Tokens of trained models on the sphere: the cosines between them, layer by layer.

Layer normalisation keeps tokens near a sphere, and self-attention draws them together: the cosines
<x_i, x_j> / (|x_i| |x_j|) of a trained model are expected to drift towards 1 with depth, as
Geshkovski, Letrouit, Polyanskiy and Rigollet show for ALBERT (arXiv 2312.10794).

Models of Hugging Face's transformers are recognised by their signature, so that library is needed
only to use them. The weights of ALBERT are not shipped; `record_hidden_states` takes them from a
folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float64
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from shaped_attention.checks import (
    argument_error,
    check_count,
    check_fraction,
    check_inside,
    real_array,
    with_types,
)
from shaped_attention.io.file_formats import MAX_BYTES
from shaped_attention.io.inputs import read_array, read_example
from shaped_attention.results.provenance import recorded
from shaped_attention.sphere.starts import unit_rows
from shaped_attention.torch_models.pretrained import load_pretrained
from shaped_attention.torch_models.recording import (
    accepts,
    call_model,
    record_outputs,
    stack_outputs,
)

_EXAMPLE = "minilm_hidden_states.npz"
EXAMPLE_MODEL = "all-MiniLM-L6-v2"
"""Name of the model of `example_hidden_states`."""


@with_types
def record_hidden_states(
    model: nn.Module | str | os.PathLike[str],
    inputs: Any,
    choose: Callable[[str, nn.Module], bool] | None = None,
) -> Float64[np.ndarray, "layers *samples tokens features"]:
    """Record the hidden states of every layer of a torch model, in one call without gradients.

    Parameters
    ----------
    model
        Any torch model if `choose` is given. Otherwise a model with the interface of Hugging Face's
        transformers: it accepts ``output_hidden_states=True`` and then returns `hidden_states`, the
        embeddings followed by one array per layer. Its training or evaluation mode is left as it
        is; ``model.eval()`` switches dropout off. A path is a folder with such a model:
        config.json, model.safetensors and, for a text, tokenizer.json, as ``save_pretrained`` of
        model and tokenizer writes them. Nothing is downloaded.
    inputs
        Inputs of the model, called as ``model(inputs)``, or ``model(**inputs)`` for a dict. If
        `model` is a folder, `inputs` may also be a text. Padding positions are recorded too.
    choose
        Function of a module's name and the module that returns whether to record its output (for a
        tuple, the first element).

    Returns
    -------
    ndarray (layers, tokens, features) of float64, or (layers, samples, tokens, features) if the
    model's arrays have an axis of samples.

    Raises
    ------
    ValueError
        If `choose` is needed but missing or selects nothing, the recorded outputs are not tokens of
        one shape, or the text has more tokens than the model has positions.
    FileNotFoundError
        If a folder lacks files, which the message names; it says what ALBERT needs.
    """
    if not isinstance(model, nn.Module | str | os.PathLike):
        raise argument_error("model", "a torch model or a folder with one", model)
    if not isinstance(model, nn.Module):
        model, inputs = load_pretrained(model, inputs)
    if choose is not None:
        return stack_outputs(list(record_outputs(model, inputs, choose).values())).numpy()
    outputs = None
    if accepts(model, "output_hidden_states"):
        result = call_model(model, inputs, output_hidden_states=True)
        outputs = getattr(result, "hidden_states", None)
    if not outputs:
        raise argument_error(
            "choose", f"a function, because {type(model).__name__} returns no hidden_states", choose
        )
    states = [
        state.detach().to("cpu", torch.float64) for state in outputs
        if isinstance(state, Tensor) and state.ndim >= 2 and state.is_floating_point()
    ]  # fmt: skip
    if len(states) != len(outputs) or len({state.shape for state in states}) != 1:
        raise ValueError(
            f"model: the hidden_states of {type(model).__name__} are not all tokens "
            "(..., m, n) of one shape, so choose must say what to record"
        )
    return torch.stack(states).numpy()


@recorded()
def inner_products(
    hidden_states: ArrayLike,
    *,
    bins: int = 80,
    quantiles: Sequence[float] = (0.05, 0.25, 0.75, 0.95),
    delta: float = 0.1,
    model: str = "a trained model",
) -> xr.Dataset:
    """Compute the law of the cosines <x_i, x_j> / (|x_i| |x_j|), i < j, in each layer.

    Parameters
    ----------
    hidden_states
        Tokens (layers, tokens, features) or (layers, samples, tokens, features). Only pairs within
        a sample count, and all samples are pooled.
    bins
        Number of equal bins of [-1, 1].
    quantiles
        Levels of the quantiles, from 0 to 1.
    delta
        Two tokens are close if their cosine is at least 1 - delta; strictly between 0 and 1.
    model
        Name of the model, for the title of the figure.

    Returns
    -------
    xarray.Dataset with `density` (layer, cosine) at the centres of the bins, with integral 1,
    `mean`, `median` and `close` (layer), the last the fraction of close pairs, and `quantile`
    (layer, level). Its `attrs` hold the numbers of tokens, features and samples, delta and the
    name of the model.

    Raises
    ------
    ValueError
        If the shape is invalid, there are fewer than two tokens, an entry is not finite, a
        token is zero, or an argument is outside its range.
    """
    check_count("bins", bins)
    for level in quantiles:
        check_fraction("quantiles", level)
    check_inside("delta", delta)
    states = _checked_states(hidden_states)
    layers, samples, tokens, features = states.shape
    above = np.triu_indices(tokens, 1)
    edges = np.linspace(-1.0, 1.0, bins + 1)
    cosines = np.empty((layers, samples * len(above[0])))
    density = np.empty((layers, bins))
    for layer, state in enumerate(states):
        unit = unit_rows(torch.from_numpy(state)).numpy()
        gram = unit @ unit.swapaxes(-1, -2)
        cosines[layer] = np.clip(gram[:, above[0], above[1]], -1.0, 1.0).ravel()
        density[layer] = np.histogram(cosines[layer], edges, density=True)[0]
    return xr.Dataset(
        {
            "density": (("layer", "cosine"), density),
            "mean": ("layer", cosines.mean(axis=1)),
            "median": ("layer", np.median(cosines, axis=1)),
            "quantile": (("layer", "level"), np.quantile(cosines, quantiles, axis=1).T),
            "close": ("layer", (cosines >= 1.0 - delta).mean(axis=1)),
        },
        coords={
            "layer": np.arange(layers),
            "cosine": (edges[:-1] + edges[1:]) / 2.0,
            "level": [float(level) for level in quantiles],
        },
        attrs={"tokens": tokens, "features": features, "samples": samples},
    )


@with_types
def read_hidden_states(
    path: str | os.PathLike[str], key: str | None = None, *, max_bytes: int = MAX_BYTES
) -> Float64[np.ndarray, "layers *samples tokens features"]:
    """Read hidden states (layers, tokens, features) or (layers, samples, tokens, features).

    Parameters
    ----------
    path
        A ``.npy``, ``.npz`` or ``.pt`` file; nothing is unpickled.
    key
        Name of the array in a ``.npz`` file or of the tensor in a ``.pt`` dictionary. It may be
        omitted if the file holds only one array, or only one numeric array of three or four
        dimensions.
    max_bytes
        Largest number of bytes that the array may have, checked before it is read.

    Raises
    ------
    FileNotFoundError
        If there is no file at `path`.
    ValueError
        As for `shaped_attention.read_tokens`, with three or four dimensions instead of two.
    """
    return read_array(path, key, dimensions=(3, 4), max_bytes=max_bytes)


def example_hidden_states() -> tuple[list[str], Float64[np.ndarray, "7 70 384"]]:
    """Return the first sentences of Moby-Dick as tokens in every layer of a trained model.

    Returns
    -------
    tokens : list of 70 str
        Word pieces, from ``[CLS]`` to ``[SEP]``.
    hidden_states : ndarray (7, 70, 384)
        The embeddings and the six layers of all-MiniLM-L6-v2: float16 numbers, as float64.
        ``shaped_attention/data/README.md`` gives the origin and the licence.
    """
    return read_example(_EXAMPLE, "hidden_states")


def _checked_states(hidden_states: ArrayLike) -> NDArray[np.float64]:
    """Return the states as (layers, samples, tokens, features)."""
    states = real_array(hidden_states, "hidden_states", trained=True)
    if states.ndim not in (3, 4) or 0 in states.shape:
        shapes = "(layers, tokens, features) or (layers, samples, tokens, features)"
        raise argument_error("hidden_states", f"of shape {shapes}", states.shape)
    if states.shape[-2] < 2:
        raise argument_error("hidden_states", "of at least two tokens", states.shape)
    if not np.isfinite(states).all():
        raise ValueError("hidden_states must be finite; they have NaN or infinite entries")
    zero = ~states.any(axis=-1)
    if zero.any():
        place = np.argwhere(zero)[0]
        raise ValueError(
            f"hidden_states contain a zero vector, which has no direction: token {place[-1]} of "
            f"layer {place[0]}, counted from 0"
        )
    return states if states.ndim == 4 else states[:, None]
