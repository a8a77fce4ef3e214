"""Norms of the gradients of a random network at initialisation, exactly in law at any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.blocks.base import Layer, needs_means
from shaped_attention.checks import argument_error, check_choice, check_count
from shaped_attention.lazy.forgetting import Border
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.networks import (
    Weights,
    chunk_of_samples,
    classification,
    start_of,
    through_layer,
)
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.spaces import Frame, Source
from shaped_attention.lazy.tape import Tape
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.specification import MEMORY_BUDGET, Options, Specification, specify

Loss: TypeAlias = str | Callable[[Tensor], Tensor]
OF = ("weights", "tokens", "input")
_SAFETY = 2
"""By how much more the way back takes than what the way forward keeps."""


@recorded(sampler="gradient_norms")
def gradient_norms(
    layer: Layer,
    v0: ArrayLike,
    *,
    width: int,
    depth: int,
    samples: int,
    seed: int = 0,
    loss: Loss = "readout",
    of: str | Sequence[str] = "weights",
    device: str | torch.device = "cpu",
    dtype: str = "float64",
    chunk: int | None = None,
    memory: int = MEMORY_BUDGET,
) -> xr.Dataset:
    """Sample the loss and the norms of its gradients in networks with random weights.

    The gradients are those with respect to matrices of independent N(0, 1) entries, as in
    `simulate_network`: factors such as 1 / sqrt n belong to the network. Forward and backward pass
    are exact in law at the width n, jointly for all parameters, and cost O(m) directions a layer
    whatever the width, besides the hidden units of an MLP.

    Parameters
    ----------
    layer, v0, width, depth, samples, seed
        As in `simulate_chain`; v0 may be singular.
    loss
        "readout": <r, X_L> with independent N(0, 1) entries of r; "quadratic": |f|^2 / 2 with
        f = X_L v / sqrt n and v N(0, 1); "cross-entropy:K": the mean over tokens of the
        cross-entropy of K logits X_L W / sqrt n against class a modulo K of token a; or a function
        of f (samples, m), in torch, that returns the loss (samples,) and does not mix samples.
    of
        Of what the norms are: "weights", "tokens" (all X_l), "input" (X_0), or a list of these.
    device, dtype
        Device of torch, and "float64" or "float32".
    chunk, memory
        Samples that move together, and the bytes that they may take; the result depends on neither.

    Returns
    -------
    Dataset with `loss` (sample) and `gradient_norm` (parameter, sample), Euclidean norms, not
    squared. A parameter is "layer.block.number" of a weight matrix, in the order in which the
    block's branch uses them; "readout", if the loss has one; "tokens.l"; or "input".

    Raises
    ------
    ValueError
        If an argument is invalid, as in `simulate_chain`, `loss` is unknown, or one sample needs
        more than `memory`.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> norms = sa.gradient_norms(
    ...     sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=10**6, depth=3, samples=5
    ... )
    >>> dict(norms.gradient_norm.sizes), str(norms.parameter.values[0])
    ({'parameter': 9, 'sample': 5}, '0.0.0')
    """
    check_count("width", width)
    check_count("depth", depth)
    kinds = (of,) if isinstance(of, str) else tuple(of)
    for kind in kinds:
        check_choice("of", kind, OF)
    classes = _classes(loss)
    spec = specify(
        layer, v0, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        options=Options(device=device, dtype=dtype, memory=memory),
    )  # fmt: skip
    first_layers = _Run(spec, width, min(depth, len(spec.pattern)), 0, 1)
    first_layers.forward(loss, classes)
    layers = -(-depth // len(spec.pattern))
    size = chunk_of_samples(first_layers.entries() * layers * _SAFETY, spec, chunk)
    norms: list[dict[str, Tensor]] = []
    losses = []
    for first in range(0, samples, size):
        run = _Run(spec, width, depth, first, min(size, samples - first))
        losses.append(run.forward(loss, classes))
        norms.append(run.backward(kinds))
    names = list(norms[0])
    whole = {name: torch.cat([x[name] for x in norms]).double().cpu() for name in names}
    return xr.Dataset(
        {
            "loss": (("sample",), torch.cat(losses).double().cpu().numpy()),
            "gradient_norm": (
                ("parameter", "sample"),
                np.stack([whole[name].numpy() for name in names]),
                {"long_name": "Euclidean norm of the gradient"},
            ),
        },
        coords={"parameter": names},
    )


def _classes(loss: Loss) -> int:
    """Return how many logits a loss takes; 0 for the readout."""
    if not isinstance(loss, str):
        return 1
    name, _, number = loss.partition(":")
    if name == "cross-entropy" and number.isdigit() and int(number) > 1:
        return int(number)
    if loss not in ("readout", "quadratic"):
        requirement = "'readout', 'quadratic', 'cross-entropy:K' with K >= 2, or a function of f"
        raise argument_error("loss", requirement, loss)
    return 0 if loss == "readout" else 1


class _Run:
    """Some samples of a network, forward and back."""

    def __init__(self, spec: Specification, width: int, depth: int, first: int, count: int) -> None:
        self._spec, self._depth, self._width = spec, depth, width
        self._source = Source(count, spec.seed, spec.dtype, spec.place, first)
        self._ones = needs_means(spec.blocks)
        self._tokens = [start_of(spec, width, self._source).requires_grad_()]
        self._layers: list[tuple[Tape, Rows, Weights]] = []
        self._borders: list[Border] = []
        self._readout: Matrix | None = None
        self._top: Rows | None = None

    def forward(self, loss: Loss, classes: int) -> Float[Tensor, " B"]:
        """Return the loss, and keep what the way back needs."""
        for number in range(self._depth):
            with Tape() as tape:
                blocks = self._spec.pattern[number % len(self._spec.pattern)]
                matrices = Weights(self._source)
                after = through_layer(self._tokens[-1], blocks, number, self._depth, matrices)
            self._layers.append((tape, after, matrices))
            border = Border(after, self._ones, f"border.{number}")
            self._borders.append(border)
            self._tokens.append(border.rows)
        last = self._tokens[-1]
        if classes == 0:
            # The gradient of <r, X_L> is r.
            draws = self._source.stream("readout").draws()
            fresh = [part.fresh(last.shape[1], draws) for part in last.space]
            self._top = Rows(last.space, tuple(fresh))
            pairs = zip(self._top.parts, last.parts, strict=True)
            return torch.stack([(a * b).sum((1, 2)) for a, b in pairs]).sum(0)
        outputs = Frame(classes, self._source, explicit=True)
        self._readout = Matrix(last.space, outputs, name="readout")
        with Tape() as tape:
            f = (last @ self._readout).entries() / self._width**0.5
            if loss == "quadratic":
                value = 0.5 * (f * f).sum((1, 2))
            elif callable(loss):
                value = checked_loss(loss(f[..., 0]), len(f))
            else:
                labels = torch.arange(f.shape[1], device=f.device) % classes
                value = classification(f, labels)
        tape.backward(value)
        self._top = tape.gradient(last)
        return value.detach()

    def entries(self) -> int:
        """Return how many numbers the way forward keeps."""
        kept = sum(tape.entries() for tape, _, _ in self._layers)
        return kept + sum(w.entries() for _, _, ws in self._layers for w in ws.values())

    def backward(self, kinds: Sequence[str]) -> dict[str, Float[Tensor, " B"]]:
        """Return the norms by parameter, from the first layer to the last."""
        weights: dict[str, Tensor] = {}
        tokens: dict[str, Tensor] = {}
        gradient = self._top
        if self._readout is not None:
            weights["readout"] = self._readout.gradient_norm()
        for number in reversed(range(self._depth)):
            assert gradient is not None
            tokens[f"tokens.{number + 1}"] = gradient.squares().sum((1, 2)).sqrt()
            tape, after, matrices = self._layers.pop()
            tape.add(after, self._borders.pop().down(gradient))
            tape.backward()
            here = {name: w.gradient_norm() for name, w in matrices.items()}
            weights = here | weights
            gradient = tape.gradient(self._tokens[number])
        assert gradient is not None
        first = gradient.squares().sum((1, 2)).sqrt()
        result: dict[str, Tensor] = {}
        if "weights" in kinds:
            result |= weights
        if "tokens" in kinds:
            result |= {"tokens.0": first} | dict(reversed(tokens.items()))
        if "input" in kinds:
            result["input"] = first
        return result


def checked_loss(value: Any, samples: int) -> Tensor:
    """Return the loss of a user's function.

    Raises
    ------
    ValueError
        If it is not one number for each sample that depends on f.
    """
    if not isinstance(value, Tensor) or value.shape != (samples,) or not value.requires_grad:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"loss must return a tensor ({samples},) that depends on f in torch; got {shape}"
        )
    return value
