"""The limiting SDE as a textbook solves it: the baseline of the speed ratios.

A competent researcher who has the drift and the diffusion of the shaped attention limit, but not
this package, would write this: the half-vectorised state (batch, d), d = m(m+1)/2, the dense d x d
diffusion matrix of the whole batch, its Cholesky factor as the general noise of torchsde, and
torchsde's Euler method with its default Brownian motion. The formulas are those of shaped
attention with one head, no mask and no output projection (weights of variance 1, k = gamma^2
(2 - gamma^2), C = I - 11^T/m, P = C V C, R = V P V / m^2, q = diag V, s = diag P - (tr P/m) 1,
u = V s)::

    b     = (gamma^2/tau0^2) [ (|P|_F^2/m^2) V + (q u^T + u q^T)/(2m) ]
    Sigma = k (V_ac V_bd + V_ad V_bc)
            + (gamma^4/tau0^2) (V_ac R_bd + V_bd R_ac + V_ad R_bc + V_bc R_ad)

Nothing here imports `shaped_attention`, so that each can check the other.
"""

from __future__ import annotations

import torch
import torchsde
from jaxtyping import Float
from torch import Tensor, nn

JITTER = 1e-10
"""Added to the diagonal of Sigma, relative to its mean diagonal entry, before the factorisation."""


class TextbookSDE(nn.Module):
    """Shaped attention's limit for torchsde: Ito, general noise, dense diffusion factor.

    The half-vectorisation lists the lower triangle of V row by row: V_00, V_10, V_11, V_20, ...

    Parameters
    ----------
    tokens
        The number m >= 1 of tokens.
    gamma
        Weight of the residual branch, in (0, 1].
    tau0
        Scale of the temperature, positive.
    """

    noise_type = "general"
    sde_type = "ito"

    def __init__(self, tokens: int, gamma: float, tau0: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.linear = gamma**2 * (2 - gamma**2)
        self.attention = gamma**4 / tau0**2
        self.drift_scale = gamma**2 / tau0**2
        self.rows, self.columns = torch.tril_indices(tokens, tokens)
        rows, columns = self.rows, self.columns
        a, b, c, d = rows[:, None], columns[:, None], rows[None, :], columns[None, :]
        # Flat positions of the entries ac, bd, ad and bc of V in row ab and column cd of Sigma.
        self.ac, self.bd, self.ad, self.bc = (
            (tokens * x + y).flatten() for x, y in ((a, c), (b, d), (a, d), (b, c))
        )
        position = torch.empty(tokens, tokens, dtype=torch.int64)
        position[rows, columns] = position[columns, rows] = torch.arange(len(rows))
        self.unfold = position.flatten()

    def vech(self, v: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch d"]:
        """Stack the lower triangle of each V, row by row."""
        return v[:, self.rows, self.columns]

    def matrices(self, y: Float[Tensor, "batch d"]) -> Float[Tensor, "batch m m"]:
        """Return the symmetric matrices whose lower triangles are the rows of `y`."""
        return y[:, self.unfold].unflatten(1, (self.tokens, self.tokens))

    def f(self, t: Tensor, y: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d"]:
        """Evaluate the drift b(V), half-vectorised."""
        m = self.tokens
        v = self.matrices(y)
        p = _centred(v)
        spread = torch.diagonal(p, dim1=1, dim2=2)
        u = torch.einsum("nab,nb->na", v, spread - spread.mean(1, keepdim=True))
        pair = torch.einsum("na,nb->nab", torch.diagonal(v, dim1=1, dim2=2), u)
        norm = torch.einsum("nab,nab->n", p, p)
        drift = norm[:, None, None] / m**2 * v + (pair + pair.mT) / (2 * m)
        return self.vech(self.drift_scale * drift)

    def diffusion(self, y: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d d"]:
        """Assemble Sigma(V), the covariance per unit time of the half-vectorised noise."""
        v = self.matrices(y)
        r = v @ _centred(v) @ v / self.tokens**2
        # Both parts of Sigma are one symmetrised product of V with this matrix.
        w = self.linear / 2 * v + self.attention * r
        # The batch comes last here, so that picking an entry copies one contiguous row.
        v, w = v.flatten(1).T.contiguous(), w.flatten(1).T.contiguous()
        sigma = v[self.ac] * w[self.bd]
        sigma.addcmul_(v[self.bd], w[self.ac])
        sigma.addcmul_(v[self.ad], w[self.bc])
        sigma.addcmul_(v[self.bc], w[self.ad])
        return sigma.unflatten(0, (len(self.rows), len(self.rows))).permute(2, 0, 1)

    def g(self, t: Tensor, y: Float[Tensor, "batch d"]) -> Float[Tensor, "batch d d"]:
        """Factorise Sigma(V) = g g^T by Cholesky's method, after adding `JITTER`.

        Raises
        ------
        torch.linalg.LinAlgError
            Sigma(V) of some path is not positive definite, because V has lost its definiteness in
            an Euler step that was too long, or has exploded.
        """
        sigma = self.diffusion(y)
        diagonal = torch.diagonal(sigma, dim1=1, dim2=2)
        diagonal += JITTER * diagonal.mean(1, keepdim=True)
        return torch.linalg.cholesky(sigma)


def simulate(
    v0: Float[Tensor, "m m"],
    gamma: float,
    tau0: float,
    horizon: float,
    step: float,
    samples: int,
    seed: int,
) -> Float[Tensor, "samples m m"]:
    """Simulate V_T from V_0 = v0 by the Euler-Maruyama method, all samples in one batch.

    Parameters
    ----------
    v0
        The initial covariance (m, m), symmetric positive definite.
    gamma, tau0
        Parameters of shaped attention: 0 < gamma <= 1 and tau0 > 0.
    horizon, step
        The time T > 0 and the step, which must divide it.
    samples
        The number of independent paths, at least 1. Memory grows like ``samples * m**4``.
    seed
        Seed of the Brownian motion. The global random state of torch is left as it was.

    Returns
    -------
    Tensor (samples, m, m)
        V_T of every path, float64.

    Raises
    ------
    ValueError
        `v0` is not a square matrix, or `step` does not divide `horizon`.
    torch.linalg.LinAlgError
        A path left the positive definite matrices or exploded; see `TextbookSDE.g`.
    """
    if v0.ndim != 2 or v0.shape[0] != v0.shape[1]:
        raise ValueError(f"v0 must be a square matrix, but its shape is {tuple(v0.shape)}")
    steps = round(horizon / step)
    if steps < 1 or abs(steps * step - horizon) > 1e-9 * horizon:
        raise ValueError(f"step must divide horizon={horizon}, but it is {step}")
    sde = TextbookSDE(len(v0), gamma, tau0)
    start = sde.vech(v0.to(torch.float64).expand(samples, -1, -1))
    times = torch.tensor([0.0, horizon], dtype=torch.float64)
    # By default torchsde makes the same object, but seeds it from NumPy's global state.
    noise = torchsde.BrownianInterval(
        times[0], times[-1], size=start.shape, dtype=start.dtype, entropy=seed
    )
    # Some of torchsde's checks draw from torch's global generator.
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A slightly longer step: otherwise rounding leaves a sliver of time, and one more step.
        dt = horizon / steps * (1 + 1e-12)
        path = torchsde.sdeint(sde, start, times, bm=noise, method="euler", dt=dt)
    return sde.matrices(path[-1])


def _centred(v: Float[Tensor, "batch m m"]) -> Float[Tensor, "batch m m"]:
    """Return P = C V C, the covariance of the tokens minus their mean."""
    left = v - v.mean(1, keepdim=True)
    return left - left.mean(2, keepdim=True)
