"""What the parameters make: covariances, entropies, loss and gradients of one draw in their law.

Each number of the module is compared with samples of `simulate_model`, which are exact in law. The
smallest p-value of a rank among N samples is 2 / (N + 1), so the decision takes numbers on a scale
where they are close to normal: Student's t of a further observation, with Bonferroni's correction,
and only of numbers outside of all samples.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from shaped_attention.architectures.model import Model
from shaped_attention.audit.parameters import Reading, starred
from shaped_attention.audit.report import Effect
from shaped_attention.models.gradients import checked_targets
from shaped_attention.models.simulate import simulate_model
from shaped_attention.numerics.covariance import correlations
from shaped_attention.statistics.ranks import ranks
from shaped_attention.torch_models.covariances import layer_names, record_covariances
from shaped_attention.torch_models.recording import accepts

Array = NDArray[np.float64]
Key = tuple[str, int | None]
Ids = NDArray[np.int64]

_GRADIENT = "gradient norm of "
_TOTAL: Key = (f"{_GRADIENT}all parameters", None)
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
        draw, notes = _drawn(module, model, ids, targets, reading)
    law = simulate_model(
        model, ids, samples=samples, seed=seed, targets=targets, progress=False,
        entropy=any(name == "attention entropy" for name, _ in draw), accept_approximation=True,
    )  # fmt: skip
    by_name = dict(zip(law.parameter.to_numpy(), law.gradient_norm.to_numpy(), strict=True))
    known = _numbers(law) | _gradients(
        {names: np.sqrt(sum(by_name[x] ** 2 for x in names))
         for names in reading.holders if {*names} <= by_name.keys()}
    )  # fmt: skip
    if _TOTAL in draw:
        total = float(np.median(known[_TOTAL]))
        known = {k: x for k, x in known.items()
                 if not k[0].startswith(_GRADIENT) or np.median(x) > _LEAST * total}  # fmt: skip
    keys = [key for key in draw if key in known]
    x, y = (
        np.array([float(draw[key][0]) for key in keys]),
        np.stack([known[key] for key in keys], 1),
    )
    precision = _ROUNDED * max(torch.finfo(p.dtype).eps for p in module.parameters())
    room = [precision * (total / np.median(known[key]) if key[0].startswith(_GRADIENT) else 1.0)
            for key in keys]  # fmt: skip
    scales = [_scale(key[0]) for key in keys]
    own = np.array([scale(v) for scale, v in zip(scales, x, strict=True)])
    others = np.stack([scale(v) for scale, v in zip(scales, y.T, strict=True)], 1)
    rank, _ = ranks(x, y)
    rows = zip(
        keys, x, np.median(y, axis=0), rank, outlying(own, others, np.array(room)), strict=True
    )
    return [Effect(*key, *map(float, numbers)) for key, *numbers in rows], notes


def outlying(draw: Array, law: Array, rounding: Array) -> Array:
    """Return p-values (k,) of numbers among samples (N, k), corrected for the number k.

    `rounding` (k,) are standard deviations of rounding errors of the numbers.
    """
    count = len(law)
    spread = np.hypot(law.std(0, ddof=1), rounding) * math.sqrt(1.0 + 1.0 / count)
    t = (draw - law.mean(0)) / spread
    p = np.minimum(1.0, 2.0 * len(draw) * stats.t.sf(np.abs(t), count - 1))
    inside = (draw >= law.min(0)) & (draw <= law.max(0))
    return np.where(inside, 1.0, p)


def _scale(name: str) -> Callable[[Any], Any]:
    """Return the scale on which an effect is close to normal."""
    if name.endswith("cosine"):
        return lambda x: np.arctanh(np.clip(x, -1.0 + 1e-12, 1.0 - 1e-12))
    return np.asarray if name == "attention entropy" else lambda x: np.log(np.maximum(x, 1e-300))


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
) -> tuple[dict[Key, Array], list[str]]:
    """Return the numbers of a module, by name and layer, and what was left out."""
    device = next(module.parameters()).device
    tokens, goal = (torch.as_tensor(x, device=device)[None] for x in (ids, targets))
    start = {"start_pos": 0} if accepts(module, "start_pos") else {}
    aims = {"targets": goal} if "targets" in inspect.signature(module.forward).parameters else {}
    held = {name: x for name, x in reading.holders.items() if x.requires_grad}
    with torch.enable_grad():
        logits = _logits(module(tokens, **start, **aims), model.embedding.vocabulary)
        loss = nn.functional.cross_entropy(logits.float(), goal[0])
        found, notes = dict[Key, Array](), list[str]()
        if loss.requires_grad:
            parts = torch.autograd.grad(loss, [*held.values()], allow_unused=True)
            norms = [0.0 if g is None else float(g.double().norm()) for g in parts]
            found = _gradients({x: np.array([y]) for x, y in zip(held, norms, strict=True)})
        else:
            notes = ["the module gives no gradients, which are left out"]
    if layer_names(module):
        run = record_covariances(module, ids)
    else:
        first = next(iter(inspect.signature(module.forward).parameters))
        layers = {reading.layers.replace("*", str(k)) for k in range(model.depth)}
        run = record_covariances(module, {first: tokens} | start, lambda name, _: name in layers)
    run["loss"] = ("sample", [loss.item()])
    run["logit_std"] = ("sample", [float(logits.detach().double().std(correction=0))])
    return _numbers(run) | found, notes


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
    for layer, v in enumerate(run.V.transpose("position", "sample", ...).to_numpy()):
        numbers["mean square", layer] = np.diagonal(v, axis1=1, axis2=2).mean(1)
        if off.any():
            numbers["mean cosine", layer] = correlations(v)[:, off].mean(1)
    if "attention_entropy" in run:
        means = run.attention_entropy.mean(("head", "row")).transpose("layer", "sample")
        numbers |= {("attention entropy", k + 1): x for k, x in enumerate(means.to_numpy())}
    if "V_final" in run and off.any():
        numbers["final mean cosine", None] = correlations(run.V_final.to_numpy())[:, off].mean(1)
    numbers["standard deviation of the logits", None] = run.logit_std.to_numpy()
    return numbers | {("loss", None): run.loss.to_numpy()}


def _gradients(norms: Mapping[tuple[str, ...], Array]) -> dict[Key, Array]:
    """Return gradient norms by their parameters and layers, and the total one."""
    found = {}
    for names, norm in norms.items():
        name, layer = starred(" and ".join(names))
        found[f"{_GRADIENT}{name}", None if layer is None else layer + 1] = norm
    return found | {_TOTAL: np.sqrt(sum(x**2 for x in norms.values()))}
