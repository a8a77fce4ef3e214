"""The coordinate check of muP: sizes in the first training steps, by width or by depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.architectures.reading import as_model, record_of
from shaped_attention.architectures.recipes import BASED
from shaped_attention.architectures.resized import resized
from shaped_attention.architectures.tokens import checked_ids, mean_covariance
from shaped_attention.blocks.parameters import at_depth
from shaped_attention.blocks.positions import allowed
from shaped_attention.checks import argument_error, check_count, check_values
from shaped_attention.lazy.entrywise import check_rule
from shaped_attention.lazy.named_model import LibraryModel
from shaped_attention.lazy.networks import readout_entries
from shaped_attention.lazy.optimizers import SGD
from shaped_attention.lazy.training_run import trained
from shaped_attention.lazy.weights import Weights
from shaped_attention.models.gradients import checked_targets
from shaped_attention.models.mup import with_mup_rates
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.tape import Tape
from shaped_attention.samplers.specification import RunOptions, specify, with_options

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

QUANTITIES = ("embeddings", "residual stream", "attention logits", "logits")

_LEVEL = 0.95
"""Confidence of the intervals of exponents."""


def _as_written(model: Any) -> Any:
    return record_of(as_model(model))


@recorded(written={"model": _as_written})
@with_options(RunOptions)
def coordinate_check(
    model: Any,
    tokens: int | ArrayLike = 8,
    *,
    widths: Sequence[int] | None = None,
    depths: Sequence[int] | None = None,
    init: str | None = None,
    rates: str | None = None,
    optimizer: Any = None,
    targets: ArrayLike | str = "next",
    steps: int = 3,
    samples: int = 8,
    seed: int = 0,
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Measure embeddings, residual stream and logits in the first steps, by width or by depth.

    This is the coordinate check of Yang et al., Tensor Programs V (arXiv 2203.03466), exactly in
    law: a learning rate transfers between widths if the changes do not depend on the width.

    Parameters
    ----------
    model
        Configuration or model as in `simulate_model`. At another width the number of heads, those
        of keys too, and the hidden units change by the same factor; heads keep their size.
    tokens
        Number of different tokens, or token ids (m,).
    widths, depths
        Three or more widths, or depths; one of the two.
    init
        Initialisation as in `model_from_config`; None for that of the model. "mup" and "standard"
        have the smallest width as their base.
    rates
        "mup" for learning rates by group (`with_mup_rates`), or "one" for the optimiser as it is;
        None for "mup" if the initialisation is, and "one" otherwise.
    optimizer
        As in `simulate_training`; None for SGD(0.1).
    targets
        "next", or the token id that each position should predict.
    steps, samples, seed
        Number of training steps; number of models of each size, at least 2; seed.
    device, dtype, chunk, memory, progress
        As in `simulate_training`.

    Returns
    -------
    Dataset with, by `width` or `depth`,

    - `size` (width, step, quantity, sample): the root mean square of the entries of X_0
      ("embeddings"), X_L ("residual stream"), the logits of attention in the last layer that the
      mask leaves, before any bound ("attention logits"), and the logits of the targets' tokens
      ("logits"), since those of a large vocabulary that no position asks for are mostly noise;
    - `change` with the same axes: that of the difference to step 0;
    - `loss` (width, step, sample);
    - `exponent`, `low` and `high` (measure, step, quantity), for the measures "size" and "change":
      the least-squares slope of log size in log width, averaged over samples, and its 95 %
      interval, which adds in squares the t intervals of the slopes of samples, and of the means
      about the line; NaN without a change.

    Raises
    ------
    ValueError
        If an argument is invalid, or a size does not scale to one of the widths.
    FloatingPointError
        If a loss is not finite.
    """
    known, rule = as_model(model), SGD(0.1) if optimizer is None else optimizer
    check_rule(rule)
    axis, places = ("width", widths) if depths is None else ("depth", depths)
    if places is None or (widths is None) == (depths is None):
        raise ValueError("widths, depths: give exactly one of the two")
    check_values(axis + "s", places)
    if len(set(places)) < 3 or len(set(places)) < len(places):
        raise argument_error(axis + "s", "three or more different numbers", places)
    check_count("steps", steps)
    check_count("samples", samples, lowest=2)
    init = init or known.init or None
    if init in BASED:
        init = f"{init}:base={min(places) if axis == 'width' else known.width}"
    of_mup = (init or "").startswith("mup:")
    if rates is None:
        rates = "mup" if of_mup else "one"
    if rates not in ("mup", "one") or (rates == "mup" and not of_mup):
        raise argument_error("rates", "'one', or 'mup' with init='mup'", rates)
    models = [resized(known, axis, n, init) for n in places]
    base = int((init or "").partition("=")[2]) if rates == "mup" else 0
    parts = []
    for sized in models:
        own = with_mup_rates(rule, sized, base) if base else rule
        parts.append(_trained(sized, tokens, targets, own, steps, samples, seed, options))
    result = xr.concat(parts, axis).assign_coords({axis: list(places)})
    logs = np.log(np.asarray(places, dtype=float))
    fits = [_fitted(logs, result[name].to_numpy()) for name in ("size", "change")]
    for k, name in enumerate(("exponent", "low", "high")):
        result[name] = ("measure", "step", "quantity"), np.stack([fit[k] for fit in fits])
    result = result.assign_coords(measure=["size", "change"])
    return result.assign_attrs(
        name=str(known), axis=axis, initialisation=init or "library", rates=rates, rule=repr(rule)
    )


class _Watched(LibraryModel):
    """A model that keeps its last logits, and those of attention in the last layer."""

    logits_now: Tensor
    scores_now: Tensor
    start_numbers: list[Tensor] | None = None

    def through(self, x: Rows, layer: int, weights: Weights | None = None) -> Rows:
        """Return the tokens after a layer."""
        after = super().through(x, layer, weights)
        if layer == self.depth - 1:
            block, tokens = self._layers[layer][0], x
            p, project = at_depth(block, layer / self.depth), self.project(self.weights, layer, 0)
            with Tape.paused():
                seen: Any = block.attention_weights(p, tokens, project, logits=True)  # type: ignore[arg-type]
                scores = torch.stack([logits.detach() for _, logits in seen], dim=1)
            (attention,) = attention_of(block)
            mask = allowed(attention.mask, x.shape[1])
            self.scores_now = scores if mask is None else scores[..., torch.as_tensor(mask)]
        return after

    def outputs(self, x: Rows) -> Tensor:
        """Return the logits (B, m, vocabulary)."""
        logits = super().outputs(x)
        self.logits_now = logits.detach()
        return logits


def _trained(
    model: Model, tokens: Any, targets: Any, rule: Any, steps: int, samples: int, seed: int,
    options: RunOptions,
) -> xr.Dataset:  # fmt: skip
    """Return sizes, changes and losses of one model."""
    ids = checked_ids(model.embedding, tokens)
    goal = torch.as_tensor(checked_targets(model.embedding, ids, targets))
    spec = specify(
        model.layer, mean_covariance(model.embedding, ids), width=model.width, steps=model.depth,
        dt=1.0, samples=samples, seed=seed, **options, start_name="tokens",
    )  # fmt: skip
    readout_entries(model.embedding.vocabulary, spec)

    def measure(network: _Watched, step: xr.Dataset) -> xr.Dataset:
        now = [network.scores_now, network.logits_now[..., goal.unique()]]
        network.start_numbers = network.start_numbers or now
        return _numbers(step, now, network.start_numbers)

    run = trained(spec, goal, lambda source: _Watched(model, ids, source), rule, steps, measure)
    return run.assign_coords(step=np.arange(steps + 1))


def _numbers(step: xr.Dataset, now: list[Tensor], start: list[Tensor]) -> xr.Dataset:
    """Return sizes, changes and losses before a step."""
    ends = [0, -1]
    tokens = np.sqrt(np.diagonal(step["V"].to_numpy(), axis1=2, axis2=3).mean(-1))[ends]
    moved = step["activation_change"].to_numpy()[ends]
    sizes = np.concatenate([tokens, [_root_mean_square(x) for x in now]])
    changes = [_root_mean_square(x - y) for x, y in zip(now, start, strict=True)]
    each = ("quantity", "sample")
    return xr.Dataset(
        {
            "size": (each, sizes),
            "change": (each, np.concatenate([moved, changes])),
            "loss": step["loss"],
        },
        coords={"quantity": list(QUANTITIES)},
    )


def _root_mean_square(x: Tensor) -> Array:
    return x.double().square().flatten(1).mean(1).sqrt().cpu().numpy()


def _fitted(logs: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return the slopes of log values (k, ..., sample) in the logs (k,), and their intervals."""
    from scipy.stats import t

    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(values)
        x = logs - logs.mean()
        slopes = np.tensordot(x, y, 1) / (x @ x)
        exponent, samples, places = slopes.mean(-1), values.shape[-1], len(x)
        means = y.mean(-1)
        rest = means - means.mean(0) - np.multiply.outer(x, exponent)
        of_line = np.sqrt((rest**2).sum(0) / (places - 2) / (x @ x))
    of_samples = slopes.std(-1, ddof=1) / samples**0.5
    quantile = 0.5 + _LEVEL / 2
    half = np.hypot(
        t.ppf(quantile, samples - 1) * of_samples, t.ppf(quantile, places - 2) * of_line
    )
    return exponent, exponent - half, exponent + half
