"""Self-attention with arbitrary query, key and value matrices, heads and an MLP.

    dx_i/dt = P_{x_i} ( sum_h sum_j w^h_ij V_h x_j + MLP(x_i) ),    P_x y = y - <x, y> x,
    SA: w^h_ij = exp(beta <Q_h x_i, K_h x_j>) / Z_i,    USA: Z_i = number of tokens that i sees,

with H heads, see Geshkovski, Letrouit, Polyanskiy and Rigollet, "A mathematical perspective on
transformers" (arXiv 2312.10794). The Gram matrix no longer evolves by itself, so tokens keep all d
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shaped_attention.checks import argument_error, real_array
from shaped_attention.results.plain_arguments import storable
from shaped_attention.sphere.attention import Attention

Matrices = Tensor | Callable[[Tensor], Tensor] | None
"""Matrices of a layer, a function of times (B,) that returns them, or None for the identity."""


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
        True for SA, False for USA.
    causal
        Whether token i sees only the tokens up to i; USA then divides by their number.
    mlp
        Function of tokens (B, N, d) that is added to the attention before the projection.

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
    mlp: Callable[[Tensor], Tensor] | None = None
    _forms: tuple[Matrices, Matrices] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("query", "key", "value"):
            matrix = getattr(self, name)
            if matrix is not None and not callable(matrix):
                object.__setattr__(self, name, _constant(name, matrix))
        if self.mlp is not None and not callable(self.mlp):
            raise argument_error("mlp", "a function of tokens", self.mlp)
        known = {n: m for n, m in self._matrices().items() if isinstance(m, Tensor)}
        self._check_fit(known)
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
        moved = moved.sum(1)
        if self.mlp is None:
            return moved
        added = self.mlp(tokens)
        if added.shape != tokens.shape:
            raise ValueError(
                f"mlp must keep the shape {tuple(tokens.shape)} of the tokens; it returned "
                f"{tuple(added.shape)}"
            )
        return moved + added

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

    def _check_fit(self, known: dict[str, Tensor]) -> None:
        """Raise ValueError unless matrices (S, H, k, d) fit each other and the identities."""
        shapes = {name: tuple(matrix.shape) for name, matrix in known.items()}
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


def _constant(name: str, matrix: Tensor) -> Tensor:
    """Return the matrix in float64, on its device, with four dimensions."""
    if not isinstance(matrix, Tensor):
        raise argument_error(name, "a tensor", matrix)
    values = torch.from_numpy(real_array(matrix, name, trained=True)).to(matrix.device)
    if not bool(torch.isfinite(values).all()):
        raise ValueError(f"{name} must be finite; it has NaN or infinite entries")
    return _four(name, values)


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
