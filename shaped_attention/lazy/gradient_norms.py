"""Norms of the gradients of a random network at initialisation, exactly in law at any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, Unpack

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from shaped_attention.blocks.base import Layer, pattern_of
from shaped_attention.checks import argument_error, check_choice
from shaped_attention.lazy.deep import LayerGradients, total_norm
from shaped_attention.lazy.deep_runs import Network, deep_networks
from shaped_attention.lazy.low_rank import length
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.lazy.networks import classification, matrix_names
from shaped_attention.results.provenance import recorded
from shaped_attention.rows.coordinates import inner
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.spaces import Frame
from shaped_attention.rows.tape import Tape
from shaped_attention.samplers.specification import RunOptions, with_options

Loss: TypeAlias = str | Callable[[Tensor], Tensor]
OF = ("weights", "tokens", "input")


@recorded(sampler="gradient_norms")
@with_options(RunOptions)
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
    **options: Unpack[RunOptions],
) -> xr.Dataset:
    """Sample the loss and the norms of its gradients in networks with random weights.

    The gradients are those with respect to matrices of independent N(0, 1) entries, as in
    `simulate_network`: factors such as 1 / sqrt n belong to the network. The forward and backward
    passes are exact in law at the width n, jointly for all parameters, and cost O(m) directions per
    layer whatever the width, except for the hidden units of an MLP.

    Parameters
    ----------
    layer, v0, width, depth, samples, seed
        As in `simulate_chain`; v0 may be singular. X_0 is uniformly rotated, which only a branch
        that acts on single entries of the tokens notices. For a model, pass `model.layer` and
        `model.width`: gamma and tau0 of its blocks belong to this width, so for another width, read
        the configuration again with it.
    loss
        "readout": <r, X_L> with independent N(0, 1) entries of r; "quadratic": |f|^2 / 2 with f =
        X_L v / sqrt n and N(0, 1) entries of v; "cross-entropy:K": the mean over tokens of the
        cross-entropy of K logits X_L W / sqrt n, where token a has class a modulo K; or a function
        of f (samples, m), in torch, that returns the loss (samples,) and does not mix samples.
    of
        What the gradients are with respect to: "weights", "tokens" (all X_l), "input" (X_0), or a
        list of these.
    device, dtype
        A torch device, and the precision: "float64", "float32", or the torch dtype of that name.
    chunk, memory
        Number of samples that are computed together, and the bytes that they may take; the result
        depends on neither.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    Dataset with `loss` (sample) and `gradient_norm` (parameter, sample), Euclidean norms, not
    squared. A parameter is "layer.block.number" of a weight matrix, in the order in which the
    block's branch uses them; "readout", if the loss has one; "tokens.l"; or "input". The coordinate
    `matrix` (parameter) has the names that the block gives to its matrices, such as "keys, head 3".

    Raises
    ------
    ValueError
        If an argument is invalid, as in `simulate_chain`, `loss` is unknown, or one sample needs
        more than `memory`.
    FloatingPointError
        If the loss or a gradient is not finite.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> norms = sa.gradient_norms(
    ...     sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), width=10**6, depth=3, samples=5
    ... )
    >>> dict(norms.gradient_norm.sizes), str(norms.parameter.values[0])
    ({'parameter': 9, 'sample': 5}, '0.0.0')
    """
    kinds = (of,) if isinstance(of, str) else tuple(of)
    if not kinds:
        raise argument_error("of", f"one or more of {OF}", of)
    for kind in kinds:
        check_choice("of", kind, OF)
    classes = _classes(loss)

    def of_network(network: Network) -> tuple[Tensor, dict[str, Tensor]]:
        value, gradient, readout = _top(network, network.forward(), width, loss, classes)
        return value, _norms(network, gradient, readout, kinds, depth)

    found = deep_networks(
        layer, v0, width, depth, samples, seed, options, 1, norms_of_layer, "gradients",
        of_network, classes,
    )  # fmt: skip
    losses, norms = zip(*found, strict=True)
    names = list(norms[0])
    if not names:
        raise argument_error("of", "'tokens' or 'input' for a layer without weights", of)
    whole = {"the loss": list(losses)} | {name: [x[name] for x in norms] for name in names}
    values = {name: torch.cat(parts).double().cpu().numpy() for name, parts in whole.items()}
    for name, numbers in values.items():
        if not np.isfinite(numbers).all():
            what = name if name == "the loss" else f"the gradient of {name}"
            raise FloatingPointError(f"{what} is not finite in some samples")
    return xr.Dataset(
        {
            "loss": (("sample",), values.pop("the loss")),
            "gradient_norm": (
                ("parameter", "sample"),
                np.stack(list(values.values())),
                {"long_name": "Euclidean norm of the gradient"},
            ),
        },
        coords={"parameter": names, "matrix": ("parameter", _matrices(layer, v0, width, names))},
    )


def _matrices(layer: Layer, v0: ArrayLike, width: int, parameters: Sequence[str]) -> list[str]:
    """Return the names that blocks give to parameters; empty for those that are not theirs."""
    pattern, tokens = pattern_of(layer), np.shape(v0)[-1] if np.ndim(v0) else 1
    known = [[matrix_names(block, tokens, width) for block in blocks] for blocks in pattern]
    names = []
    for parameter in parameters:
        number, *rest = parameter.split(".")
        names.append("")
        if len(rest) == 2:
            block, place = map(int, rest)
            names[-1] = dict(enumerate(known[int(number) % len(known)][block])).get(place, "")
    return names


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


def _top(
    network: Network, last: Rows, width: int, loss: Loss, classes: int
) -> tuple[Float[Tensor, " B"], Rows, dict[str, Float[Tensor, " B"]]]:
    """Return the loss, its gradient in X_L, and the norm of that in the readout, if it has one."""
    if classes == 0:
        # The gradient of <r, X_L> is r.
        draws = network.source.stream("readout").draws()
        r = Rows(last.space, tuple(part.fresh(last.shape[1], draws) for part in last.space))
        return inner(r, last).diagonal(dim1=1, dim2=2).sum(-1), r, {}
    readout = Matrix(last.space, Frame(classes, network.source, explicit=True), name="readout")
    with Tape() as tape:
        f = (last @ readout).entries() / width**0.5
        if loss == "quadratic":
            value = 0.5 * (f * f).sum((1, 2))
        elif callable(loss):
            value = loss(f[..., 0])
        else:
            labels = torch.arange(f.shape[1], device=f.device) % classes
            value = classification(f, labels)
    tape.backward(value)
    gradient = tape.gradient(last)
    assert gradient is not None
    return value.detach(), gradient, {"readout": readout.gradient_norm()}


def norms_of_layer(layer: LayerGradients) -> dict[str, Float[Tensor, " B"]]:
    """Return the norms of the gradients of a layer, and of the tokens that enter it."""
    weights = {name: length(factors) for name, (factors,) in layer.weights.items()}
    return weights | {"tokens": total_norm(layer.entering[0])}


def _norms(
    network: Network, gradient: Rows, readout: dict[str, Tensor], kinds: Sequence[str], depth: int
) -> dict[str, Float[Tensor, " B"]]:
    """Return the norms by parameter, from the first layer to the last."""
    weights = readout
    tokens = {f"tokens.{depth}": total_norm(gradient)[:, 0, 0]}
    for number, norms in zip(reversed(range(depth)), network.measured([gradient]), strict=True):
        tokens = {f"tokens.{number}": norms.pop("tokens")[:, 0, 0]} | tokens
        weights = {f"{number}.{name}": norm[:, 0, 0] for name, norm in norms.items()} | weights
    result: dict[str, Tensor] = {}
    if "weights" in kinds:
        result |= weights
    if "tokens" in kinds:
        result |= tokens
    if "input" in kinds:
        result["input"] = tokens["tokens.0"]
    return result
