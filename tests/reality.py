"""Models made by the `transformers` library from a configuration, against the law of `Model`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy import stats

import shaped_attention as sa
from shaped_attention.numerics.covariance import correlations

IDS = (5, 9, 5, 17, 23, 9, 31, 40)
"""Numbers of tokens, two of which occur twice."""

_TOKENS = (0, 4, 7)
_PAIRS = ((0, 1), (0, 2), (3, 7))


def models_from_config(
    config: Any, models: int, seed: int, ids: Any = IDS, implementation: str = "eager"
) -> xr.Dataset:
    """Return V, V_final and entropies as `simulate_model` does, of models of the library.

    Entropies are those of the implementation "eager"; others do not report attention weights.
    """
    from transformers import AutoModel

    inputs = torch.tensor([list(ids)])
    eager = implementation == "eager"
    covariances, finals, entropies = [], [], []
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for _ in range(models):
            model = AutoModel.from_config(config, attn_implementation=implementation)
            model = model.double().eval()
            last: list[torch.Tensor] = []
            hook = _layers(model)[-1].register_forward_hook(
                lambda _m, _i, out, last=last: last.append(
                    out[0] if isinstance(out, tuple) else out
                )
            )
            out = model(inputs, output_hidden_states=True, output_attentions=eager)
            hook.remove()
            # The last of the hidden states is after the final norm; the hook sees it before.
            states = [*out.hidden_states[:-1], last[0].reshape(out.hidden_states[-1].shape)]
            x = torch.cat(states)
            covariances.append(x @ x.mT / x.shape[-1])
            y = out.last_hidden_state[0]
            finals.append(y @ y.mT / y.shape[-1])
            if eager:
                entropies.append(
                    torch.stack([torch.special.entr(a[0]).sum(-1) for a in out.attentions])
                )
    found: dict[str, Any] = {
        "V": (("position", "sample", "row", "col"), torch.stack(covariances, 1).numpy()),
        "V_final": (("sample", "row", "col"), torch.stack(finals).numpy()),
    }
    if eager:
        names = ("layer", "head", "sample", "row")
        found["attention_entropy"] = (names, torch.stack(entropies, 2).numpy())
    return xr.Dataset(found)


def _layers(model: torch.nn.Module) -> torch.nn.ModuleList:
    """Return the list of layers: the first and largest list of modules."""
    lists = [x for x in model.modules() if isinstance(x, torch.nn.ModuleList)]
    return max(lists, key=len)


def statistics(result: xr.Dataset) -> dict[str, NDArray[np.float64]]:
    """Log diagonals and cosines of every layer, and entropies of its first and last head."""
    values: dict[str, NDArray[np.float64]] = {}
    covariances = [*result["V"].to_numpy(), result["V_final"].to_numpy()]
    for k, v in enumerate(covariances):
        diagonal = np.log(np.maximum(np.diagonal(v, axis1=1, axis2=2), 1e-300))
        values |= {f"log V_{k}[{a}]": diagonal[:, a] for a in _TOKENS}
        rho = correlations(v)
        values |= {f"rho_{k}[{a},{b}]": rho[:, a, b] for a, b in _PAIRS}
    entropy = result["attention_entropy"].to_numpy() if "attention_entropy" in result else ()
    for k, here in enumerate(entropy):
        for head in (0, -1):
            values |= {f"entropy_{k + 1}[{head},{a}]": here[head, :, a] for a in _TOKENS}
    return values


def p_values(first: xr.Dataset, second: xr.Dataset) -> dict[str, float]:
    """Return KS p-values of all statistics.

    What varies by less than 10^-5, such as a diagonal after RMSNorm, is left out: the library
    computes norms in single precision. If the other varies by more than 10^-3, it is another law.
    """
    a, b = statistics(first), statistics(second)
    found = {}
    for name in a:
        spreads = [float(np.ptp(x[name])) for x in (a, b)]
        if min(spreads) > 1e-5:
            found[name] = float(stats.ks_2samp(a[name], b[name]).pvalue)
        elif max(spreads) > 1e-3:
            found[name] = 0.0
    return found


def smallest(first: xr.Dataset, second: xr.Dataset) -> tuple[float, str]:
    """Return the smallest p-value times the number of tests (Bonferroni), and its statistic."""
    p = p_values(first, second)
    name = min(p, key=p.__getitem__)
    return min(1.0, len(p) * p[name]), name


def against_reality(
    config: Any,
    twin: sa.Model | None = None,
    models: int = 500,
    seed: int = 1,
    ids: Any = IDS,
    implementation: str = "eager",
) -> tuple[float, str]:
    """Compare models of a configuration with its law, or with that of a wrong twin."""
    known = twin or sa.model_from_config(config)
    law = sa.simulate_model(
        known, ids, samples=4 * models, seed=seed, progress=False,
        entropy=implementation == "eager", accept_approximation=bool(known.approximations),
    )  # fmt: skip
    return smallest(models_from_config(config, models, seed, ids, implementation), law)
