"""Samples of the tokens' covariances, layer by layer, in a model at initialisation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

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
from shaped_attention.blocks.base import Block
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.reasons import check_chain
from shaped_attention.libraries import torch
from shaped_attention.numerics.named_numbers import TorchNumbers
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.step import State, covariance, seen_weights
from shaped_attention.samplers.arguments import LARGEST_RADIUS, check_other_seed
from shaped_attention.samplers.loop import run_paths
from shaped_attention.samplers.memory import check_kept
from shaped_attention.samplers.paths import Paths
from shaped_attention.samplers.results import Measure, kept_of, make_result
from shaped_attention.samplers.specification import (
    Options,
    Specification,
    specify,
)
from shaped_attention.samplers.steppers import stepper_of
from shaped_attention.samplers.task import Task, task_of

Array = NDArray[np.float64]


@recorded(sampler="model", written={"model": lambda model: record_of(as_model(model))})
def simulate_model(
    model: Any,
    tokens: int | ArrayLike,
    *,
    samples: int,
    seed: int = 0,
    keep: str = "V",
    entropy: bool = True,
    accept_approximation: bool = False,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float64",
    chunk: int | None = None,
    memory: int | str | None = None,
    progress: bool | None = None,
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
    - `attention_entropy` (layer, head, sample, row) in nats, layers from 1 to L.

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
    options = Options(
        device=device, dtype=dtype, chunk=chunk, memory=memory, keep=keep, progress=progress
    )
    spec = specified(known, tokens, samples, seed, options)
    task = task_of(spec, "model", known.width)
    stepper = stepper_of(spec, task)
    if entropy and stepper.gives_entropies:
        task = replace(task, weights=True)
        stepper = stepper_of(spec, task)
    kept = kept_of(keep, spec.tokens)
    check_kept(spec, kept.numbers(spec.tokens))
    measures: dict[str, Measure] = {"kept": kept}
    if entropy:
        measures["entropy"] = _Entropies(task, spec)
    run = run_paths(spec, stepper, "model", measures, with_state=True)
    result = make_result("model", spec, run, {}, kept.names)
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
    assert run.state is not None
    assert task.width is not None
    final = covariance(normalised(_state(run.state, task), known.final_norm, task.width)).numpy()
    final_attrs = {"long_name": "token covariance after the final norm"}
    result = result.assign(V_final=(("sample", "row", "col"), final, final_attrs))
    if entropy:
        # Those of a layer are known before it from its state, or after it.
        values = run.measured["entropy"][slice(1, None) if task.weights else slice(-1)]
        dims = ("layer", "head", "sample", "row")
        attrs = {"long_name": "entropy of attention", "units": "nats"}
        by_head = np.ascontiguousarray(values.swapaxes(1, 2))
        result = result.assign(attention_entropy=(dims, by_head, attrs))
        result = result.assign_coords(layer=np.arange(1, len(values) + 1))
    return result.assign_attrs(model=str(known), width=known.width)


def specified(
    model: Model, tokens: int | ArrayLike, samples: int, seed: int, options: Options
) -> Specification:
    """Return the specification of a run, whose layers are all stored."""
    start, v0 = _start(model, tokens)
    return specify(
        model.layer, v0, width=model.width, steps=model.depth, dt=1.0, samples=samples, seed=seed,
        options=replace(options, save_every=1, radius=LARGEST_RADIUS),
        embedded=start, start_name="tokens",
    )  # fmt: skip


def _start(model: Model, tokens: Any) -> tuple[EmbeddedStart | None, Array]:
    """Return the law of the initial states and their mean covariance, or None and a given V_0."""
    covariance = None if isinstance(tokens, int) else given_covariance(tokens)
    if covariance is not None:
        return None, covariance
    ids = checked_ids(model.embedding, tokens)
    return EmbeddedStart(model.embedding, ids), mean_covariance(model.embedding, ids)


def _check_heads(model: Model) -> None:
    """Raise ValueError unless all layers begin with attention with the same number of heads."""
    counts = [sum(x.heads for x in attention_of(blocks[0])) for blocks in model.layers()]
    wrong = next((k for k, count in enumerate(counts) if count not in (counts[0] or -1,)), None)
    if wrong is not None:
        raise ValueError(
            f"layer {wrong + 1} of {model} begins with {counts[wrong]} heads of attention, but "
            f"entropy=True needs {f'{counts[0]}, as in layer 1' if counts[0] else 'at least one'}"
        )


@dataclass(frozen=True)
class _Entropies:
    """The entropies of the attention of the layer that follows, or of the last if a step has them.

    Attributes
    ----------
    task, spec
        The task of the paths, and the run.
    """

    task: Task
    spec: Specification

    def __call__(self, paths: Paths, point: int) -> Array:
        """Return the entropies (count, heads, m) of the first block of a layer."""
        task = self.task
        block = task.pattern[point % len(task.pattern)][0]
        if task.weights and point > 0:
            return paths.work.entropies
        if task.weights or point == task.steps:
            heads = sum(x.heads for x in attention_of(block))
            return np.zeros((paths.count, heads, task.tokens))
        factors = paths.factors()
        return np.asarray(paths.stepper.on_host(self._of_next(block, factors, paths.first, point)))

    def _of_next(self, block: Block, factors: Array, first: int, point: int) -> torch.Tensor:
        """Return the entropies of the layer that follows, on the device of the run."""
        task, device = self.task, self.spec.device
        assert task.width is not None
        samples = torch.arange(first, first + len(factors), device=device)
        numbers = TorchNumbers(task.keys, samples, point, place=(0,))
        p, state = at_depth(block, point / task.steps), _state(factors, task, device)
        rows = [
            torch.special.entr(weights).sum(-1)
            for _, weights in seen_weights(block, p, state, numbers, task.width)
        ]
        return torch.stack(rows, dim=1)


def _state(factors: Array, task: Task, device: str | torch.device = "cpu") -> State:
    """Return the state of tokens with given factors (count, groups, m, c)."""
    parts = torch.tensor(np.ascontiguousarray(factors), device=device).unbind(1)
    return State(tuple(parts), task.means)
