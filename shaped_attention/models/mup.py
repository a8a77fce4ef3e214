"""Learning rates by group in muP, for the initialisation "mup" of a model.

Yang et al., Tensor Programs V (arXiv 2203.03466), table 8, whose logits have the factor base / n:
relative to a base width, SGD takes n / base for what is like an input (embeddings, biases) and for
the head, and 1 for hidden matrices; optimisers that act on entries, such as Adam, take 1, and
base / n for hidden matrices. The sign of a matrix has the spectral norm 1 at every width, so that
the rates of Muon do not depend on it (Yang, Simon and Bernstein, arXiv 2310.17813).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shaped_attention.architectures.model import Model, check_kind
from shaped_attention.architectures.parameter_names import holds, names_of
from shaped_attention.checks import argument_error, check_count
from shaped_attention.lazy.entrywise import check_rule
from shaped_attention.lazy.optimizers import SGD, Muon
from shaped_attention.lazy.stored import layer_gains


def with_mup_rates(optimizer: Any, model: Model, base: int) -> Any:
    """Return an optimiser with muP's learning rates for a model, by patterns of names.

    Parameters
    ----------
    optimizer
        Optimiser of this package, with the rate of the base width as a number.
    model
        Result of `model_from_config`, with the initialisation "mup:base=BASE".
    base
        Width at which all rates are as given.

    Returns
    -------
    The same optimiser, whose `lr` is a dictionary. What is like an input (embeddings, biases) and
    the head have the rate lr n / base for SGD, and for the part of Muon that SGD updates; hidden
    matrices have lr. For optimisers that act on entries, such as Adam, the former have lr, the
    latter lr base / n. The bias of the head has lr.

    Raises
    ------
    ValueError
        If an argument is invalid, a rate is a dictionary already, or the names of the model's
        parameters are unknown.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> sa.with_mup_rates(sa.SGD(0.1), sa.model_from_config("gpt2"), base=256).lr
    {'*': 0.30000000000000004, 'transformer.h.*.weight': 0.1}
    """
    check_count("base", base)
    check_kind("model", model, Model, "a result of model_from_config")
    check_rule(optimizer)
    return _scaled(optimizer, model, model.width / base, layers=True)


def _scaled(optimizer: Any, model: Model, factor: float, layers: bool) -> Any:
    """Return an optimiser with rates by group, those of layers unless another has them."""
    if isinstance(optimizer, Muon) and optimizer.rest is not None:
        return replace(optimizer, rest=_scaled(optimizer.rest, model, factor, layers=False))
    if isinstance(optimizer.lr, Mapping):
        raise argument_error("optimizer.lr", "a number, which is scaled by group", optimizer.lr)
    names = names_of(model)
    lr, by_entries = optimizer.lr, not isinstance(optimizer, SGD | Muon)
    hidden = lr / factor if by_entries else lr
    rates = {"*": lr if by_entries else lr * factor}
    if layers:
        rates[f"{names.layers}.*.weight"] = hidden
        if by_entries:
            rates |= {f"{names.layers}.*.{gain}": lr for gain in sorted(layer_gains(model))}
    if names.transform is not None:
        rates[f"{names.transform[0]}.weight"] = hidden
    if names.head_bias and holds(model, names.head_biased):
        rates[names.head_bias] = lr
    return replace(optimizer, lr=rates)
