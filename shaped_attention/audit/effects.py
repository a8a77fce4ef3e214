"""What the parameters make: covariances, entropies, loss and gradients of one draw in their law.

The samples are those of `simulate_model`, which are exact in law. The smallest p-value of a rank
among N samples is 2 / (N + 1), too large for a decision, which takes the tail of the law of the
farthest number (`outlying`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn

from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.audit.parameters import Reading, starred
from shaped_attention.audit.report import Effect
from shaped_attention.blocks.positions import allowed
from shaped_attention.models.gradients import checked_targets
from shaped_attention.models.simulate import simulate_model
from shaped_attention.numerics.covariance import correlations
from shaped_attention.statistics.ranks import ranks
from shaped_attention.torch_models.covariances import layer_names, record_covariances
from shaped_attention.torch_models.recording import accepts

Array = NDArray[np.float64]
Key = tuple[str, int | None]
Ids = NDArray[np.int64]

ENTROPY = "attention entropy in layer *"
GRADIENT = "gradient norm of "
TOTAL: Key = (f"{GRADIENT}all parameters", None)
_LEAST = 1e-6
"""Gradients below this share of the total are rounding errors of ones that vanish."""

_ROUNDED = 8.0
"""Relative errors of what a module computes, in units of its precision."""


def effects_of(
    module: nn.Module, model: Model, ids: Ids, reading: Reading, samples: int, seed: int
) -> tuple[list[Effect], list[str]]:
    """Return the effects of a module's parameters in their law, and what was left out."""
    targets = checked_targets(model.embedding, ids, "next")
    with _evaluated(module):
        draw, norms = _drawn(module, model, ids, targets, reading)
    notes = [] if norms else ["the module gives no gradients, which are left out"]
    law = simulate_model(
        model, ids, samples=samples, seed=seed, targets=targets, progress=False,
        entropy=any(name == ENTROPY for name, _ in draw), accept_approximation=True,
    )  # fmt: skip
    by_name = dict(zip(law.parameter.to_numpy(), law.gradient_norm.to_numpy(), strict=True))
    both = [name for name in norms if name in by_name]
    draw |= _gradients({name: norms[name] for name in both})
    known = _numbers(law) | _gradients({name: by_name[name] for name in both})
    total = float(np.median(known.get(TOTAL, 1.0)))
    shares = {k: float(np.median(x)) / total for k, x in known.items() if k[0].startswith(GRADIENT)}
    keys = [k for k in draw if k in known and shares.get(k, 1.0) > _LEAST]
    x, y = np.array([float(draw[k][0]) for k in keys]), np.stack([known[k] for k in keys], 1)
    precision = _ROUNDED * max(torch.finfo(p.dtype).eps for p in module.parameters())
    room = np.array([precision / shares.get(k, 1.0) for k in keys])
    rank, _ = ranks(x, y)
    own, others = (close_to_normal(keys, z, model, len(ids)) for z in (x, y))
    p = outlying(own, others, room)
    rows = zip(keys, x, np.median(y, axis=0), rank, p, strict=True)
    return [Effect(*key, *map(float, numbers)) for key, *numbers in rows], notes


def outlying(draw: Array, law: Array, rounding: Array) -> Array:
    """Return p-values (k,) of numbers among samples (N, k), corrected for the number k.

    Each number has the Student's t of a further observation. The largest of k for a correct model
    is taken for one of Gumbel's law, whose mean and standard deviation are those of the largest of
    each sample among the others. `rounding` (k,) are standard deviations of rounding errors.
    """
    count, mean, std = len(law), law.mean(0), law.std(0, ddof=1) + 1e-12
    t = np.abs(draw - mean) / np.hypot(std, rounding) / math.sqrt(1.0 + 1.0 / count)
    own = np.abs(law - mean) / std / math.sqrt(1.0 - 1.0 / count)
    largest = (own * np.sqrt((count - 2.0) / (count - 1.0 - own**2))).max(1)
    standard = (t - largest.mean()) / largest.std(ddof=1)
    return np.asarray(-np.expm1(-np.exp(-math.pi / math.sqrt(6.0) * standard - np.euler_gamma)))


def close_to_normal(keys: Sequence[Key], x: Array, model: Model, tokens: int) -> Array:
    """Return numbers (..., k) on scales where they are close to normal."""
    scaled = np.log(np.maximum(x, 1e-300))
    for k, (name, layer) in enumerate(keys):
        if name.startswith("mean cosine"):
            scaled[..., k] = np.arctanh(np.clip(x[..., k], -1.0 + 1e-12, 1.0 - 1e-12))
        if name == ENTROPY:
            blocks = model.layers()[layer or 0]
            seen = allowed(attention_of(blocks[0])[0].mask, tokens).sum(1)
            scaled[..., k] = np.log(np.maximum(np.log(seen).mean() - x[..., k], 1e-12))
    return scaled


@contextmanager
def _evaluated(module: nn.Module) -> Iterator[None]:
    """Switch dropout off, and put the modes and the random state back."""
    modes = [(part, part.training) for part in module.modules()]
    with torch.random.fork_rng():
        module.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode


def _drawn(
    module: nn.Module, model: Model, ids: Ids, targets: Ids, reading: Reading
) -> tuple[dict[Key, Array], dict[str, Array]]:
    """Return the numbers of a module by name and layer, and gradient norms by parameter."""
    device = next(module.parameters()).device
    tokens, goal = (torch.as_tensor(x, device=device)[None] for x in (ids, targets))
    start = {"start_pos": 0} if accepts(module, "start_pos") else {}
    aims = {"targets": goal} if "targets" in inspect.signature(module.forward).parameters else {}
    held = {name: x for name, x in reading.held.items() if x.requires_grad}
    norms: dict[str, Array] = {}
    with torch.enable_grad():
        try:
            output = module(tokens, **start, **aims)
        except Exception as error:
            raise ValueError(f"module(ids) failed: {type(error).__name__}: {error}") from error
        logits = _logits(output, model.embedding.vocabulary)
        loss = nn.functional.cross_entropy(logits.float(), goal[0])
        if loss.requires_grad:
            parts = torch.autograd.grad(loss, [*held.values()], allow_unused=True)
            sizes = [0.0 if g is None else float(g.float().norm()) for g in parts]
            norms = {name: np.array([x]) for name, x in zip(held, sizes, strict=True)}
    if layer_names(module):
        run = record_covariances(module, ids)
    else:
        first = next(iter(inspect.signature(module.forward).parameters))
        layers = {reading.layers.replace("*", str(k)) for k in range(model.depth)}
        run = record_covariances(module, {first: tokens} | start, lambda name, _: name in layers)
    run["loss"] = ("sample", [loss.item()])
    run["logit_std"] = ("sample", [float(logits.detach().double().std(correction=0))])
    return _numbers(run), norms


def _logits(output: Any, vocabulary: int) -> Tensor:
    """Return the logits (m, vocabulary) in what a module returns."""
    logits = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[-1] != vocabulary:
        raise ValueError(f"module(ids) must return logits (1, m, {vocabulary}), or have them first")
    return logits[0]


def _numbers(run: xr.Dataset) -> dict[Key, Array]:
    """Return what is compared of covariances, entropies, logits and loss, each (samples,)."""
    numbers: dict[Key, Array] = {}
    off = ~np.eye(run.sizes["row"], dtype=bool)
    for position, v in enumerate(run.V.transpose("position", "sample", ...).to_numpy()):
        # As in names of parameters, the first layer is 0.
        place, layer = (" after layer *", position - 1) if position else (" of embeddings", None)
        numbers[f"mean square{place}", layer] = np.diagonal(v, axis1=1, axis2=2).mean(1)
        if off.any():
            numbers[f"mean cosine{place}", layer] = correlations(v)[:, off].mean(1)
    if "attention_entropy" in run:
        means = run.attention_entropy.mean(("head", "row")).transpose("layer", "sample")
        numbers |= {(ENTROPY, k): x for k, x in enumerate(means.to_numpy())}
    if "V_final" in run and off.any():
        cosines = correlations(run.V_final.to_numpy())[:, off].mean(1)
        numbers["mean cosine after the final norm", None] = cosines
    numbers["standard deviation of the logits", None] = run.logit_std.to_numpy()
    return numbers | {("loss", None): run.loss.to_numpy()}


def _gradients(norms: Mapping[str, Array]) -> dict[Key, Array]:
    """Return gradient norms by their parameters and layers, and the total one."""
    found = {}
    for name, norm in norms.items():
        star, layer = starred(name)
        found[f"{GRADIENT}{star}", layer] = norm
    return found | {TOTAL: np.sqrt(sum(x**2 for x in norms.values()))} if norms else {}
