"""Trained models from a folder, as ``save_pretrained`` of the transformers library writes them.

Nothing is downloaded and no code of the folder runs: the weights are safetensors, and models are
classes of the installed library.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shaped_attention.checks import argument_error
from shaped_attention.libraries import extras

_CONFIGURATION = ("config.json",)
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_WORDS = ("tokenizer.json", "spiece.model", "vocab.txt", "vocab.json", "tokenizer.model")


@extras()
def load_pretrained(
    folder: str | os.PathLike[str], inputs: str | Mapping[str, Any]
) -> tuple[nn.Module, Mapping[str, Any]]:
    """Return the model of a folder in float32 and its inputs, from a text or as they are.

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or it lacks files, which the message names.
    ValueError
        If the weights are not those of the configuration, or the text has more tokens than the
        model has positions.
    """
    path, text = Path(folder), isinstance(inputs, str)
    needed = (_CONFIGURATION, _WEIGHTS, _WORDS) if text else (_CONFIGURATION, _WEIGHTS)
    missing = [names[0] for names in needed if not any((path / name).is_file() for name in names)]
    if missing:
        state = f"lacks {', '.join(missing)}" if path.is_dir() else "is not a folder"
        raise FileNotFoundError(
            f"model={str(folder)!r} {state}; nothing is downloaded. The methods "
            "save_pretrained(folder) of a model and of its tokenizer write config.json, "
            "model.safetensors and tokenizer.json; for ALBERT, as in arXiv 2312.10794, load both "
            "from 'albert/albert-xlarge-v2' with transformers.AutoModel.from_pretrained and "
            "transformers.AutoTokenizer.from_pretrained"
        )
    from transformers import AutoModel, AutoTokenizer

    # Weights that are missing would be drawn, from torch's global generator.
    with torch.random.fork_rng(devices=[]):
        model, loaded = AutoModel.from_pretrained(
            path,
            local_files_only=True,
            use_safetensors=True,
            dtype="float32",
            output_loading_info=True,
        )
    # The pooler follows the last layer, and checkpoints of language models have none.
    absent = sorted(key for key in loaded["missing_keys"] if not key.startswith("pooler."))
    if absent:
        raise ValueError(
            f"model={str(folder)!r} has no weights for {absent[0]} and {len(absent) - 1} more "
            "parameters of its configuration"
        )
    if not isinstance(inputs, str):
        return model.eval(), inputs
    tokens = AutoTokenizer.from_pretrained(path, local_files_only=True)(inputs, return_tensors="pt")
    count, most = tokens["input_ids"].shape[-1], model.config.max_position_embeddings
    if count > most:
        raise argument_error(
            "inputs", f"a text of at most {most} tokens, the number of positions", count
        )
    return model.eval(), tokens
