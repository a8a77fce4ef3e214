"""The coordinate check in words, for who reads such a picture for the first time."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
import xarray as xr

from shaped_attention.models.step_zero_text import quantiles

_LIMIT = 0.25
"""Exponents are multiples of 1/2 in theory: what is nearer to 0 is stable."""

_WIDTH = 110

_SYMBOLS = {"width": "n", "depth": "L"}

_RATES = {
    "one": "one learning rate for all parameters",
    "mup": "logits times base / n, and learning rates by group: of SGD, lr n / base for "
    "embeddings, biases and head, lr for hidden matrices; of Muon, lr for hidden matrices and as "
    "SGD for the rest; of optimisers that act on entries, lr base / n for hidden matrices, lr for "
    "the rest",
}

_READING = """\
How to read it: a row follows one quantity over {axis}s, and rows that are flat are right.
- Changes matter most. One that grows with the {axis} blows up in a larger model; one that vanishes
  has stopped learning there. Either way the best learning rate moves.
- Sizes at step 0 show the initialisation alone. Logits that fall like n^-0.5 are right there: in
  muP they start small.
- Look at the first and at the last step. A learning rate that is far too small or too large hides
  a wrong slope: nothing moves, or everything saturates.
- Small {axis}s are noisy, and curves bend there. An exponent agrees with theory if its interval
  covers it."""


def behaviour(result: xr.Dataset, measure: str, step: int, quantity: str) -> str:
    """Return what a quantity does with the width or depth: "stable", "grows like n^0.5", ..."""
    at = {"measure": measure, "step": step, "quantity": quantity}
    slope, low, high = (float(result[name].sel(at)) for name in ("exponent", "low", "high"))
    if not np.isfinite(slope):
        return "no change"
    if low > _LIMIT or high < -_LIMIT:
        verb = "grows" if slope > 0 else "vanishes"
        return f"{verb} like {_SYMBOLS[result.attrs['axis']]}^{slope:.1f}"
    return "stable" if max(high, -low) < _LIMIT else "unclear"


def behaviours(result: xr.Dataset) -> dict[tuple[str, int], dict[str, str]]:
    """Return what all quantities do at the start and after the first and the last step."""
    places = [("size", 0), *(("change", step) for step in sorted({1, int(result["step"][-1])}))]
    names = [str(name) for name in result["quantity"].to_numpy()]
    return {(m, s): {name: behaviour(result, m, s, name) for name in names} for m, s in places}


def faults(result: xr.Dataset) -> list[str]:
    """Return what is wrong: sizes at the start that grow, and last changes that are not stable."""
    found = behaviours(result)
    last = max(step for _, step in found)
    sizes = [(f"the size of {q} {x}", x) for q, x in found["size", 0].items()]
    changes = [(f"the change of {q} {x}", x) for q, x in found["change", last].items()]
    grown = [text for text, x in sizes if x.startswith("grows")]
    return grown + [text for text, x in changes if x.startswith(("grows", "vanishes"))]


def coordinates_text(result: xr.Dataset) -> str:
    """Return the tables, what is right and wrong in them, and how to read them."""
    axis, symbol = result.attrs["axis"], _SYMBOLS[result.attrs["axis"]]
    lines = [
        f"{result.attrs['name']}: initialisation {result.attrs['initialisation']}; "
        f"{result.attrs['rule']}",
        fill(_RATES[result.attrs["rates"]], _WIDTH),
        "root mean squares (median), and the exponent of their growth with its 95 % interval",
    ]
    places = "".join(f"{n:>10}" for n in result[axis].to_numpy())
    for (measure, step), found in behaviours(result).items():
        at = "size at step 0" if measure == "size" else f"change after step {step}"
        lines += ["", f"{at:18}{places}   {symbol}^"]
        for name, text in found.items():
            row = result[measure].sel(step=step, quantity=name).median("sample").to_numpy()
            fit = result.sel(measure=measure, step=step, quantity=name)
            slope = f"{float(fit.exponent):+.2f} [{float(fit.low):+.2f}, {float(fit.high):+.2f}]"
            lines.append(f"  {name:16}{''.join(f'{x:10.3g}' for x in row)}   {slope}  {text}")
    return "\n".join([*lines, "", verdict_of(result), "", _READING.format(axis=axis)])


def verdict_of(result: xr.Dataset) -> str:
    """Return the verdict in one sentence."""
    axis, wrong = result.attrs["axis"], faults(result)
    if wrong:
        return f"Wrong: {'; '.join(wrong)}. The learning rate does not transfer between {axis}s."
    last = max(step for _, step in behaviours(result))
    unclear = [q for q, x in behaviours(result)["change", last].items() if x == "unclear"]
    if unclear:
        return (
            f"Unclear: the change of {', '.join(unclear)}. More or larger {axis}s, or more "
            "samples, decide."
        )
    return "Right: no size grows, and all changes are stable; the learning rate transfers."


def coordinates_data(result: xr.Dataset) -> dict[str, Any]:
    """Return the same as plain data."""
    axis = result.attrs["axis"]
    rows = []
    for (measure, step), found in behaviours(result).items():
        for name, text in found.items():
            fit = result.sel(measure=measure, step=step, quantity=name)
            values = result[measure].sel(step=step, quantity=name).to_numpy()
            numbers = {x: float(fit[x]) for x in ("exponent", "low", "high")}
            rows.append(
                {"measure": measure, "step": step, "quantity": name, "verdict": text}
                | {x: value if np.isfinite(value) else None for x, value in numbers.items()}
                | {"root_mean_square": [quantiles(x) for x in values]}
            )
    return {
        "name": result.attrs["name"], "axis": axis, axis: result[axis].to_numpy().tolist(),
        "initialisation": result.attrs["initialisation"], "rates": result.attrs["rates"],
        "optimizer": result.attrs["rule"], "samples": result.sizes["sample"],
        "loss": [[quantiles(x) for x in of_size] for of_size in result["loss"].to_numpy()],
        "rows": rows, "faults": faults(result), "verdict": verdict_of(result),
    }  # fmt: skip
