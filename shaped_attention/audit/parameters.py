"""Which parameter of a module is which of the model's, what law it should have, and what it has.

A parameter is matched by its name, which a map may turn into the library's. One that several
matrices share is cut into these; tied storage counts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from shaped_attention.architectures.model import Model, attention_of
from shaped_attention.architectures.parameter_names import holds, names_of
from shaped_attention.architectures.recipes import matrices
from shaped_attention.audit.entry_laws import Entries, EntryLaw, measured
from shaped_attention.audit.report import Suspect
from shaped_attention.checks import argument_error, check_not_meta

MAPS: dict[str, dict[str, str]] = {
    "transformers, nanoGPT": {},
    "Meta, torchtitan": {
        "tok_embeddings": "model.embed_tokens", "output": "lm_head", "norm": "model.norm",
        "layers.*": "model.layers.*",
        "layers.*.attention_norm": "model.layers.*.input_layernorm",
        "layers.*.ffn_norm": "model.layers.*.post_attention_layernorm",
        **{f"layers.*.attention.w{x}": f"model.layers.*.self_attn.{x}_proj" for x in "qkvo"},
        "layers.*.feed_forward.w1": "model.layers.*.mlp.gate_proj",
        "layers.*.feed_forward.w2": "model.layers.*.mlp.down_proj",
        "layers.*.feed_forward.w3": "model.layers.*.mlp.up_proj",
    },
}  # fmt: skip
"""The library's names of what modules of other code hold; the number of a layer is *."""

_ONE_PLUS = ("gemma", "gemma2", "gemma3_text", "vaultgemma")
_BY_HEAD = ("bloom", "codegen", "falcon", "gpt_neox")
"""Families that add 1 to gains; those that mix q, k, v by heads."""

_MISSING = "the module has no such parameter"
_UNKNOWN = "the configuration has no such parameter, or the map of names does not know it"

_WRAPPERS = re.compile(r"^module\.|\b(_orig_mod|_checkpoint_wrapped_module)\.")
_KEPT = 1024
"""Entries that are kept of each matrix, to find two with equal random numbers."""


class Section(NamedTuple):
    """A parameter, or the part of one that is a single matrix.

    `name` is the module's, and `group` the same with * for the layer; `letters` are the matrices,
    empty for gains and biases. `rounding` is the relative rounding error of an entry.
    """

    name: str
    group: str
    letters: str
    layer: int | None
    law: EntryLaw
    entries: Entries
    rounding: float
    inputs: int


class Reading(NamedTuple):
    """What a module holds.

    `held` are the parameters by the library's names; `layers` is the module's name of its layers,
    with * for the number; `half` the types of those in half precision.
    """

    sections: list[Section]
    suspects: list[Suspect]
    held: dict[str, Tensor]
    layers: str
    half: str


def starred(name: str) -> tuple[str, int | None]:
    """Return a name with * for the first number in it, and the number."""
    found = re.search(r"(?<=\.)\d+(?=\.|$)", name)
    if found is None:
        return name, None
    return f"{name[: found.start()]}*{name[found.end() :]}", int(found[0])


def read(module: nn.Module, model: Model, names: Mapping[str, str] | None) -> Reading:
    """Read a module; `names` maps its names to the library's, None for the map that fits best."""
    tensors: dict[tuple[int, int], list[str]] = {}
    held: dict[tuple[int, int], Tensor] = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        _check(tensor, name)
        key = (tensor.data_ptr(), tensor.numel())
        tensors.setdefault(key, []).append(_WRAPPERS.sub("", name))
        held[key] = tensor
    if not tensors:
        raise argument_error("module", "a module with parameters", module)
    known = _Known(model)
    every = [name for group in tensors.values() for name in group]
    own = [{k.removesuffix(".weight"): v.removesuffix(".weight") for k, v in (names or {}).items()}]
    maps = list(MAPS.values()) if names is None else own
    chosen = max(maps, key=lambda x: sum(known.role(name, x) is not None for name in every))
    sections: list[Section] = []
    suspects: list[Suspect] = []
    library: dict[str, Tensor] = {}
    found: set[tuple[str, int | None]] = set()
    layers = f"{known.names.layers}.*"
    for key, group in tensors.items():
        roles = [(name, r) for name in group if (r := known.role(name, chosen)) is not None]
        if not roles:
            suspects.append(Suspect("not in the map", starred(group[0])[0], math.inf, _UNKNOWN))
            continue
        found |= {(role.stem, role.layer) for _, role in roles}
        wrong = known.sharing(roles, held, key)
        suspects += wrong
        name, role = next((x for x in roles if x[1].letters == "w"), roles[0])
        if role.layer is not None:
            layers = f"{starred(name)[0].partition('*')[0]}*"
        library[at(role.stem, role.layer) + role.suffix] = held[key]
        try:
            sections += known.sections(name, role, held[key], 0 if wrong else _KEPT)
        except ValueError as error:
            suspects.append(Suspect("shape", starred(name)[0], math.inf, str(error)))
    if not library:
        raise ValueError(
            f"no parameter of the module has a known name, such as {every[0]}; names= takes a map "
            "to the library's, such as {'blocks.*.att.query': 'model.layers.*.self_attn.q_proj'}"
        )
    depth = 1 + max((layer for _, layer in found if layer is not None), default=-1)
    if depth != model.depth:
        what = f"the module has {depth} layers; the configuration says {model.depth}"
        suspects.append(Suspect("shape", layers, math.inf, what))
    missing = dict.fromkeys(
        starred(at(*x))[0] for x in known.needed()
        if x not in found and (x[1] or 0) < max(1, depth)
    )  # fmt: skip
    suspects += [Suspect("missing", x, math.inf, _MISSING) for x in missing]
    kinds = sorted({str(x.dtype) for x in held.values() if x.element_size() < 4})
    return Reading(sections, suspects, library, layers, " and ".join(kinds))


def at(stem: str, layer: int | None) -> str:
    """Return a name in a layer."""
    return stem if layer is None else stem.replace("*", str(layer))


class _Role(NamedTuple):
    """What a name stands for: the library's name, the letters of matrices, the layer, the end."""

    stem: str
    letters: str
    layer: int | None
    suffix: str


class _Known:
    """The parameters of a model by the library's names."""

    def __init__(self, model: Model) -> None:
        self.model, self.names = model, names_of(model)
        names, layers = self.names, f"{self.names.layers}.*."
        self.tied = holds(model, ("tie_word_embeddings", names.tied))
        outside = {names.head: "h"} | matrices(model.family, True)
        inside = names.matrices
        self.letters = {f"{layers}{x}": letters for x, letters in inside.items()}
        self.letters |= {x: letters for x, letters in outside.items() if x not in inside}
        self.heads = [x for block in model.layers()[0] for x in attention_of(block)]
        self.qk = ("self_attn.q_norm", "self_attn.k_norm") if self.heads[0].qk_norm else ()
        self.gains = {f"{layers}{x}" for x in (*names.norms, *names.branch_norms, *self.qk)}
        self.gains |= {names.start_norm, names.final_norm, *(names.transform or ())[1:]} - {""}

    def role(self, name: str, names: Mapping[str, str]) -> _Role | None:
        """Return what a name of the module stands for, if it is known."""
        stem, _, suffix = name.rpartition(".")
        star, layer = starred(stem)
        star = names.get(star, star)
        if starred(name)[0] == self.names.head_bias:
            return _Role(stem, "", None, ".bias")
        letters = self.letters.get(star, "")
        if suffix not in ("weight", "bias") or not (letters or star in self.gains):
            return None
        return _Role(star, letters if suffix == "weight" else "", layer, f".{suffix}")

    def needed(self) -> Iterator[tuple[str, int | None]]:
        """Return the parameters that a module must have."""
        inside = [f"{self.names.layers}.*.{x}" for x in self.qk]
        for stem in [*self.letters, *inside]:
            if stem == self.names.head and self.tied:
                continue
            for layer in range(self.model.depth) if "*" in stem else (None,):
                yield stem, layer

    def sharing(
        self, roles: list[tuple[str, _Role]], held: Mapping[Any, Tensor], key: tuple[int, int]
    ) -> list[Suspect]:
        """Return what is wrong with the names under which a parameter is found."""
        letters = {role.letters for _, role in roles}
        names = [x for x, role in roles if role.letters in ("h", "w")] or [roles[0][0]]
        said = ""
        if letters == {"h"} and self.tied:
            alike = [x for k, x in held.items() if k != key and x.shape == held[key].shape]
            copy = " copy" if any(torch.equal(x, held[key]) for x in alike) else ""
            said = f"a separate{copy or ' matrix'}; by the configuration it is the embedding"
        elif letters == {"w", "h"} and not self.tied:
            said = "tied to the head; by the configuration the two are separate"
        elif len({(x.stem, x.layer) for _, x in roles if x.letters not in ("w", "h")}) > 1:
            said = f"one parameter with {', '.join(x for x, _ in roles[1:])}"
        return [Suspect("tied", names[0], math.inf, said)] if said else []

    def law(self, letters: str, layer: int | None) -> EntryLaw:
        """Return the law of the entries of a matrix."""
        model, one = self.model, letters[0]
        std = {
            "w": model.embedding.std, "p": model.embedding.position_std,
            "y": model.embedding.common_std, "h": model.head_std, "f": model.transform_std,
        }  # fmt: skip
        stds = model.stds
        assert stds is not None
        value = std[one] if layer is None else stds[layer % len(stds)].of(one)
        return EntryLaw(
            model.embedding.std if value is None else value, model.cuts.get(one, math.inf)
        )

    def sections(self, name: str, role: _Role, tensor: Tensor, keep: int) -> Iterator[Section]:
        """Return the matrices in a parameter, or a gain or bias."""
        (group, layer), rounding = starred(name), torch.finfo(tensor.dtype).eps / 2
        if not role.letters:
            one = role.stem in self.gains and role.suffix == ".weight"
            mean = float(one and self.model.family not in _ONE_PLUS)
            entries = measured(tensor.detach(), 0)
            yield Section(name, group, "", layer, EntryLaw(0.0, mean=mean), entries, rounding, 0)
            return
        matrix = tensor.detach().flatten(1)
        whole = self.model.embedding.vocabulary, self.model.width
        if role.letters == "w" and matrix.shape != whole:
            raise ValueError(f"the shape is {tuple(matrix.shape)}; the configuration says {whole}")
        for letters, part in self._parts(role.letters, matrix):
            end = f"[{letters}]" if letters != role.letters else ""
            if zero := list(self._zero_rows(letters)):
                padding, end = measured(part[zero], 0), "[padding]"
                yield Section(
                    name + end, group + end, "", layer, EntryLaw(0.0), padding, rounding, 0
                )
                part, end = part[np.setdiff1d(np.arange(len(part)), zero)], ""
            law = self.law(letters, layer)
            yield Section(
                name + end, group + end, letters, layer, law, measured(part, keep), rounding,
                tensor.numel() // tensor.shape[0],
            )  # fmt: skip

    def _zero_rows(self, letters: str) -> tuple[int, ...]:
        law = self.model.embedding
        return law.zero_ids if letters == "w" or (letters == "p" and law.zero_positions) else ()

    def _parts(self, letters: str, matrix: Tensor) -> list[tuple[str, Tensor]]:
        """Return the matrices in one by their letters."""
        if len(letters) == 1 or self.model.family in _BY_HEAD:
            return [(letters, matrix)]
        head = self.heads[0]
        size = head.head_size or self.model.width // head.heads
        rows = {"q": head.heads * size, "o": self.model.width, "d": self.model.width}
        rows |= dict.fromkeys("kv", (head.kv_heads or head.heads) * size)
        counts = [rows.get(x, max(matrix.shape) // len(letters)) for x in letters]
        axes = [k for k in (0, 1) if matrix.shape[k] == sum(counts)]
        if not axes:
            have = tuple(matrix.shape)
            raise ValueError(f"the shape is {have}; by the configuration one side is {sum(counts)}")
        axis = axes[-1] if self.names.by_inputs else axes[0]
        return list(zip(letters, matrix.split(counts, dim=axis), strict=True))


def _check(tensor: Tensor, name: str) -> None:
    """Raise ValueError for a parameter whose entries cannot be measured."""
    check_not_meta(tensor, f"parameter {name}")
    if hasattr(tensor, "placements") or type(tensor).__name__ == "FlatParameter":
        raise ValueError(f"parameter {name} is sharded; gather the module first, on one process")
    if not tensor.is_floating_point() or tensor.element_size() < 2:
        raise ValueError(
            f"parameter {name} is quantised ({tensor.dtype}); check the module before quantisation"
        )
