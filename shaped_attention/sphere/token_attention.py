"""Self-attention with arbitrary query, key and value matrices, heads and an MLP.

    dx_i/dt = P_{x_i} ( sum_h sum_j w^h_ij V_h x_j + MLP(x_i) ),    P_x y = y - <x, y> x,
    SA: w^h_ij = exp(beta <Q_h x_i, K_h x_j>) / Z_i,    USA: Z_i = number of tokens that i sees,

with H heads, see Geshkovski, Letrouit, Polyanskiy and Rigollet, "A mathematical perspective on
transformers" (arXiv 2312.10794). The Gram matrix no longer evolves by itself, so tokens keep all d
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from shaped_attention.checks import argument_error
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
        Inverse temperature, at most 300 in absolute value.
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
        If `beta` is outside its range, or a matrix is not a tensor of two to four dimensions.
    """

    beta: float
    query: Matrices = None
    key: Matrices = None
    value: Matrices = None
    normalised: bool = True
    causal: bool = False
    mlp: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, matrix in self._matrices().items():
            if matrix is not None and not callable(matrix):
                object.__setattr__(self, name, _four(name, matrix).detach().double())

    def moved(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B N d"]:
        """Return the attention and MLP of tokens (B, N, d), before the projection."""
        weights = self.weights(self.scores(tokens, time, which))
        moved = (weights @ self._times("value", tokens, time, which)).sum(1)
        return moved if self.mlp is None else moved + self.mlp(tokens)

    def scores(
        self,
        tokens: Float[Tensor, "B N d"],
        time: Float[Tensor, " B"] | None = None,
        which: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B H N N"]:
        """Return <Q_h x_i, K_h x_j>, without beta."""
        asked = self._times("query", tokens, time, which)
        return asked @ self._times("key", tokens, time, which).mT

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
        rows, heads = dict.fromkeys(self._matrices(), dimension), {1}
        for name, matrix in self._matrices().items():
            if matrix is None:
                continue
            now = _four(name, matrix(start.new_zeros(samples)) if callable(matrix) else matrix)
            if now.shape[-1] != dimension or len(now) not in (1, samples):
                raise ValueError(
                    f"{name} must have shape (1 or {samples}, H, k, {dimension}) for these tokens; "
                    f"got {tuple(now.shape)} (uniform_start keeps all coordinates with "
                    "reduced=False)"
                )
            rows[name] = now.shape[2]
            heads.add(now.shape[1])
        if rows["query"] != rows["key"]:
            raise argument_error("query", "a matrix with as many rows as key", rows)
        if rows["value"] != dimension:
            raise argument_error("value", "a matrix with as many rows as columns", rows["value"])
        if len(heads) > 2:
            raise argument_error("matrices", "of equal numbers of heads, or of 1", heads)

    @property
    def autonomous(self) -> bool:
        """Whether no matrix depends on time."""
        return not any(callable(matrix) for matrix in self._matrices().values())

    def _matrices(self) -> dict[str, Matrices]:
        return {"query": self.query, "key": self.key, "value": self.value}

    def _times(
        self, name: str, tokens: Tensor, time: Tensor | None, which: Tensor | None
    ) -> Float[Tensor, "B H N k"]:
        """Return the matrices times the tokens."""
        matrix = self._matrices()[name]
        if matrix is None:
            return tokens[:, None]
        if isinstance(matrix, Tensor):
            sets = matrix if which is None or len(matrix) == 1 else matrix[which]
        else:
            sets = _four(name, matrix(tokens.new_zeros(len(tokens)) if time is None else time))
        return tokens[:, None] @ sets.to(tokens).mT


def _four(name: str, matrix: Tensor) -> Float[Tensor, "S H k d"]:
    if not isinstance(matrix, Tensor) or matrix.ndim not in (2, 3, 4):
        shapes = "a tensor of shape (k, d), (H, k, d) or (samples, H, k, d)"
        raise argument_error(name, shapes, matrix)
    return matrix[(None,) * (4 - matrix.ndim)]
