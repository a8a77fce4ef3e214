"""Symbols of samplers and observables in figures.

The depth is L and the width n, so that the time of layer l is l / n. Tokens are counted from 0, as
in the names of observables: ``rho[0,1]`` is rho_{0,1}.
"""

from __future__ import annotations

from collections.abc import Sequence

from shaped_attention.numerics.observables import LABELS

TIME = r"time $t = \ell / n$"
LAYER = r"layer $\ell$"

SAMPLERS = {"sde": "SDE", "chain": "chain", "network": "network"}


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
