"""Self-attention with arbitrary query, key and value matrices, heads and an MLP.

    dx_i/dt = P_{x_i} ( sum_h sum_j w^h_ij V_h x_j + MLP(x_i) ),    P_x y = y - <x, y> x,
    composed: dx_i/dt = (1 / H) sum_h P_{x_i} MLP_h( V_h sum_j w^h_ij x_j ),
    SA: w^h_ij = exp(beta <Q_h x_i, K_h x_j>) / Z_i,    USA: Z_i = number of tokens that i sees,

with H heads, see Geshkovski, Letrouit, Polyanskiy and Rigollet, "A mathematical perspective on
transformers" (arXiv 2312.10794). The Gram matrix no longer evolves by itself, so tokens keep all d
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shaped_attention.checks import (
    argument_error,
    check_choice,
    check_count,
    check_positive,
    real_array,
)
from shaped_attention.numerics.draws import Draws, stream_key
from shaped_attention.results.plain_arguments import storable
from shaped_attention.sphere.attention import Attention
from shaped_attention.sphere.starts import SpherePart

Matrices = Tensor | Callable[[Tensor], Tensor] | None
"""Matrices of a layer, a function of times (B,) that returns them, or None for the identity."""

Perceptron = Callable[[Tensor], Tensor]
"""Map of tokens (..., N, d) to (..., N, d), token by token."""

ENSEMBLES = ("ginibre", "wigner-psd", "ginibre-gradient", "wigner-gradient")


@storable
@dataclass(frozen=True, eq=False)
class TokenAttention(Attention):
    """Field of one self-attention layer on tokens in R^d.

    Parameters
    ----------
    beta
        Inverse temperature; finite, at most 600 in absolute value.
    query, key
        Q and K, of shape (k, d), or (H, k, d) for H heads, or (samples, H, k, d) if they differ
        between samples. A function of times (B,), which may all differ, returns one of these, with
        B in the place of samples. None means the identity. Matrices are stored with four dimensions
        in float64, and used in the precision and on the device of the tokens.
    value
        V, in the same form with k = d.
    normalised
        True for SA, False for USA, "sinkhorn" for doubly stochastic weights, as for
        `SphereAttention`.
    causal
        Whether token i sees only the tokens up to i; USA then divides by their number. Not with
        "sinkhorn".
    mlp
        Function of tokens that is added to the attention before the projection, or matrices
        (inner, outer) or (inner, outer, bias) of shapes (h, d), (d, h) and (h,) for the function
        x -> outer relu(inner x + bias) of each token.
    composed
        Whether the MLP acts on the attention of each head instead: MLP_h(V_h sum_j w_ij x_j), with
        the mean over the heads instead of their sum. A function then takes and returns (B, H, N,
        d), and matrices of shapes (H, h, d), (H, d, h) and (H, h) are one MLP for each head.

    Raises
    ------
    ValueError
        If a number is outside its range, or the shapes are incompatible.
    """

    beta: float
    query: Matrices = None
    key: Matrices = None
    value: Matrices = None
    normalised: bool | str = True
    causal: bool = False
    mlp: Perceptron | tuple[Tensor, ...] | None = None
    composed: bool = False
    _forms: tuple[Matrices, Matrices] = field(init=False, repr=False)
    _perceptron: Perceptron | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("query", "key", "value"):
            matrix = getattr(self, name)
            if matrix is not None and not callable(matrix):
                object.__setattr__(self, name, _constant(name, matrix))
        if not isinstance(self.composed, bool) or (self.composed and self.mlp is None):
            raise argument_error("composed", "False, or True if there is an mlp", self.composed)
        perceptron = self.mlp
        if perceptron is not None and not callable(perceptron):
            perceptron = perceptron_of(perceptron, heads=self.composed)
        object.__setattr__(self, "_perceptron", perceptron)
        known = {n: m for n, m in self._matrices().items() if isinstance(m, Tensor)}
        self._check_fit(known)
        forms = self.query, self.key
        if "query" in known and "key" in known:
            query, key = known["query"], known["key"]
            if query.shape[-2] >= query.shape[-1]:
                # <Q x, K y> = <K^T Q x, y>: one product with the tokens instead of two.
                forms = key.mT @ query, None
        object.__setattr__(self, "_forms", forms)

    @classmethod
    def random(
        cls,
        ensemble: str,
        dimension: int,
        beta: float,
        samples: int = 1,
        seed: int = 0,
        *,
        first: int = 0,
        normalised: bool | str = True,
        scale: float = 1.0,
    ) -> Self:
        """Draw the random matrices of one head, independently for each sample.

        The ensembles are the four of arXiv 2312.10794. Entries have variance 1/d, so in any
        dimension the norm of a Ginibre or Wigner matrix is 2 and a random vector keeps its length
        on average. This sets the scale of beta: variance s^2 / d for Q and K is the same as beta
        multiplied by s^2 and, if V = Q^T K, a clock s^2 times as fast.

        Parameters
        ----------
        ensemble
            - "ginibre": Q, K and V independent with independent normal entries of variance 1/d;
            - "wigner-psd": Q^T K = W from the GOE, W = (G + G^T) / sqrt(2) with G Ginibre (entries
              of variance 1/d, 2/d on the diagonal, eigenvalues in [-2, 2] for large d); V = |W'|,
              the matrix absolute value of an independent W': symmetric, positive semidefinite;
            - "ginibre-gradient": Q and K Ginibre, V = Q^T K (not symmetric: no gradient flow);
            - "wigner-gradient": Q^T K = W and V = W: a gradient flow.

            If only Q^T K is given, K = W and Q = I.
        dimension, samples
            Dimension d and number of samples.
        beta, normalised
            As for the class.
        seed, first
            Seed (integer >= 0), and index of the first sample: the matrices of a sample depend only
            on the seed and its index.
        scale
            Factor s > 0 of Q and K. Ginibre matrices then have entries of variance s^2 / d, and
            Q^T K = s^2 W for Wigner matrices. V changes only if it is Q^T K.

        Raises
        ------
        ValueError
            If an argument is outside its range.
        """
        check_choice("ensemble", ensemble, ENSEMBLES)
        check_count("dimension", dimension)
        check_count("samples", samples)
        check_count("seed", seed, lowest=0)
        check_count("first", first, lowest=0)
        check_positive("scale", scale)
        key_of_stream = stream_key(seed, "sphere", SpherePart.MATRICES)
        draws = Draws(key_of_stream, torch.arange(first, first + samples, device="cpu"), 0)

        def ginibre() -> Tensor:
            return (draws.normal(dimension, dimension) / dimension**0.5)[:, None]

        def wigner() -> Tensor:
            square = ginibre()
            return (square + square.mT) / 2.0**0.5

        query = None
        if ensemble.startswith("wigner"):
            key = scale * scale * wigner()
            value = key
            if ensemble == "wigner-psd":
                values, vectors = torch.linalg.eigh(wigner())
                value = (vectors * values.abs()[..., None, :]) @ vectors.mT
        else:
            query, key = scale * ginibre(), scale * ginibre()
            value = ginibre() if ensemble == "ginibre" else query.mT @ key
        return cls(beta, query, key, value, normalised)

    def moved(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
        *,
        beta: Float[Tensor, "B 1 1"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """Return the attention and MLP of tokens (B, N, d), before the projection.

        The result is not finite if the weights or the matrices are too large.

        Parameters
        ----------
        tokens
            Tokens of any norm.
        time
            Time of each sample; None means 0.
        which
            Indices of the samples, for matrices that differ between samples; None means all.
        beta
            Inverse temperature of each sample; None means the attention's.

        Raises
        ------
        ValueError
            If the matrices or the MLP do not fit the tokens.
        """
        of_heads = None if beta is None else beta[:, None]
        weights = self.weights(self.scores(tokens, time, which), of_heads)
        moved = weights @ self._times("value", self.value, tokens, time, which)
        if self.composed:
            return self._through_mlp(moved).mean(1)
        moved = moved.sum(1)
        return moved if self._perceptron is None else moved + self._through_mlp(tokens)

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

        At beta = 0 this is the limit as beta -> 0, up to a constant. If every V_h = Q_h^T K_h is
        symmetric, and there is no mask, MLP or time dependence, then dE/dt = (1/N) sum_i
        |dx_i/dt|^2 along USA; along SA with one head each term is multiplied by Z_i / N. Symmetry
        is needed because the gradient contains (Q^T K + K^T Q) / 2.
        """
        return self._energies(self.scores(tokens, time, which)).sum(-1)

    def check_start(self, start: Float[Tensor, "samples N d"]) -> None:
        """Raise ValueError unless these are unit tokens that fit the matrices, those of time 0."""
        super().check_start(start)
        samples, dimension = start.shape[0], start.shape[-1]
        known = {}
        for name, matrix in self._matrices().items():
            if matrix is None:
                continue
            now = matrix if isinstance(matrix, Tensor) else matrix(start.new_zeros(samples))
            known[name] = _constant(name, now)
            _check_sets(name, known[name], samples, dimension)
        self._check_fit(known)

    @property
    def autonomous(self) -> bool:
        """Whether no matrix depends on time."""
        return not any(callable(matrix) for matrix in self._matrices().values())

    def _matrices(self) -> dict[str, Matrices]:
        return {"query": self.query, "key": self.key, "value": self.value}

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
        _check_sets(name, sets, len(tokens), tokens.shape[-1])
        stacked = sets.flatten(1, 2)
        product = tokens @ (stacked[0] if len(stacked) == 1 else stacked).mT
        return product.unflatten(-1, sets.shape[1:3]).transpose(1, 2)

    def _through_mlp(self, x: Tensor) -> Tensor:
        """Return the MLP of tokens (B, N, d) or, if it is composed, of heads (B, H, N, d)."""
        assert self._perceptron is not None
        result = self._perceptron(x)
        # One head of attention may go through several MLPs.
        one_head = x.ndim == 4 and x.shape[1] == 1
        if (result[:, :1] if one_head else result).shape != x.shape:
            raise ValueError(
                f"mlp must keep the shape {tuple(x.shape)} of the tokens; it returned "
                f"{tuple(result.shape)}"
            )
        return result

    def _check_fit(self, known: dict[str, Tensor]) -> None:
        """Raise ValueError unless matrices (S, H, k, d) fit each other and the identities."""
        shapes = {name: tuple(matrix.shape) for name, matrix in known.items()}
        if isinstance(self._perceptron, _ReLU):
            shapes["mlp"] = tuple(_four("mlp", self._perceptron.inner).shape)
        sets, heads, columns = ({shape[axis] for shape in shapes.values()} for axis in (0, 1, 3))
        if max(len(sets - {1}), len(heads - {1}), len(columns)) > 1:
            raise argument_error(
                "matrices", "of equal numbers of samples, heads (or 1) and columns d", shapes
            )
        rows = {name: shape[2] for name, shape in shapes.items()}
        if "query" in rows and "key" in rows and rows["query"] != rows["key"]:
            raise argument_error("query", "a matrix with as many rows as key", shapes)
        for name, partner in (("query", "key"), ("key", "query"), ("value", "value")):
            square = partner == name or self._matrices()[partner] is None
            if name in rows and square and rows[name] != shapes[name][3]:
                reason = "" if partner == name else f", because {partner} is the identity"
                raise argument_error(name, f"square{reason}", shapes[name])


@storable
@dataclass(frozen=True, eq=False)
class _ReLU:
    """The map x -> outer relu(inner x + bias), in the precision and on the device of the tokens."""

    inner: Tensor
    outer: Tensor
    bias: Tensor

    def __call__(self, tokens: Tensor) -> Tensor:
        bias = self.bias.to(tokens)[..., None, :]
        hidden = torch.relu(tokens @ self.inner.to(tokens).mT + bias)
        return hidden @ self.outer.to(tokens).mT


def perceptron_of(mlp: tuple[Tensor, ...], *, heads: bool = False) -> Perceptron:
    """Return the function of tokens; raise ValueError unless its matrices fit.

    With `heads` they may have a first axis of heads.
    """
    if not isinstance(mlp, tuple | list) or len(mlp) not in (2, 3):
        raise argument_error("mlp", "a function of tokens or (inner, outer, bias)", mlp)
    inner, outer = _finite("inner", mlp[0]), _finite("outer", mlp[1])
    bias = _finite("bias", mlp[2]) if len(mlp) == 3 else inner.new_zeros(inner.shape[:-1])
    shapes = tuple(inner.shape), tuple(outer.shape), tuple(bias.shape)
    if inner.ndim not in (2, 2 + heads) or shapes[1:] != (tuple(inner.mT.shape), shapes[0][:-1]):
        also = ", or one of each for every head" if heads else ""
        raise argument_error("mlp", f"matrices of shapes (h, d), (d, h) and (h,){also}", shapes)
    return _ReLU(inner, outer, bias)


def _constant(name: str, matrix: Tensor) -> Tensor:
    return _four(name, _finite(name, matrix))


def _finite(name: str, matrix: Tensor) -> Tensor:
    """Return the matrix in float64, on its device."""
    if not isinstance(matrix, Tensor):
        raise argument_error(name, "a tensor", matrix)
    values = torch.from_numpy(real_array(matrix, name, trained=True)).to(matrix.device)
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be finite; it has NaN or infinite entries")
    return values


def _four(name: str, matrix: Tensor) -> Tensor:
    if matrix.ndim not in (2, 3, 4) or matrix.numel() == 0:
        shapes = "(k, d), (H, k, d) or (samples, H, k, d)"
        raise argument_error(name, f"of shape {shapes}", tuple(matrix.shape))
    return matrix[(None,) * (4 - matrix.ndim)]


def _check_sets(name: str, sets: Tensor, samples: int, dimension: int) -> None:
    if sets.shape[-1] != dimension or len(sets) not in (1, samples):
        raise ValueError(
            f"{name} must have shape (1 or {samples}, H, k, {dimension}) for these tokens; got "
            f"{tuple(sets.shape)} (uniform_start keeps all coordinates with reduced=False)"
        )


def _of_samples(matrix: Tensor, which: Tensor | None) -> Tensor:
    if which is None or len(matrix) == 1:
        return matrix
    if bool((which.diff() == 1).all()):
        # A view, where indexing copies.
        return matrix[int(which[0]) : int(which[-1]) + 1]
    return matrix[which]
