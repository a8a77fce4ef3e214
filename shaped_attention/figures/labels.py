"""Symbols of parameters and observables in figures, in one table each.

The depth is L and the width n, so that the time of layer l is l / n. Tokens are counted from 0, as
in the names of observables: ``rho[0,1]`` is rho_{0,1}.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaped_attention.numerics.observables import LABELS

TIME = r"time $t = \ell / n$"
LAYER = r"layer $\ell$"

PARAMETERS = {
    "gamma": r"$\gamma$",
    "mlp_gamma": r"$\gamma_{\mathrm{MLP}}$",
    "tau0": r"$\tau_0$",
    "rho": r"$\rho_0$",
    "c_plus": "$c_+$",
    "c_minus": "$c_-$",
    "heads": "heads $H$",
    "key_size": "key size $n_k$",
    "width": "width $n$",
    "depth": "depth $L$",
    "horizon": "horizon $T$",
    "tokens": "number of tokens",
}
"""Labels of the parameters that a sweep or a figure may vary."""

SAMPLERS = {"sde": "SDE", "chain": "chain", "network": "network"}


def parameter_label(name: str) -> str:
    """Return the label of a parameter, or its name if it is unknown."""
    return PARAMETERS.get(name, name)


def sampler_label(name: object) -> str:
    """Return the name of a sampler as figures write it."""
    return SAMPLERS.get(str(name), str(name))


def observable_label(name: str, words: Sequence[str] | None = None) -> str:
    """Return the label of an observable, with the words of its tokens if `words` are given."""
    if not name.endswith("]"):
        return LABELS.get(name, name)
    kind, inside = name.rstrip("]").split("[")
    indices = [int(i) for i in inside.split(",")]
    about = ""
    if words is not None:
        about = "   (" + ", ".join(f"“{words[i]}”" for i in dict.fromkeys(indices)) + ")"
    symbol = r"\rho" if kind == "rho" else r"\log V"
    return f"${symbol}_{{{','.join(map(str, indices))}}}${about}"


def expectation_label(name: str) -> str:
    """Return the label of the expectation of an observable."""
    return rf"$\mathbb{{E}}$ {observable_label(name)}"
