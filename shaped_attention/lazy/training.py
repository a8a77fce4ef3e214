"""Training steps of networks with random weights, exactly in law at any width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.architectures.parameter_names import names_of
from shaped_attention.architectures.reading import as_model, record_of
from shaped_attention.architectures.tokens import checked_ids, mean_covariance
from shaped_attention.blocks.base import Block, Pattern
from shaped_attention.checks import argument_error, check_count
from shaped_attention.lazy.entrywise import RULES, check_rule
from shaped_attention.lazy.named_model import LibraryModel
from shaped_attention.lazy.networks import readout_entries
from shaped_attention.lazy.optimizers import SGD
from shaped_attention.lazy.training_run import LayerNetwork, Network, trained
from shaped_attention.results.plain_arguments import storable
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.sources import Source
from shaped_attention.samplers.specification import (
    RunOptions,
    Specification,
    specify,
    with_options,
)

Array = NDArray[np.float64]


def _as_written(layer: Any) -> Any:
    """Return what the record of a run holds of a layer or model."""
    return layer if _is_layer(layer) else record_of(as_model(layer, "layer"))


@recorded(sampler="training", written={"layer": _as_written})
@with_options(RunOptions)
def simulate_training(
    layer: Any,
    tokens: int | ArrayLike,
    targets: ArrayLike,
    *,
    width: int | None = None,
    depth: int | None = None,
    samples: int,
    steps: int = 3,
    optimizer: Any = None,
    classes: int | None = None,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Sample the first training steps of networks with random weights, or of a model.

    The samples are exact in law at the width n: a weight matrix is a Gaussian matrix, drawn only in
    the directions that the computation meets, plus matrices of low rank. The cost depends on n only
    through the hidden units.

    Parameters
    ----------
    layer
        Block, list of blocks or pattern, as in `simulate_chain`: all weights, the biases and the
        readout are trained; the tokens are not. The gradients are those with respect to matrices of
        independent N(0, 1) entries, as in `gradient_norms`. Or a model as in `simulate_model`, of
        any family of `model_from_config`: the parameters have the library's names, scale and
        shapes; all of them except the gains of norms are trained, including embeddings, tied or
        not, and biases, which start at 0.
    tokens
        For a layer, the covariance V_0 (m, m) of the tokens X_0, or one per sample. For a model,
        token ids (m,) of one text, or a number of different tokens.
    targets
        Class of each token (m,), integers from 0: position i has targets[i], not the next token.
        The loss is the mean of the cross-entropies of the logits, which are X_L W / sqrt n, or
        those of the model, whose classes are its vocabulary. For a layer, targets may also be real
        numbers (m,); the loss is then |f - target|^2 / 2 with f = X_L v / sqrt n.
    width, depth
        Numbers n and L; None for a model, which has its own.
    samples, seed
        As in `simulate_chain`.
    steps
        Number of training steps.
    optimizer
        `SGD`, `Muon`, `AdamW` or `Lion`; None for SGD(1.0), a large rate for a model with the
        library's scale. With `AdamW` and `Lion`, which act on entries, the gains of a model's norms
        (except those of queries and keys) are trained too, the tokens of a layer are in a uniformly
        distributed position, and a step takes time in proportion to the entries of the matrices,
        but no memory.
    classes
        Number of classes; None for the largest target plus 1, and at least 2, or the vocabulary.
    device, dtype, chunk, memory, progress
        As in `gradient_norms`.

    Returns
    -------
    Dataset with steps + 1 entries along `step`; entry s is before update s + 1.
        `loss` (step, sample); `gradient_norm` and `update_norm` (step, parameter, sample),
        Euclidean norms, of which `update_norm` leaves out weight decay; `V` (step, position,
        sample, row, col), position l after layer l; `activation_change` (step, position, sample),
        the root mean square of the entries of X_l minus those at step 0; and `directions` (step),
        the number of directions in the frame of the tokens.

    Raises
    ------
    ValueError
        If an argument is invalid, or one sample needs more than `memory`.
    FloatingPointError
        If a loss is not finite.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> run = sa.simulate_training(
    ...     sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), [0, 1], width=10**6, depth=2,
    ...     samples=3, steps=2, optimizer=sa.SGD(0.5),
    ... )
    >>> dict(run.loss.sizes), bool((run.loss[-1] < run.loss[0]).all())
    ({'step': 3, 'sample': 3}, True)
    """
    check_count("steps", steps)
    rule = SGD(1.0) if optimizer is None else optimizer
    check_rule(rule)
    named = (tokens, targets, width, depth, classes, samples, seed, options)
    make = _of_layer if _is_layer(layer) else _of_model
    spec, goal, network = make(layer, *named)
    result = trained(spec, goal, network, rule, steps)
    result = result.assign_coords(
        step=np.arange(steps + 1), position=np.arange(result.sizes["position"])
    )
    return result.transpose("step", "position", "parameter", "sample", ...)


def _is_layer(layer: Any) -> bool:
    return isinstance(layer, Block | Pattern | list | tuple)


Made = tuple[Specification, Tensor, Callable[[Source], Network]]


def _of_layer(
    layer: Any, tokens: Any, targets: ArrayLike, width: int | None, depth: int | None,
    classes: int | None, samples: int, seed: int, options: RunOptions,
) -> Made:  # fmt: skip
    """Return the specification, the targets, and what makes networks of a layer."""
    if width is None or depth is None:
        name = "width" if width is None else "depth"
        raise argument_error(name, f"an integer >= 1, since a layer does not fix its {name}", None)
    spec = specify(
        layer, tokens, width=width, steps=depth, samples=samples, seed=seed,
        **options, start_name="tokens",
    )  # fmt: skip
    goal, outputs = _targets(targets, spec.tokens, classes)
    readout_entries(outputs, spec)
    return spec, goal, lambda source: LayerNetwork(spec, width, depth, outputs, source)


def _of_model(
    model: Any, tokens: Any, targets: ArrayLike, width: int | None, depth: int | None,
    classes: int | None, samples: int, seed: int, options: RunOptions,
) -> Made:  # fmt: skip
    """Return the specification, the targets, and what makes networks of a model."""
    known = as_model(model, "layer")
    names_of(known)
    for name, value, its in (("width", width, known.width), ("depth", depth, known.depth)):
        if value not in (None, its):
            raise argument_error(name, f"None or {its}, the {name} of {known}", value)
    ids, vocabulary = checked_ids(known.embedding, tokens), known.embedding.vocabulary
    if np.isin(ids, known.embedding.zero_ids).any():
        raise argument_error("tokens", "ids other than that of padding, which is not trained", ids)
    if classes not in (None, vocabulary):
        raise argument_error(
            "classes", f"None or {vocabulary}, the size of the vocabulary", classes
        )
    if np.asarray(targets).dtype.kind == "f":
        raise argument_error("targets", "integers, token ids", targets)
    goal, _ = _targets(targets, len(ids), vocabulary)
    spec = specify(
        known.layer, mean_covariance(known.embedding, ids), width=known.width, steps=known.depth,
        dt=1.0, samples=samples, seed=seed, **options, start_name="tokens",
    )  # fmt: skip
    readout_entries(vocabulary, spec)
    return spec, goal, lambda source: LibraryModel(known, ids, source)


def _targets(targets: ArrayLike, tokens: int, classes: int | None) -> tuple[Tensor, int]:
    """Return targets as a tensor, and the number of outputs."""
    goal = np.asarray(targets)
    if goal.dtype.kind not in "iuf":
        raise argument_error("targets", "classes 0, 1, ..., or real numbers", targets)
    if classes is not None:
        check_count("classes", classes, lowest=2)
    if goal.dtype.kind == "f" and classes is not None:
        raise argument_error("targets", f"integers, since classes={classes} is given", targets)
    if goal.shape != (tokens,) or not np.isfinite(goal).all():
        requirement = f"({tokens},) finite numbers, one for each token"
        raise argument_error("targets", requirement, goal)
    if goal.dtype.kind == "f":
        return torch.tensor(goal, dtype=torch.float64), 1
    largest = max(2, int(goal.max()) + 1)
    if goal.min() < 0 or (classes is not None and classes < largest):
        raise argument_error("targets", f"classes 0, ..., {(classes or largest) - 1}", goal)
    return torch.tensor(goal, dtype=torch.int64), classes or largest


for _rule in RULES:
    storable(_rule)
