"""Random numbers keyed by integers: the torch twin of `shaped_attention.numerics.fills`.

An integer seed and the name of a stream give a key; a key and integers (sample, step, slot, pair)
give a number, on any device. On the CPU the compiled generator makes them here too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from shaped_attention.compiler.random import ATTEMPT_SHIFT, PARITY, ROTATIONS
from shaped_attention.libraries import Tensor, torch
from shaped_attention.numerics.fills import fill_normals, fill_wishart, path_words
from shaped_attention.numerics.seeds import STREAMS

SLOTS_PER_BLOCK = 64
"""Number of consecutive slots (independent series within a step) of each block of a layer."""

_CHI_ATTEMPTS = 16

_BLOCKS = 256
_LARGEST_SLOT = 2**24


def slot_number(first: int, index: int) -> int:
    """Return slot number `index` of the block whose first slot is `first`.

    After its first 64 slots a block continues with 64 beyond the first slots of 256 blocks, and so
    on. Raise RuntimeError if `index` is 65,536 or more.
    """
    rounds, place = divmod(index, SLOTS_PER_BLOCK)
    slot = first + rounds * SLOTS_PER_BLOCK * _BLOCKS + place
    if slot >= _LARGEST_SLOT:
        raise RuntimeError(
            f"a block asked for random numbers in slot {index} of one step, beyond the last"
        )
    return slot


def stream_key(seed: int, stream: str, *integers: int) -> NDArray[np.uint64]:
    """Return the 128-bit key (2,) of a stream, or of its part with the given integers >= 0.

    It is that of ``SeedSequence(seed, spawn_key=(number of stream, *integers))``.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS[stream], *integers))
    return np.asarray(sequence.generate_state(2, np.uint64), dtype=np.uint64)


def _signed(word: int) -> int:
    """Return the signed 64-bit integer with the same bits (torch has no uint64 arithmetic)."""
    word &= 0xFFFFFFFFFFFFFFFF
    return word - (1 << 64) if word >> 63 else word


def _rotated(x: Tensor, bits: int) -> Tensor:
    return (x << bits) | ((x >> (64 - bits)) & ((1 << bits) - 1))


def threefry(
    key: NDArray[np.uint64], c0: Int[Tensor, "*n"], c1: Int[Tensor, "*n"]
) -> tuple[Int[Tensor, "*n"], Int[Tensor, "*n"]]:
    """Apply Threefry-2x64-20 to signed integers that hold the bits of unsigned ones."""
    k0, k1 = int(key[0]), int(key[1])
    keys = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = c0 + _signed(k0), c1 + _signed(k1)
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = _rotated(x1, bits) ^ x0
        x0 = x0 + _signed(keys[(group + 1) % 3])
        x1 = x1 + _signed(keys[(group + 2) % 3] + group + 1)
    return x0, x1


def _uniform(word: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return numbers in (0, 1]: 1 - (upper 52 bits) 2^-52."""
    return 1.0 - ((word >> 12) & ((1 << 52) - 1)).to(torch.float64) * 2.0**-52


def _normal_pair(x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    radius = torch.sqrt(-2.0 * torch.log(_uniform(x0)))
    angle = 2.0 * math.pi * (1.0 - _uniform(x1))
    return radius * torch.cos(angle), radius * torch.sin(angle)


# Cached, since a network asks for the same samples and step again and again.
_path_words = lru_cache(maxsize=16)(path_words)


@lru_cache(maxsize=256)
def _chi_constants(dof: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return pair numbers and Marsaglia's d; cached, since copying them makes the host wait."""
    degrees = torch.tensor(dof, dtype=torch.float64, device=device)
    return torch.arange(0, len(dof), 2, device=device), 0.5 * degrees - 1.0 / 3.0


@dataclass
class Draws:
    """The random numbers of one block in one step, for a set of samples.

    Every call takes the next slot: a block draws what it needs in a fixed order and never names a
    generator. The key is that of a stream, from `stream_key`. Numbers of samples (B,) and the step,
    or one for each sample (B,), are integers in [0, 2^32). A block of a layer starts at the slot
    `SLOTS_PER_BLOCK` times its position. Numbers are made in float64 and returned in `dtype`.
    """

    key: NDArray[np.uint64]
    samples: Int[Tensor, " B"]
    step: int | Int[Tensor, " B"]
    slot: int = 0
    dtype: torch.dtype = field(default_factory=lambda: torch.float64)
    _next: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.samples = self.samples.long()  # counter words are made by shifts of 32 bits

    @property
    def _on_host(self) -> bool:
        """Whether the compiled generator makes the numbers; otherwise torch does, to rounding."""
        return self.samples.device.type == "cpu"

    def paths(self) -> NDArray[np.uint64]:
        """Return the counter words of the samples, on the CPU."""
        if isinstance(self.step, int):
            return _path_words(self.samples, self.step)
        # Steps of the paths are counted in place.
        return path_words(self.samples, self.step)

    def _take_slot(self) -> int:
        slot = slot_number(self.slot, self._next)
        self._next += 1
        return slot

    def _words(self, slot: int, pairs: Tensor) -> tuple[Tensor, Tensor]:
        c0 = pairs + (slot << 40)
        c1 = (self.samples << 32) + self.step
        shape = np.broadcast_shapes((len(c1), 1), (1, len(c0)))
        return threefry(self.key, c0[None, :].expand(shape), c1[:, None].expand(shape))

    def normals_at(self, slot: int, start: int, count: int) -> Float[Tensor, "B count"]:
        """Return the normals start, start + 1, ... (start even) of a slot, for every sample."""
        first = start // 2
        if self._on_host:
            out = np.empty((len(self.samples), count))
            fill_normals(out, self.key, self.paths(), slot, first)
            return torch.from_numpy(out).to(self.dtype)
        if self.samples.device.type == "cuda":
            from shaped_attention.compiler.ptx import available

            if available():
                return self._on_device(slot, first, count)
        pairs = torch.arange(first, first + (count + 1) // 2, device=self.samples.device)
        a, b = _normal_pair(*self._words(slot, pairs))
        return torch.stack([a, b], dim=-1).flatten(1)[:, :count].to(self.dtype)

    def _on_device(self, slot: int, first: int, count: int) -> Tensor:
        from shaped_attention.numerics.device_code import fill_pairs

        shape = (len(self.samples), (count + 1) // 2, 2)
        out = torch.empty(shape, dtype=torch.float64, device=self.samples.device)
        words = (self.samples << 32) + self.step
        fill_pairs(out, self.key, words, (slot << 40) + first)
        return out.flatten(1)[:, :count].to(self.dtype)

    def normal(self, rows: int, columns: int) -> Float[Tensor, "B rows columns"]:
        """Return independent standard normals."""
        flat = self.normals_at(self._take_slot(), 0, rows * columns)
        return flat.reshape(len(self.samples), rows, columns)

    def column_blocks(self, rows: int, count: int, block: int) -> Iterator[Float[Tensor, "B r b"]]:
        """Yield a (rows, count) Gaussian matrix per sample, `block` (even) columns at a time."""
        slot = self._take_slot()
        for start in range(0, count, block):
            here = min(block, count - start)
            flat = self.normals_at(slot, start * rows, here * rows)
            yield flat.unflatten(1, (here, rows)).mT

    def chi(self, dof: Sequence[int]) -> Float[Tensor, "B J"]:
        """Return chi variables with given degrees of freedom (each >= 2), by exact rejection.

        Marsaglia and Tsang, ACM TOMS 26 (2000). All 16 attempts are rejected with probability
        below 1e-20; the value is then sqrt(2 d), near the mode. Each attempt has its own counters,
        so acceptance in one path does not shift the numbers of another.
        """
        slot, device = self._take_slot(), self.samples.device
        first, d = _chi_constants(tuple(dof), device)
        result = torch.full((len(self.samples), len(dof)), -1.0, dtype=torch.float64, device=device)
        for attempt in range(_CHI_ATTEMPTS):
            # Only on the CPU: otherwise the host would wait for the device in every step.
            if device.type == "cpu" and not bool((result < 0).any()):
                break
            pairs = (attempt << ATTEMPT_SHIFT) + first
            normals = torch.stack(_normal_pair(*self._words(slot, pairs)), -1)
            words = torch.stack(self._words(slot, pairs + 1), -1)
            x = normals.flatten(1)[:, : len(dof)]
            u = _uniform(words.flatten(1)[:, : len(dof)])
            cube = (1.0 + x / (3.0 * d.sqrt())) ** 3
            safe = torch.where(cube > 0, cube, 1.0)
            good = (cube > 0) & (u.log() < 0.5 * x * x + d * (1.0 - safe + safe.log()))
            result = torch.where((result < 0) & good, (2.0 * d * safe).sqrt(), result)
        return torch.where(result < 0, (2.0 * d).sqrt(), result).to(self.dtype)

    def wishart_factor(self, m: int, dof: int) -> Float[Tensor, "B m c"]:
        """Return B (m, c) with B B^T ~ Wishart_m(dof, I); c = m, or dof if dof < m + 2.

        For dof >= m + 2 it is Bartlett's lower triangular factor (Muirhead, *Aspects of
        Multivariate Statistical Theory*, 1982, thm 3.2.14), below that the Gaussian matrix
        itself. It uses two slots in either case.
        """
        if dof < m + 2:
            gaussian = self.normal(m, dof)
            self._take_slot()
            return gaussian
        if self._on_host:
            out, slots = np.empty((len(self.samples), m, m)), (self._take_slot(), self._take_slot())
            fill_wishart(out, dof, self.key, self.paths(), slots)
            return torch.from_numpy(out).to(self.dtype)
        below = self.normals_at(self._take_slot(), 0, m * (m - 1) // 2)
        diagonal = self.chi([dof - i for i in range(m)])
        factor = torch.diag_embed(diagonal)
        rows, columns = torch.tril_indices(m, m, -1, device=self.samples.device)
        factor[:, rows, columns] = below
        return factor

    def normals_beside_wishart(self, m: int, known: int, dof: int) -> Float[Tensor, "B m c"]:
        """Return [G, B] with independent normals G (m, known), and B as in `wishart_factor`.

        G has the first of three slots.
        """
        return torch.cat([self.normal(m, known), self.wishart_factor(m, dof)], dim=-1)
