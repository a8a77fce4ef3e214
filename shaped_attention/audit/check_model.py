"""Whether one module was initialised as its configuration says."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from shaped_attention.architectures.model import Model
from shaped_attention.architectures.reading import model_from_config
from shaped_attention.architectures.tokens import checked_ids
from shaped_attention.audit.effects import effects_of
from shaped_attention.audit.entry_laws import in_words
from shaped_attention.audit.parameters import Reading, read
from shaped_attention.audit.report import Effect, ModelCheck, Parameter, Suspect
from shaped_attention.audit.rule import suspects_of
from shaped_attention.checks import argument_error, check_count, check_inside, with_types

_TOKENS = 8
_SHARE = 0.01
"""Effects farther than this share of the level says are suspect; see `outlying`."""


@with_types
def check_model(
    module: Any, ids: ArrayLike | None = None, config: Any = None, init: str | None = None, *,
    names: Mapping[str, str] | None = None, samples: int = 32, level: float = 0.001, seed: int = 0,
) -> ModelCheck:  # fmt: skip
    """Check whether one module was initialised as its configuration says.

    Every parameter is matched to its role by its name. Its mean, its standard deviation and the law
    of its entries (normal, normal and cut, uniform, constant), its shape, and whether it is tied,
    are compared with the configuration and the recipe; then the covariances of the tokens by layer,
    the entropies of attention if the module returns them, the logits, the loss and the gradients of
    this draw with samples of their exact law. Use it in a test:
    ``assert sa.check_model(model, ids).ok``.

    Parameters
    ----------
    module
        A `torch.nn.Module` that takes token ids (1, m) and returns logits (1, m, vocabulary),
        alone, first in a tuple, or as `logits`. It is called twice, without dropout. Neither
        it nor global random state is changed, and nothing is downloaded.
    ids
        Token ids (m,), without padding. By default the first 8 of the vocabulary.
    config
        Configuration as in `model_from_config`, or a `Model`; by default ``module.config``.
    init
        Initialisation as in `model_from_config`; by default the library's.
    names
        Names of the library by those of the module, without ".weight" and with * for the number of
        a layer, such as ``{"blocks.*.att.query": "model.layers.*.self_attn.q_proj"}``. By default
        those of `transformers` and nanoGPT, or of Meta's Llama and torchtitan, whichever fits.
    samples
        Number of samples of the law, at least 8.
    level
        Probability, in (0, 1), with which a correct module is flagged at most: half of it for the
        parameters, with Bonferroni's correction; the rest for the effects, whose p-values must be
        below a hundredth of it, since their tails are extrapolated.
    seed
        Seed of the samples, an integer >= 0.

    Returns
    -------
    ModelCheck
        `ok`; `suspects`, causes only, in the order of their consequence; `parameters`; `effects`,
        with ranks in the law; `notes`; `to_json()`. It prints as text.

    Raises
    ------
    ValueError
        If the module is sharded, quantised or on the meta device; the configuration is missing or
        not covered; or the module returns no logits.

    Notes
    -----
    The forward law of a gated MLP is the same if its last two matrices exchange their scales;
    standard deviations and gradients tell them apart. The standard deviation of N entries of
    kurtosis k is known up to the share sqrt((k - 1) / 4N). Biases are zero and gains one at the
    start, so it does not matter whether the configuration has them. Entries in half precision
    are compared up to their rounding.
    """
    module = getattr(module, "_orig_mod", module)
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        module = module.module
    if not isinstance(module, nn.Module):
        raise argument_error("module", "a torch.nn.Module", module)
    texts = names.values() if isinstance(names, Mapping) else () if names is None else (names, 0)
    if not all(isinstance(text, str) for text in texts):
        what = "a map from names of the module to those of the library"
        raise argument_error("names", what, names)
    model = _model(module, config, init)
    check_count("samples", samples, lowest=8)
    check_inside("level", level)
    known = checked_ids(model.embedding, _TOKENS if ids is None else np.asarray(ids))
    reading = read(module, model, names)
    suspects = reading.suspects + suspects_of(reading.sections, level / 2)
    effects: list[Effect] = []
    notes = ["effects are left out, since a shape is not that of the configuration"]
    if all(x.kind != "shape" for x in suspects):
        effects, notes = effects_of(module, model, known, reading, samples, seed)
    low = [x for x in effects if x.p_value < _SHARE * level]
    if low and not suspects:
        first = low[0]
        suspects.append(Suspect("computation", "forward pass", math.inf, (
            f"{first.place} is {first.value:.4g}, median of the law {first.median:.4g}, "
            "although all parameters have their laws: the module computes something else than the "
            "configuration says"
        )))  # fmt: skip
    if reading.half:
        notes.append(f"parameters in {reading.half}: differences as small as rounding are allowed")
    suspects = sorted(dict.fromkeys(suspects), key=lambda x: -x.size)
    return ModelCheck(str(model), suspects, _table(reading), effects, notes, level)


def _model(module: nn.Module, config: Any, init: str | None) -> Model:
    if config is None:
        config = getattr(module, "config", None)
        if config is None:
            raise ValueError("config must be given, since the module has no attribute config")
    if isinstance(config, Model):
        return config
    plain = dataclasses.is_dataclass(config) and not hasattr(config, "to_dict")
    if plain and not isinstance(config, type):
        config = dataclasses.asdict(config)
    return model_from_config(config, init=init)


def _table(reading: Reading) -> list[Parameter]:
    return [
        Parameter(x.name, x.letters, x.entries.mean, x.entries.std, x.law.std,
                  in_words(x.entries), str(x.law) if x.law.std else f"all are {x.law.mean:g}")
        for x in reading.sections
    ]  # fmt: skip
