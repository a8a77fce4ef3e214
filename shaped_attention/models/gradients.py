"""The loss of models at step 0 and its gradients: samples in chunks, as a Dataset."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.architectures.model import Embedding, Model
from shaped_attention.blocks.base import needs_means, pattern_of
from shaped_attention.checks import argument_error
from shaped_attention.lazy.networks import chunk_of_samples, in_chunks, readout_entries
from shaped_attention.lazy.step_zero import ModelAtStart, StepZero
from shaped_attention.numerics.threads import few_threads
from shaped_attention.progress import progress_bar
from shaped_attention.rows.sources import Source
from shaped_attention.samplers.specification import Specification

Ids = NDArray[np.int64]

_GOING_BACK = 2
"""Extra memory of the backward pass, in periods of layers."""


def with_gradients(
    model: Model, ids: Ids, targets: ArrayLike | str, spec: Specification, entropy: bool,
    gains: bool,
) -> xr.Dataset:  # fmt: skip
    """Return the result of `simulate_model` with targets."""
    if np.isin(ids, model.embedding.zero_ids).all():
        raise argument_error("tokens", "ids of which one is not padding, with targets", ids)
    goal = checked_targets(model.embedding, ids, targets)
    means = needs_means(list(chain.from_iterable(model.layers())))
    logits = readout_entries(model.embedding.vocabulary, spec)

    def made(first: int, count: int) -> ModelAtStart:
        source = Source(count, spec.seed, spec.dtype, spec.place, first, spec.memory, gains)
        return ModelAtStart(model, ids, source, means, entropy)

    total = 2 * model.depth * spec.samples
    with progress_bar("layers", spec.progress, total=total, unit="layer", unit_scale=True) as bar:
        period = len(pattern_of(model.layer))
        with few_threads(0):
            probe = made(0, 1).forward(layers=min(period, model.depth))
        periods = -(-model.depth // period)
        entries = probe.entries() * (periods + _GOING_BACK) + logits
        of_operand = probe.entries() / probe.operands()
        size = chunk_of_samples(entries, spec, "fewer tokens or layers")

        def step(first: int, count: int) -> StepZero:
            network = made(first, count)
            network.forward(bar.update)
            return network.step(goal)

        parts = in_chunks(spec, size, of_operand, step)
    result = xr.concat([_dataset(x) for x in parts], "sample", data_vars="minimal")
    numbers = result.gradient_norm.to_numpy()
    if not (np.isfinite(numbers).all() and np.isfinite(result.loss).all()):
        raise FloatingPointError(f"the loss of {model} or a gradient is not finite")
    result = result.assign_coords(token=("row", ids), target=("row", goal))
    return result.assign_attrs(model=str(model), width=model.width)


def checked_targets(embedding: Embedding, ids: Ids, targets: ArrayLike | str) -> Ids:
    """Return the targets (m,) of tokens; raise ValueError if they are none."""
    if isinstance(targets, str) and targets == "next":
        order = np.random.default_rng(0).permutation(embedding.vocabulary)
        spare = order[~np.isin(order, ids)]
        if not spare.size:
            what = "token ids, since the text has the whole vocabulary"
            raise argument_error("targets", what, targets)
        return np.append(ids[1:], spare[0])
    goal, most = np.asarray(targets), embedding.vocabulary - 1
    if goal.shape != ids.shape or goal.dtype.kind not in "iu":
        what = f"'next', or {len(ids)} token ids, one for each position"
        raise argument_error("targets", what, targets)
    outside = goal[(goal < 0) | (goal > most)]
    if outside.size:
        raise argument_error("targets", f"ids in [0, {most}]", int(outside[0]))
    return goal.astype(np.int64)


def _dataset(step: StepZero) -> xr.Dataset:
    norms = torch.stack(list(step.norms.values())).double().cpu().numpy()
    tokens = ("row", "col")
    data: dict[str, Any] = {
        "V": (("position", "sample", *tokens), _numpy(step.covariances)),
        "V_final": (("sample", *tokens), _numpy(step.final),
                    {"long_name": "token covariance after the final norm"}),
        "loss": (("sample",), _numpy(step.loss), {"units": "nats"}),
        "logit_std": (("sample",), _numpy(step.logit_std),
                      {"long_name": "standard deviation of the logits"}),
        "gradient_norm": (("parameter", "sample"), norms,
                          {"long_name": "Euclidean norm of the gradient"}),
        "global_norm": (("sample",), np.sqrt((norms**2).sum(0)),
                        {"long_name": "Euclidean norm of all gradients"}),
    }  # fmt: skip
    if step.entropies:
        entropies = torch.stack(step.entropies).transpose(1, 2)
        data["attention_entropy"] = (
            ("layer", "head", "sample", "row"), _numpy(entropies),
            {"long_name": "entropy of attention", "units": "nats"},
        )  # fmt: skip
    layers = len(step.covariances)
    coords: dict[str, Any] = {
        "position": ("position", np.arange(layers), {"long_name": "number of layers"}),
        "parameter": list(step.norms),
        "size": ("parameter", [step.sizes[name] for name in step.norms]),
    }
    if step.entropies:
        coords["layer"] = np.arange(1, layers)
    return xr.Dataset(data, coords)


def _numpy(x: torch.Tensor) -> NDArray[np.float64]:
    return x.detach().double().cpu().numpy()
