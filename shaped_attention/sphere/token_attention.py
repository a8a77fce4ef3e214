"""Self-attention with arbitrary query, key and value matrices, heads and an MLP.

    dx_i/dt = P_{x_i} ( sum_h sum_j w^h_ij V_h x_j + MLP(x_i) ),    P_x y = y - <x, y> x,
    SA: w^h_ij = exp(beta <Q_h x_i, K_h x_j>) / Z_i,    USA: Z_i = number of tokens that i sees,

see Geshkovski, Letrouit, Polyanskiy and Rigollet, "A mathematical perspective on transformers"
(arXiv 2312.10794). The Gram matrix no longer evolves by itself, so tokens keep all d coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shaped_attention.checks import real_array
from shaped_attention.results.plain_arguments import storable
from shaped_attention.sphere.dynamics import SphereAttention

Matrices = Tensor | Callable[[Tensor], Tensor] | None
"""Matrices of a layer, a function of times (B,) that returns them, or None for the identity."""

Perceptron = Callable[[Tensor], Tensor]
"""Map of tokens (..., N, d) to (..., N, d), token by token."""


@storable
@dataclass(frozen=True, eq=False)
class TokenAttention:
    """Field of one self-attention layer on tokens in R^d.

    Parameters
    ----------
    beta
        Inverse temperature; finite, at most 600 in absolute value.
    query, key
        Q and K, of shape (k, d), or (H, k, d) for H heads, or (samples, H, k, d) if they differ
        between samples. A function of times (B,), which may all differ, returns one of these, with
        B in the place of samples. None is the identity. Matrices are stored with four dimensions
        in float64, and used in the precision and on the device of the tokens.
    value
        V, in the same form with k = d.
    normalised
        True for SA, False for USA.
    causal
        Whether token i sees only the tokens up to i; USA then divides by their number.
    mlp
        Function of tokens that is added to the attention before the projection.

    Raises
    ------
    ValueError
        If a number is outside its range, or the shapes are incompatible.
    """

    beta: float
    query: Matrices = None
    key: Matrices = None
    value: Matrices = None
    normalised: bool = True
    causal: bool = False
    mlp: Perceptron | None = None
    _weighing: SphereAttention = field(init=False, repr=False)
    _forms: tuple[Matrices, Matrices] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weighing = SphereAttention(self.beta, self.normalised, causal=self.causal)
        object.__setattr__(self, "_weighing", weighing)
        for name in ("query", "key", "value"):
            matrix = getattr(self, name)
            if matrix is not None and not callable(matrix):
                object.__setattr__(self, name, _constant(name, matrix))
        if self.mlp is not None and not callable(self.mlp):
            raise ValueError(f"mlp={self.mlp!r}: a function of tokens is needed")
        known = {n: m for n, m in self._matrices().items() if isinstance(m, Tensor)}
        _check_fit(known, self._identities())
        forms = self.query, self.key
        if "query" in known and "key" in known:
            query, key = known["query"], known["key"]
            if query.shape[-2] >= query.shape[-1]:
                # <Q x, K y> = <K^T Q x, y>: one product with the tokens instead of two.
                forms = key.mT @ query, None
        object.__setattr__(self, "_forms", forms)

    def moved(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """Return the attention of tokens (B, N, d) plus the MLP, before the projection.

        It is not finite if the weights or the matrices are too large.

        Parameters
        ----------
        tokens
            Tokens of any norm.
        time
            Time of each sample; None means 0.
        which
            Indices of the samples, for matrices that differ between samples; None means all.

        Raises
        ------
        ValueError
            If the matrices or the MLP do not fit the tokens.
        """
        weights = self._weighing.weights(self.scores(tokens, time, which))
        moved = (weights @ self._times("value", self.value, tokens, time, which)).sum(1)
        if self.mlp is not None:
            added = self.mlp(tokens)
            if added.shape != tokens.shape:
                raise ValueError(
                    f"mlp gives shape {tuple(added.shape)} for {tuple(tokens.shape)}; "
                    "the same is needed"
                )
            moved = moved + added
        return moved

    def field(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """Return dx/dt of tokens (B, N, d) on the unit sphere: the projection of `moved`."""
        moved = self.moved(tokens, time, which)
        return moved - (moved * tokens).sum(-1, keepdim=True) * tokens

    def scores(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B H N N"]:
        """Return <Q_h x_i, K_h x_j>, without beta."""
        left, right = self._forms
        asked = self._times("query", left, tokens, time, which)
        return asked @ self._times("key", right, tokens, time, which).mT

    def energy(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """Return E = (1 / (2 beta N^2)) sum_h sum_ij exp(beta <Q_h x_i, K_h x_j>).

        At beta = 0 it is the limit up to a constant. If every V_h = Q_h^T K_h is symmetric, and
        there is no mask, MLP or time dependence, then dE/dt = (1/N) sum_i |dx_i/dt|^2 along USA;
        along SA with one head each term is multiplied by Z_i / N. Symmetry is needed because the
        gradient contains (Q^T K + K^T Q) / 2.
        """
        return self._weighing.energy(self.scores(tokens, time, which)).sum(-1)

    def check_start(self, start: Float[Tensor, "samples N d"]) -> None:
        """Raise ValueError unless tokens (samples, N, d) fit the matrices, those of time 0."""
        samples, dimension = start.shape[0], start.shape[-1]
        known = {}
        for name, matrix in self._matrices().items():
            if matrix is None:
                continue
            given = matrix if isinstance(matrix, Tensor) else matrix(start.new_zeros(samples))
            sets = _constant(name, given)
            if sets.shape[-1] != dimension or len(sets) not in (1, samples):
                raise ValueError(
                    f"{name} has shape {tuple(sets.shape)}; (1 or {samples}, H, k, {dimension}) "
                    "is needed for this start (uniform_start keeps min(N, d) coordinates; "
                    "random_tokens has all d)"
                )
            known[name] = sets
        _check_fit(known, self._identities())

    @property
    def autonomous(self) -> bool:
        """Whether no matrix depends on time."""
        return not any(callable(matrix) for matrix in self._matrices().values())

    def _matrices(self) -> dict[str, Matrices]:
        return {"query": self.query, "key": self.key, "value": self.value}

    def _identities(self) -> set[str]:
        return {name for name, matrix in self._matrices().items() if matrix is None}

    def _times(
        self, name: str, matrix: Matrices, tokens: Tensor, time: Tensor | None, which: Tensor | None
    ) -> Tensor:
        """Return the matrices times the tokens, (B, H, N, k)."""
        if matrix is None:
            return tokens[:, None]
        if isinstance(matrix, Tensor):
            sets = _of_samples(matrix.to(tokens), which)
        else:
            at = tokens.new_zeros(len(tokens)) if time is None else time
            sets = _four(name, matrix(at)).to(tokens)
        if len(sets) not in (1, len(tokens)) or sets.shape[-1] != tokens.shape[-1]:
            raise ValueError(
                f"{name} has shape {tuple(sets.shape)}; (1 or {len(tokens)}, H, k, "
                f"{tokens.shape[-1]}) is needed for tokens {tuple(tokens.shape)}"
            )
        stacked = sets.flatten(1, 2)
        product = tokens @ (stacked[0] if len(stacked) == 1 else stacked).mT
        return product.unflatten(-1, sets.shape[1:3]).transpose(1, 2)


def relu_mlp(
    inner: Float[Tensor, "h d"],
    outer: Float[Tensor, "d h"],
    bias: Float[Tensor, " h"] | None = None,
) -> Perceptron:
    """Return the map x -> outer relu(inner x + bias) of each token.

    It works in the precision and on the device of the tokens.

    Raises
    ------
    ValueError
        If the shapes are incompatible, or an entry is not finite.
    """
    first, last = _finite("inner", inner), _finite("outer", outer)
    shift = first.new_zeros(first.shape[:1]) if bias is None else _finite("bias", bias)
    if first.ndim != 2 or last.shape != first.shape[::-1] or shift.shape != first.shape[:1]:
        raise ValueError(
            f"inner, outer, bias have shapes {tuple(first.shape)}, {tuple(last.shape)}, "
            f"{tuple(shift.shape)}; (h, d), (d, h), (h,) are needed"
        )

    return _ReLU(first, last, shift)


@storable
@dataclass(frozen=True, eq=False)
class _ReLU:
    inner: Tensor
    outer: Tensor
    bias: Tensor

    def __call__(self, tokens: Tensor) -> Tensor:
        hidden = torch.relu(tokens @ self.inner.to(tokens).mT + self.bias.to(tokens))
        return hidden @ self.outer.to(tokens).mT


def _constant(name: str, matrix: Tensor) -> Tensor:
    return _four(name, _finite(name, matrix))


def _finite(name: str, matrix: Tensor) -> Tensor:
    """Return the matrix in float64, on its device."""
    if not isinstance(matrix, Tensor):
        raise ValueError(f"{name} is a {type(matrix).__name__}; a tensor is needed")
    found = torch.from_numpy(real_array(matrix, name, trained=True)).to(matrix.device)
    if not bool(torch.isfinite(found).all()):
        raise ValueError(f"{name} has NaN or infinite entries; finite numbers are needed")
    return found


def _four(name: str, matrix: Tensor) -> Tensor:
    if matrix.ndim not in (2, 3, 4) or matrix.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(matrix.shape)}; (k, d), (H, k, d) or (samples, H, k, d) is "
            "needed"
        )
    return matrix[(None,) * (4 - matrix.ndim)]


def _check_fit(known: dict[str, Tensor], identities: set[str]) -> None:
    """Raise ValueError unless matrices (S, H, k, d) fit each other and the identities."""
    shapes = {name: tuple(matrix.shape) for name, matrix in known.items()}
    sets, heads = ({shape[axis] for shape in shapes.values()} - {1} for axis in (0, 1))
    if len(sets) > 1 or len(heads) > 1 or len({shape[3] for shape in shapes.values()}) > 1:
        raise ValueError(f"shapes {shapes}: the same samples, heads (or 1) and d are needed")
    rows = {name: matrix.shape[-2] for name, matrix in known.items()}
    if "query" in rows and "key" in rows and rows["query"] != rows["key"]:
        raise ValueError(f"shapes {shapes}: as many rows of query as of key are needed")
    if "value" in rows and rows["value"] != shapes["value"][3]:
        raise ValueError(f"value has shape {shapes['value']}; square matrices are needed")
    for name, partner in (("query", "key"), ("key", "query")):
        if name in rows and partner in identities and rows[name] != shapes[name][3]:
            raise ValueError(
                f"{name} needs {shapes[name][3]} rows, not {rows[name]}: {partner} is the identity"
            )


def _of_samples(matrix: Tensor, which: Tensor | None) -> Tensor:
    if which is None or len(matrix) == 1:
        return matrix
    if bool((which.diff() == 1).all()):
        # A view, where indexing copies.
        return matrix[int(which[0]) : int(which[-1]) + 1]
    return matrix[which]
