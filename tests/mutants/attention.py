"""Errors in shaped attention: every face, masks, biases, heads, output projection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION = "shaped_attention/blocks/attention.py"
_ATTENTION_LIMIT = "shaped_attention/blocks/attention_limit.py"
_BASE = "shaped_attention/blocks/base.py"
_BRANCH = "shaped_attention/blocks/branch.py"
_COUPLING = "shaped_attention/blocks/coupling.py"
_MASK = "shaped_attention/blocks/mask.py"
_KERNELS_ATTENTION = "shaped_attention/kernels/attention.py"

_CHAIN_PATHS = ("test_compiled.py::test_chain",)
_CLOSED_FORMS = ("test_limit.py::test_attention_agrees_with_the_closed_forms",)
_DERIVED = ("test_symbolic_against_package.py::test_drift_and_diffusion",)
_FACTOR_FACES = ("test_limit.py::test_factor_faces_make_the_drift_and_diffusion",)
_LAW_WITH_BIASES = ("test_chain_law.py::test_members_and_edges_of_the_family[biases]",)
_LAW_OF_MIXED_HEADS = (
    "test_chain_law.py::test_members_and_edges_of_the_family[heads, projection]",
)
_LAW_OF_TWO_HEADS = ("test_chain_law.py::test_members_and_edges_of_the_family[two heads]",)

ATTENTION = [
    Mutant(
        "attention-root-one-key-less",
        _ATTENTION,
        "draws.wishart_factor(query_factor.shape[-1], keys)",
        "draws.wishart_factor(query_factor.shape[-1], keys - 1)",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "attention-root-projection-scaled-by-head",
        _ATTENTION,
        "root = root @ values / math.sqrt(width)",
        "root = root @ values / math.sqrt(width // self.heads)",
        _LAW_OF_MIXED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-temperature-one-key-more",
        _ATTENTION,
        "return self.tau0 * math.sqrt(self._keys(width) * (width",
        "return self.tau0 * math.sqrt((self._keys(width) + 1) * (width",
        ("test_real_weights.py::test_attention",),
        blind=True,
    ),
    Mutant(
        "attention-branch-projection-scaled-by-head",
        _ATTENTION,
        "return project(branch, n) / root if",
        "return project(branch, n) / math.sqrt(n // self.heads) if",
        _LAW_OF_MIXED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-second-order-without-half",
        _ATTENTION_LIMIT,
        "return 0.5 * (q + bias)",
        "return 1.0 * (q + bias)",
        _CLOSED_FORMS,
        blind=True,
    ),
    Mutant(
        "attention-second-order-cross-term",
        _ATTENTION_LIMIT,
        "q[..., None, :] - 2.0 * w @ v",
        "q[..., None, :] - w @ v",
        _CLOSED_FORMS,
        blind=True,
    ),
    Mutant(
        "attention-square-of-means-twice",
        _ATTENTION_LIMIT,
        "+ (mean @ w.mT) ** 2",
        "+ 2.0 * (mean @ w.mT) ** 2",
        _CLOSED_FORMS,
        blind=True,
    ),
    Mutant(
        "attention-diffusion-without-heads",
        _ATTENTION,
        "return self.gamma**4 / (self.heads * self.tau0**2) * total",
        "return self.gamma**4 / self.tau0**2 * total",
        _FACTOR_FACES,
        blind=True,
    ),
    Mutant(
        "attention-diffusion-rows-swapped",
        _ATTENTION_LIMIT,
        '"...ad,...adbc->...abcd"',
        '"...ad,...dabc->...abcd"',
        _FACTOR_FACES,
        blind=True,
    ),
    Mutant(
        "attention-factor-drift-left-without-heads",
        _ATTENTION,
        "return 1.0 - self.gamma**2 / self.heads",
        "return 1.0 - self.gamma**2",
        _FACTOR_FACES,
        blind=True,
    ),
    Mutant(
        "attention-factor-drift-square-twice",
        _ATTENTION,
        "drift + 0.5 * self._drift_left",
        "drift + self._drift_left",
        _FACTOR_FACES,
        blind=True,
    ),
    Mutant(
        "attention-factor-noise-by-heads",
        _ATTENTION,
        "return self.gamma**2 / (self.tau0 * math.sqrt(self.heads)) * first",
        "return self.gamma**2 / (self.tau0 * self.heads) * first",
        _FACTOR_FACES,
        blind=True,
    ),
    Mutant(
        "attention-flow-without-bias",
        _ATTENTION,
        "(v + self.query_bias)",
        "v",
        _FACTOR_FACES,
        blind=True,
    ),
    Mutant(
        "attention-coupling-keys-by-heads",
        _ATTENTION,
        "torch.stack(numbers[1::each]).sum(0) / root",
        "torch.stack(numbers[1::each]).sum(0) / self.heads",
        ("test_coupling.py::test_what_drives_the_limit_is_a_brownian_motion",),
        blind=True,
    ),
    Mutant(
        "attention-coupling-projection-gamma",
        _ATTENTION,
        "return self.gamma**2 / root * torch.stack(mixed)",
        "return self.gamma / root * torch.stack(mixed)",
        ("test_coupling.py::test_what_drives_the_limit_is_a_brownian_motion",),
        blind=True,
    ),
    Mutant(
        "coupling-branch-wishart-gamma",
        _COUPLING,
        "gamma**2 * wishart_noise(rest, dof)",
        "gamma * wishart_noise(rest, dof)",
        ("test_coupling.py::test_the_sde_of_a_pair_has_the_law_of_the_sde[attention]",),
        blind=True,
    ),
    Mutant(
        "coupling-diagonal-variance-one",
        _COUPLING,
        "return math.sqrt(2.0) * torch.from_numpy",
        "return torch.from_numpy",
        ("test_coupling.py::test_quantile_coupling_makes_normals",),
        blind=True,
    ),
    Mutant(
        "attention-kernel-one-key-less",
        _KERNELS_ATTENTION,
        "fill_wishart(B, buffer, keys, key, sample, step, slot)",
        "fill_wishart(B, buffer, keys - 1, key, sample, step, slot)",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "attention-kernel-centre-ignores-mask",
        _KERNELS_ATTENTION,
        "T[a, b, p] * row_sum[p] - w[a, b]",
        "T[a, b, p] * row_sum[p] - 1.0 / m",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "attention-kernel-sde-drift-without-heads",
        _KERNELS_ATTENTION,
        "0.5 * (1.0 - gamma * gamma / heads)",
        "0.5 * (1.0 - gamma * gamma)",
        ("test_compiled.py::test_sde_of_several_heads",),
        blind=True,
    ),
    Mutant(
        "attention-kernel-sde-second-order-without-half",
        _KERNELS_ATTENTION,
        "+ 0.5 / m * mean[p] * shift[j, p]",
        "+ 1.0 / m * mean[p] * shift[j, p]",
        ("test_compiled.py::test_sde",),
        blind=True,
    ),
    Mutant(
        "mask-causal-upper",
        _MASK,
        "dtype=torch.float64).tril()",
        "dtype=torch.float64).triu()",
        _DERIVED,
        blind=True,
    ),
    Mutant(
        "mask-weights-by-column",
        _MASK,
        "seen.sum(-1, keepdim=True)",
        "seen.sum(-2, keepdim=True)",
        _DERIVED,
        blind=True,
    ),
    Mutant(
        "bias-of-root-is-variance",
        _ATTENTION,
        "torch.full_like(factor[..., :1], math.sqrt(variance))",
        "torch.full_like(factor[..., :1], variance)",
        _LAW_WITH_BIASES,
        blind=True,
    ),
    Mutant(
        "bias-of-branch-is-variance",
        _ATTENTION,
        "torch.full_like(x[..., :1, :1], math.sqrt(variance))",
        "torch.full_like(x[..., :1, :1], variance)",
        _LAW_WITH_BIASES,
        blind=True,
    ),
    Mutant(
        "heads-groups-as-wide-as-all",
        _BASE,
        "self.gamma, width // groups, draws)",
        "self.gamma, width, draws)",
        _LAW_OF_TWO_HEADS,
        blind=True,
    ),
    Mutant(
        "heads-total-not-mean",
        _BRANCH,
        "/ math.sqrt(groups)",
        "/ groups",
        _LAW_OF_TWO_HEADS,
        blind=True,
    ),
    Mutant(
        "projection-rate-without",
        _ATTENTION,
        "return 2.0 * g2 if self.output_projection else g2 * (2.0 - g2)",
        "return g2 * (2.0 - g2)",
        _DERIVED,
        blind=True,
    ),
    Mutant(
        "attention-factor-noise-mean-over-all",
        _ATTENTION,
        "first = w * (scores - (w * scores).sum(-1, keepdim=True))",
        "first = w * (scores - scores.mean(-1, keepdim=True))",
        _FACTOR_FACES,
    ),
    Mutant(
        "attention-flow-with-the-noise-s-share",
        _ATTENTION,
        "rate = step * (self.gamma / self.tau0) ** 2 * self._drift_left",
        "rate = step * (self.gamma / self.tau0) ** 2",
        _FACTOR_FACES,
    ),
    Mutant(
        "attention-kernel-projection-without-root",
        _KERNELS_ATTENTION,
        "Y[i, j, p] / math.sqrt(width)",
        "Y[i, j, p] / math.sqrt(width - m)",
        _CHAIN_PATHS,
    ),
]
