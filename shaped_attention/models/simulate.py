"""Samples of the tokens' covariances, layer by layer, in a model at initialisation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.architectures.reading import as_model, record_of
from shaped_attention.architectures.tokens import (
    EmbeddedStart,
    checked_ids,
    given_covariance,
    mean_covariance,
    normalised,
)
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.reasons import check_chain
from shaped_attention.checks import argument_error
from shaped_attention.libraries import torch
from shaped_attention.models.gradients import with_gradients
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.step import State, covariance, seen_weights
from shaped_attention.samplers.arguments import LARGEST_RADIUS, check_other_seed
from shaped_attention.samplers.loop import sample
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.specification import (
    RunOptions,
    Specification,
    Start,
    specify,
    with_options,
)
from shaped_attention.samplers.steppers import stepper_of

Array = NDArray[np.float64]


@recorded(sampler="model", written={"model": lambda model: record_of(as_model(model))})
@with_options(RunOptions)
def simulate_model(
    model: Any,
    tokens: int | ArrayLike,
    *,
    samples: int,
    seed: int = 0,
    targets: ArrayLike | str | None = None,
    gains: bool = False,
    keep: str = "V",
    entropy: bool = True,
    accept_approximation: bool = False,
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Sample the covariances of tokens after every layer of a model at initialisation.

    The law is exactly that of models made from the configuration, with independent weights for each
    sample and dropout off. The cost does not grow with the number of features, except through the
    hidden units of the MLP. On the CPU in float64, compiled code runs 64 samples at once. From 96
    tokens on, or if a layer draws at least 32,768 random numbers, library routines are used
    instead. Both agree up to rounding; the choice depends neither on chunks and threads nor on the
    number of samples.

    Parameters
    ----------
    model
        A `Model`, or a configuration as in `model_from_config`.
    tokens
        Number m of distinct tokens; their token ids (m,), where equal ids have equal embeddings; or
        a covariance V_0 (m, m), or one per sample (samples, m, m), of the tokens that enter the
        first layer. An array of integers (m,) is a list of ids.
    samples
        Number of independent models.
    seed
        Integer >= 0. Together with the arguments above it determines the result.
    targets
        Token ids (m,): the loss is the mean over positions i of the cross-entropy of the logits
        there against targets[i]. "next" takes the token at i + 1, and at the last position a random
        one. None leaves out the loss and its gradients. With targets, samples come from a forward
        and backward pass and differ from those without.
    gains
        Whether the gains of norms, except those of queries and keys, have gradients with targets.
        All features are then explicit, and the cost grows with their number.
    keep
        What to store at each position: "V"; "observables", all of `observables` as `kept`
        (position, sample, observable); or "module:function", a function from V (samples, m, m) to
        numbers (samples,).
    entropy
        Whether to store the entropy of the attention weights of each token, in the first block of
        every layer. This computes queries and keys a second time.
    accept_approximation
        Whether to run a model whose initialisation is not Gaussian (`Model.approximations`), with
        Gaussian weights of the same variance.
    device, dtype, chunk, memory, progress
        As in `simulate_chain`.

    Returns
    -------
    xarray.Dataset with

    - `V` (position, sample, row, col) or `kept`: position 0 is the embedding, l the tokens after l
      layers, before the final norm;
    - `V_final` (sample, row, col) after the final norm;
    - `attention_entropy` (layer, head, sample, row) in nats, layers from 1 to L;
    - with targets `loss` and `logit_std` (sample), the standard deviation of all logits;
      `gradient_norm` (parameter, sample), Euclidean norms under the library's names; and
      `global_norm` (sample) of all of them. The coordinate `size` (parameter)
      has their numbers of entries, and `target` (row) the targets.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the model's initialisation is not Gaussian and
        `accept_approximation` is False.
    FloatingPointError
        If covariances overflow.
    """
    check_other_seed(tokens, "model", seed, "tokens")
    known = as_model(model)
    if known.approximations and not accept_approximation:
        raise ValueError(
            f"the initialisation of {known} is not Gaussian ({'; '.join(known.approximations)}); "
            "accept_approximation=True runs the model with Gaussian weights of the same variance"
        )
    check_chain(known.layer)
    if entropy:
        _check_heads(known)
    if gains and targets is None:
        raise argument_error("gains", "False without targets", gains)
    if targets is not None:
        if keep != "V":
            raise argument_error("keep", "'V' with targets", keep)
        if np.ndim(tokens) > 1:
            what = "a number of tokens or token ids, with targets"
            raise argument_error("tokens", what, tokens)
        ids = checked_ids(known.embedding, tokens)
        spec = specified(known, ids, samples, seed, keep, **options)
        return with_gradients(known, ids, targets, spec, entropy, gains)
    spec = specified(known, tokens, samples, seed, keep, **options)
    stepper = stepper_of(spec)
    if entropy and stepper.gives_entropies:
        spec = replace(spec, weights=True)
        stepper = stepper_of(spec)
    measures = {"entropy": partial(_entropies, spec)} if entropy else {}
    result, values = sample(stepper, {}, measures, with_state=True)
    stopped = int(np.isfinite(result.stopping_time.to_numpy()).sum())
    if stopped:
        raise FloatingPointError(
            f"the covariances of {stopped} of {samples} samples of {known} exceed "
            f"{LARGEST_RADIUS:g}; a smaller initializer_range or fewer layers would keep them from "
            "overflowing"
        )
    result = result.drop_vars(["stopping_time", "initial_covariance"], errors="ignore")
    result = result.rename(time="position").assign_coords(
        position=("position", np.arange(known.depth + 1), {"long_name": "number of layers"})
    )
    for name in ("radius", "horizon", "steps", "specification"):
        del result.attrs[name]
    state = _state(values["state"], spec)
    final = covariance(normalised(state, known.final_norm, known.width)).numpy()
    final_attrs = {"long_name": "token covariance after the final norm"}
    result = result.assign(V_final=(("sample", "row", "col"), final, final_attrs))
    if entropy:
        # Those of a layer are known before it from its state, or after it.
        entropies = values["entropy"][slice(1, None) if spec.weights else slice(-1)]
        dims = ("layer", "head", "sample", "row")
        attrs = {"long_name": "entropy of attention", "units": "nats"}
        by_head = np.ascontiguousarray(entropies.swapaxes(1, 2))
        result = result.assign(attention_entropy=(dims, by_head, attrs))
        result = result.assign_coords(layer=np.arange(1, len(entropies) + 1))
    return result.assign_attrs(model=str(known), width=known.width)


def specified(
    model: Model, tokens: int | ArrayLike, samples: int, seed: int, keep: str,
    **options: Unpack[RunOptions],
) -> Specification:  # fmt: skip
    """Return the specification of a run, whose layers are all stored."""
    start, v0 = _start(model, tokens)
    return specify(
        model.layer, v0, width=model.width, steps=model.depth, dt=1.0, samples=samples, seed=seed,
        save_every=1, radius=LARGEST_RADIUS, sampler="model", embedded=start, start_name="tokens",
        keep=keep, **options,
    )  # fmt: skip


def _start(model: Model, tokens: Any) -> tuple[Start | None, Array]:
    """Return the law of the initial states and their mean covariance, or None and a given V_0."""
    covariance = None if isinstance(tokens, int) else given_covariance(tokens)
    if covariance is not None:
        return None, covariance
    ids = checked_ids(model.embedding, tokens)
    return EmbeddedStart(model.embedding, ids).states, mean_covariance(model.embedding, ids)


def _check_heads(model: Model) -> None:
    """Raise ValueError unless all layers begin with attention with the same number of heads."""
    counts = [sum(x.heads for x in attention_of(blocks[0])) for blocks in model.layers()]
    wrong = next((k for k, count in enumerate(counts) if count not in (counts[0] or -1,)), None)
    if wrong is not None:
        raise ValueError(
            f"layer {wrong + 1} of {model} begins with {counts[wrong]} heads of attention, but "
            f"entropy=True needs {f'{counts[0]}, as in layer 1' if counts[0] else 'at least one'}"
        )


def _entropies(spec: Specification, paths: Paths, point: int) -> Array:
    """Return the entropies (count, heads, m) of the attention in the first block of a layer.

    It is the layer that follows, or the last one if a step has its weights.
    """
    block = spec.pattern[point % len(spec.pattern)][0]
    if spec.weights and point > 0:
        return paths.work.entropies
    if spec.weights or point == spec.steps:
        heads = sum(x.heads for x in attention_of(block))
        return np.zeros((paths.count, heads, spec.tokens))
    assert spec.width is not None
    samples = torch.arange(paths.first, paths.first + paths.count, device=spec.device)
    numbers = TorchNumbers(spec.keys, samples, point, place=(0,))
    p, state = at_depth(block, point / spec.steps), _state(paths.factors(), spec, spec.device)
    rows = [
        torch.special.entr(weights).sum(-1)
        for _, weights in seen_weights(block, p, state, numbers, spec.width)
    ]
    return torch.stack(rows, dim=1).cpu().numpy()


def _state(factors: Array, spec: Specification, device: str | torch.device = "cpu") -> State:
    """Return the state of tokens with given factors (count, groups, m, c)."""
    parts = torch.tensor(np.ascontiguousarray(factors), device=device).unbind(1)
    return State(tuple(parts), spec.means)
