"""Errors in the residual blocks: attention, MLP, normalisation, and what they share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION = "shaped_attention/blocks/attention.py"
_LIMIT = "shaped_attention/blocks/attention_limit.py"
_BASE = "shaped_attention/blocks/base.py"
_BRANCH = "shaped_attention/blocks/branch.py"
_COUPLING = "shaped_attention/blocks/coupling.py"
_MASK = "shaped_attention/blocks/mask.py"
_MLP = "shaped_attention/blocks/mlp.py"
_NORMALISED = "shaped_attention/blocks/normalised.py"
_KERNEL = "shaped_attention/kernels/attention.py"
_MLP_KERNEL = "shaped_attention/kernels/mlp.py"
_WISHART = "shaped_attention/kernels/wishart.py"

BLOCKS = [
    # Attention: the chain's root, the real weights.
    Mutant(
        "attention-root-one-key-less",
        _ATTENTION,
        "draws.wishart_factor(query_factor.shape[-1], keys)",
        "draws.wishart_factor(query_factor.shape[-1], keys - 1)",
        blind=True,
    ),
    Mutant(
        "attention-root-projection-scaled-by-head",
        _ATTENTION,
        "root = root @ values / math.sqrt(width)",
        "root = root @ values / math.sqrt(width // self.heads)",
        blind=True,
    ),
    Mutant(
        "attention-temperature-one-key-more",
        _ATTENTION,
        "return self.tau0 * math.sqrt(self._keys(width) * (width",
        "return self.tau0 * math.sqrt((self._keys(width) + 1) * (width",
        blind=True,
    ),
    Mutant(
        "attention-branch-projection-scaled-by-head",
        _ATTENTION,
        "return project(branch, n) / root if",
        "return project(branch, n) / math.sqrt(n // self.heads) if",
        blind=True,
    ),
    # Attention: drift and diffusion.
    Mutant(
        "attention-second-order-without-half",
        _LIMIT,
        "return 0.5 * (q + bias)",
        "return 1.0 * (q + bias)",
        blind=True,
    ),
    Mutant(
        "attention-second-order-cross-term",
        _LIMIT,
        "q[..., None, :] - 2.0 * w @ v",
        "q[..., None, :] - w @ v",
        blind=True,
    ),
    Mutant(
        "attention-square-of-means-twice",
        _LIMIT,
        "+ (mean @ w.mT) ** 2",
        "+ 2.0 * (mean @ w.mT) ** 2",
        blind=True,
    ),
    Mutant(
        "attention-diffusion-without-heads",
        _ATTENTION,
        "return self.gamma**4 / (self.heads * self.tau0**2) * total",
        "return self.gamma**4 / self.tau0**2 * total",
        blind=True,
    ),
    Mutant(
        "attention-diffusion-rows-swapped",
        _LIMIT,
        '"...ad,...adbc->...abcd"',
        '"...ad,...dabc->...abcd"',
        blind=True,
    ),
    # Attention: the factor's faces, flow, coupling.
    Mutant(
        "attention-factor-drift-left-without-heads",
        _ATTENTION,
        "return 1.0 - self.gamma**2 / self.heads",
        "return 1.0 - self.gamma**2",
        blind=True,
    ),
    Mutant(
        "attention-factor-drift-square-twice",
        _ATTENTION,
        "drift + 0.5 * self._drift_left",
        "drift + self._drift_left",
        blind=True,
    ),
    Mutant(
        "attention-factor-noise-by-heads",
        _ATTENTION,
        "return self.gamma**2 / (self.tau0 * math.sqrt(self.heads)) * first",
        "return self.gamma**2 / (self.tau0 * self.heads) * first",
        blind=True,
    ),
    Mutant("attention-flow-without-bias", _ATTENTION, "(v + self.query_bias)", "v", blind=True),
    Mutant(
        "attention-coupling-keys-by-heads",
        _ATTENTION,
        "torch.stack(numbers[1::each]).sum(0) / root",
        "torch.stack(numbers[1::each]).sum(0) / self.heads",
        blind=True,
    ),
    Mutant(
        "attention-coupling-projection-gamma",
        _ATTENTION,
        "return self.gamma**2 / root * torch.stack(mixed)",
        "return self.gamma / root * torch.stack(mixed)",
        blind=True,
    ),
    Mutant(
        "coupling-branch-wishart-gamma",
        _COUPLING,
        "gamma**2 * wishart_noise(rest, dof)",
        "gamma * wishart_noise(rest, dof)",
        blind=True,
    ),
    Mutant(
        "coupling-diagonal-variance-one",
        _COUPLING,
        "return math.sqrt(2.0) * torch.from_numpy",
        "return torch.from_numpy",
        blind=True,
    ),
    # Attention: compiled faces.
    Mutant(
        "attention-kernel-one-key-less",
        _KERNEL,
        "fill_wishart(B, buffer, keys, key, sample, step, slot)",
        "fill_wishart(B, buffer, keys - 1, key, sample, step, slot)",
        blind=True,
    ),
    Mutant(
        "attention-kernel-centre-ignores-mask",
        _KERNEL,
        "T[a, b, p] * row_sum[p] - w[a, b]",
        "T[a, b, p] * row_sum[p] - 1.0 / m",
        blind=True,
    ),
    Mutant(
        "attention-kernel-sde-drift-without-heads",
        _KERNEL,
        "0.5 * (1.0 - gamma * gamma / heads)",
        "0.5 * (1.0 - gamma * gamma)",
        blind=True,
    ),
    Mutant(
        "attention-kernel-sde-second-order-without-half",
        _KERNEL,
        "+ 0.5 / m * mean[p] * shift[j, p]",
        "+ 1.0 / m * mean[p] * shift[j, p]",
        blind=True,
    ),
    # Masks, biases, heads, output projection.
    Mutant(
        "mask-causal-upper",
        _MASK,
        "dtype=torch.float64).tril()",
        "dtype=torch.float64).triu()",
        blind=True,
    ),
    Mutant(
        "mask-weights-by-column",
        _MASK,
        "seen.sum(-1, keepdim=True)",
        "seen.sum(-2, keepdim=True)",
        blind=True,
    ),
    Mutant(
        "bias-of-root-is-variance",
        _ATTENTION,
        "torch.full_like(factor[..., :1], math.sqrt(variance))",
        "torch.full_like(factor[..., :1], variance)",
        blind=True,
    ),
    Mutant(
        "bias-of-branch-is-variance",
        _ATTENTION,
        "torch.full_like(x[..., :1, :1], math.sqrt(variance))",
        "torch.full_like(x[..., :1, :1], variance)",
        blind=True,
    ),
    Mutant(
        "heads-groups-as-wide-as-all",
        _BASE,
        "self.gamma, width // groups, draws)",
        "self.gamma, width, draws)",
        blind=True,
    ),
    Mutant("heads-total-not-mean", _BRANCH, "/ math.sqrt(groups)", "/ groups", blind=True),
    Mutant(
        "projection-rate-without",
        _ATTENTION,
        "return 2.0 * g2 if self.output_projection else g2 * (2.0 - g2)",
        "return g2 * (2.0 - g2)",
        blind=True,
    ),
    # The Gaussian branch.
    Mutant(
        "branch-wishart-dof-width",
        _BRANCH,
        "draws.wishart_factor(columns, width - m)",
        "draws.wishart_factor(columns, width)",
        blind=True,
    ),
    Mutant(
        "branch-skip-squared",
        _BRANCH,
        "along = math.sqrt(1.0 - gamma**2) * factor",
        "along = (1.0 - gamma**2) * factor",
        blind=True,
    ),
    Mutant(
        "branch-kernel-wishart-dof-width",
        _WISHART,
        "fill_wishart(B, buffer, width - m, key, first, step, slot + 1)",
        "fill_wishart(B, buffer, width, key, first, step, slot + 1)",
        blind=True,
    ),
    # MLP.
    Mutant(
        "mlp-root-divides-by-width-less-one",
        _MLP,
        "(self._normalisation(width) / width))",
        "(self._normalisation(width) / (width - 1)))",
        blind=True,
    ),
    Mutant(
        "mlp-branch-not-normalised",
        _MLP,
        "math.sqrt(self._normalisation(n) / n)",
        "math.sqrt(1.0 / n)",
        blind=True,
    ),
    Mutant(
        "mlp-normalisation-of-mean-slope",
        _MLP,
        "return 2.0 / (plus**2 + minus**2)",
        "return 4.0 / (plus + minus) ** 2",
        blind=True,
    ),
    Mutant(
        "mlp-kappa-twice",
        _MLP,
        "(self.c_plus - self.c_minus) ** 2 / (2.0 * math.pi)",
        "(self.c_plus - self.c_minus) ** 2 / math.pi",
        blind=True,
    ),
    Mutant(
        "mlp-drift-sign-of-angle",
        _MLP,
        "((1.0 - r * r).sqrt() - r * torch.arccos(r))",
        "((1.0 - r * r).sqrt() + r * torch.arccos(r))",
        blind=True,
    ),
    Mutant(
        "mlp-flow-angle",
        _MLP,
        "+ r * (math.pi - torch.arccos(r))",
        "+ r * torch.arccos(r)",
        blind=True,
    ),
    Mutant(
        "mlp-coupling-dof",
        _MLP,
        "semidefinite_cholesky(numbers[0]), width), None",
        "semidefinite_cholesky(numbers[0]), width - 1), None",
        blind=True,
    ),
    Mutant(
        "mlp-kernel-slopes-swapped",
        _MLP_KERNEL,
        "(plus if hidden[i, p] > 0.0 else minus)",
        "(minus if hidden[i, p] > 0.0 else plus)",
        blind=True,
    ),
    Mutant(
        "mlp-kernel-flow-normalisation",
        _MLP_KERNEL,
        "(1.0 - decay) / math.pi * scale",
        "(1.0 - decay) / 3.0 * scale",
        blind=True,
    ),
    # Normalised.
    Mutant(
        "normalised-after-branch-sees-normalised",
        _NORMALISED,
        'seen = self._normalised(tokens) if self.place == "before" else tokens',
        "seen = self._normalised(tokens)",
        blind=True,
    ),
    Mutant(
        "normalised-rms-over-width-less-one",
        _NORMALISED,
        "tokens.shape[-1] ** 0.5",
        "(tokens.shape[-1] - 1) ** 0.5",
        blind=True,
    ),
    Mutant(
        "normalised-root-by-square",
        _NORMALISED,
        "seen = factor / _lengths(factor) if",
        "seen = factor / _lengths(factor) ** 2 if",
        blind=True,
    ),
    Mutant(
        "normalised-groups-by-own-length",
        _NORMALISED,
        "_lengths(total_factor(new))[:, None]",
        "_lengths(new)",
        blind=True,
    ),
    Mutant(
        "normalised-layer-mean-over-tokens",
        _NORMALISED,
        "tokens.mean(-1, keepdim=True)",
        "tokens.mean(-2, keepdim=True)",
        blind=True,
    ),
]
