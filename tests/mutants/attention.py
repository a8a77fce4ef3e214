"""Errors in shaped attention: every face, masks, biases, heads, output projection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION = "shaped_attention/blocks/attention.py"
_ATTENTION_COUPLING = "shaped_attention/blocks/attention_coupling.py"
_ATTENTION_LIMIT = "shaped_attention/blocks/attention_limit.py"
_ATTENTION_MOMENTS = "shaped_attention/blocks/score_moments.py"
_ATTENTION_SCORES = "shaped_attention/blocks/attention_scores.py"
_BRANCH = "shaped_attention/blocks/branch.py"
_CONVERGENCE = "shaped_attention/statistics/convergence.py"
_COUPLING = "shaped_attention/blocks/coupling.py"
_LIMIT = "shaped_attention/theory/moments.py"
_MASK = "shaped_attention/blocks/mask.py"
_PRIMITIVES = "shaped_attention/numerics/primitives.py"
_ROTATIONS = "shaped_attention/blocks/rotations.py"

_FORMULA = "test_attention_variants.py::test_the_weights_are_those_of_the_formula"
_WIDE_LAYER = "test_attention_variants_limit.py::test_drift_from_one_wide_layer"
_BROWNIAN = ("test_coupling.py::test_what_drives_the_limit_is_a_brownian_motion",)
_CLOSED_FORMS = ("test_limit.py::test_attention_agrees_with_the_closed_forms",)
_DERIVED = "test_symbolic_against_package.py::test_drift_and_diffusion"
_DERIVED_CAUSAL = (f"{_DERIVED}[ours1-derived1-values1-2]",)
_DERIVED_CAUSAL_OF_THREE = (f"{_DERIVED}[ours1-derived1-values1-3]",)
_DERIVED_HEADS = (f"{_DERIVED}[ours2-derived2-values2-2]",)
_DERIVED_BIASES = (f"{_DERIVED}[ours3-derived3-values3-2]",)
_DERIVED_BIASES_OF_THREE = (f"{_DERIVED}[ours3-derived3-values3-3]",)
_LAW = "test_chain_law.py::test_members_and_edges_of_the_family"
_LAW_OF_FEW_KEYS = (f"{_LAW}[few keys]",)
_LAW_OF_TWO_HEADS = (f"{_LAW}[two heads]",)
_LAW_OF_MIXED_HEADS = (f"{_LAW}[heads, projection]",)
_LAW_WITH_BIASES = (f"{_LAW}[biases]",)
_REAL_WEIGHTS = ("test_real_weights.py::test_attention",)

ATTENTION = [
    Mutant(
        "attention-root-one-key-less",
        _ATTENTION_SCORES,
        'numbers.wishart("queries", query_factor.shape[-1], keys, h)',
        'numbers.wishart("queries", query_factor.shape[-1], keys - 1, h)',
        _LAW_OF_FEW_KEYS,
        blind=True,
    ),
    Mutant(
        "attention-root-projection-scaled-by-head",
        _ATTENTION,
        "roots.append(root / math.sqrt(self.heads * size))",
        "roots.append(root / math.sqrt(size))",
        _LAW_OF_MIXED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-temperature-one-key-more",
        _ATTENTION,
        "(width if self.scaled_temperature else 1) * self.keys(width))",
        "(width if self.scaled_temperature else 1) * (self.keys(width) + 1))",
        _REAL_WEIGHTS,
        blind=True,
    ),
    Mutant(
        "attention-branch-projection-scaled-by-head",
        _ATTENTION,
        "mixed = math.sqrt(self.heads * size)",
        "mixed = math.sqrt(size)",
        _LAW_OF_MIXED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-second-order-without-half",
        _ATTENTION_LIMIT,
        "(0.5 / m * rate) * second",
        "(1.0 / m * rate) * second",
        _CLOSED_FORMS,
        blind=True,
    ),
    Mutant(
        "attention-second-order-cross-term",
        _ATTENTION_MOMENTS,
        "diagonal(key).mT + (-2.0) * (w @ self.turned(key))",
        "diagonal(key).mT + (-1.0) * (w @ self.turned(key))",
        _DERIVED_CAUSAL,
        blind=True,
    ),
    Mutant(
        "attention-square-of-means-twice",
        _ATTENTION_MOMENTS,
        "(cross + parity * cross.mT) + both",
        "(cross + parity * cross.mT) + 2.0 * both",
        _DERIVED_CAUSAL,
        blind=True,
    ),
    Mutant(
        "attention-diffusion-without-heads",
        _ATTENTION_LIMIT,
        "return p.gamma**2 / (p.tau0 * math.sqrt(self.heads))",
        "return p.gamma**2 / p.tau0",
        _DERIVED_HEADS,
        blind=True,
    ),
    Mutant(
        "limit-linear-diffusion-rows-swapped",
        _LIMIT,
        '"...ad,...bc->...abcd", v, v)',
        '"...ab,...cd->...abcd", v, v)',
        _CLOSED_FORMS,
        blind=True,
    ),
    Mutant(
        "attention-factor-drift-left-without-heads",
        _ATTENTION_LIMIT,
        "** 2 * (1.0 - p.gamma**2 / self.heads)",
        "** 2 * (1.0 - p.gamma**2)",
        _DERIVED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-factor-drift-square-twice",
        _ATTENTION_LIMIT,
        "(0.5 * self._left(p)) * (square * factor)",
        "self._left(p) * (square * factor)",
        _CLOSED_FORMS,
        blind=True,
    ),
    Mutant(
        "attention-factor-noise-by-heads",
        _ATTENTION_LIMIT,
        "(p.tau0 * math.sqrt(self.heads))",
        "(p.tau0 * self.heads)",
        _DERIVED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-growth-without-bias",
        _ATTENTION_MOMENTS,
        "query = v + self.query_bias if self.query_bias > 0.0 else v",
        "query = v",
        _DERIVED_BIASES,
        blind=True,
    ),
    Mutant(
        "attention-coupling-keys-by-heads",
        _ATTENTION_COUPLING,
        "range(heads)]).sum(0) / math.sqrt(heads)",
        "range(heads)]).sum(0) / heads",
        _BROWNIAN,
        blind=True,
    ),
    Mutant(
        "attention-coupling-projection-gamma",
        _ATTENTION_COUPLING,
        "return p.gamma**2 / math.sqrt(heads) * torch",
        "return p.gamma / math.sqrt(heads) * torch",
        _BROWNIAN,
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
        "return -math.sqrt(2.0) * torch.from_numpy",
        "return -torch.from_numpy",
        ("test_coupling.py::test_quantile_coupling_makes_normals",),
        blind=True,
    ),
    Mutant(
        "attention-root-values-as-wide-as-all",
        _ATTENTION,
        'numbers.wishart("values", factor.shape[-1], size, group)',
        'numbers.wishart("values", factor.shape[-1], width, group)',
        _LAW_OF_MIXED_HEADS,
        blind=True,
    ),
    Mutant(
        "attention-centre-ignores-mask",
        _ATTENTION,
        "return seen - constant(w, like=logits)\n",
        "return seen - 1.0 / logits.shape[-1]\n",
        _REAL_WEIGHTS,
        blind=True,
    ),
    Mutant(
        "attention-second-order-without-bias",
        _ATTENTION_MOMENTS,
        "return diagonal(query), w * (s - row_sums(w * s))",
        "return diagonal(v), w * (s - row_sums(w * s))",
        _DERIVED_BIASES_OF_THREE,
        blind=True,
    ),
    Mutant(
        "attention-masked-second-order-without-half",
        _ATTENTION_LIMIT,
        "return (0.5 * rate) * (q * (centred @ factor))",
        "return rate * (q * (centred @ factor))",
        _DERIVED_CAUSAL_OF_THREE,
        blind=True,
    ),
    Mutant(
        "mask-causal-upper",
        _MASK,
        "return np.tri(tokens)\n",
        "return np.tri(tokens).T\n",
        _DERIVED_CAUSAL,
        blind=True,
    ),
    Mutant(
        "mask-weights-by-column",
        _MASK,
        "seen.sum(-1, keepdims=True)",
        "seen.sum(-2, keepdims=True)",
        _DERIVED_CAUSAL,
        blind=True,
    ),
    Mutant(
        "bias-of-root-is-variance",
        _ATTENTION_SCORES,
        "ones = np.full((factor.shape[-2], 1), math.sqrt(variance))",
        "ones = np.full((factor.shape[-2], 1), variance)",
        _LAW_WITH_BIASES,
        blind=True,
    ),
    Mutant(
        "bias-of-branch-is-variance",
        _ATTENTION_SCORES,
        "torch.full_like(x[..., :1, :1], math.sqrt(variance))",
        "torch.full_like(x[..., :1, :1], variance)",
        _LAW_WITH_BIASES,
        blind=True,
    ),
    Mutant(
        "heads-groups-as-wide-as-all",
        _BRANCH,
        "weight, width // groups, numbers, g)",
        "weight, width, numbers, g)",
        _LAW_OF_TWO_HEADS,
        blind=True,
    ),
    Mutant(
        "heads-total-not-mean",
        "shaped_attention/blocks/state.py",
        "weight = 1.0 / len(factors) ** 0.5",
        "weight = 1.0 / len(factors)",
        _LAW_OF_TWO_HEADS,
        blind=True,
    ),
    Mutant(
        "projection-rate-without",
        _ATTENTION_LIMIT,
        "return 2.0 * square if self.output_projection else square * (2.0 - square)",
        "return square * (2.0 - square)",
        _DERIVED_CAUSAL,
        blind=True,
    ),
    Mutant(
        "attention-factor-noise-mean-over-all",
        _ATTENTION_LIMIT,
        "return scale * ((w * (scores - row_sums(w * scores))) @ factor)",
        "return scale * ((w * (scores - row_sums(scores) / m)) @ factor)",
        _DERIVED_CAUSAL,
    ),
    Mutant(
        "attention-growth-with-the-noise-s-share",
        _ATTENTION_LIMIT,
        "else self._left(p) * self.moments.squares(v)",
        "else (p.gamma / p.tau0) ** 2 * self.moments.squares(v)",
        _DERIVED_CAUSAL,
    ),
    Mutant(
        "attention-noise-bias-is-variance",
        _ATTENTION_MOMENTS,
        "query, key = extended(factor, self.query_bias),",
        "query, key = extended(factor, self.query_bias**2),",
        _DERIVED_BIASES,
    ),
    Mutant(
        "attention-identity-in-the-softmax",
        _ATTENTION,
        "return values + mixed if self.identity else mixed",
        "return 2.0 * values + mixed if self.identity else mixed",
        _REAL_WEIGHTS,
    ),
    Mutant(
        "coupling-cross-term-without-skip",
        _COUPLING,
        "return skip * gamma * (gaussian",
        "return gamma * (gaussian",
        ("test_coupling.py::test_the_sde_of_a_pair_has_the_law_of_the_sde[attention]",),
    ),
    Mutant(
        "coupling-groups-not-by-root",
        _CONVERGENCE,
        "+ noise / math.sqrt(groups)",
        "+ noise / groups",
        ("test_coupling.py::test_the_sde_of_a_pair_has_the_law_of_the_sde[heads]",),
    ),
    Mutant(
        "rope-turned-backwards",
        _PRIMITIVES,
        "y * cos + x * sin",
        "y * cos - x * sin",
        (f"{_FORMULA}[rope]",),
    ),
    Mutant(
        "rope-second-order-without-rotation",
        _ATTENTION_MOMENTS,
        "return key * constant(r, like=key)",
        "return key",
        (f"{_WIDE_LAYER}[rope]",),
    ),
    Mutant(
        "rope-noise-of-the-even-part-alone",
        _ROTATIONS,
        "(-1.0, np.sin, 0.0)",
        "(-1.0, np.cos, 0.0)",
        (f"{_WIDE_LAYER}[rope]",),
    ),
    Mutant(
        "groups-fluctuation-of-gamma-squared",
        _ATTENTION_LIMIT,
        "(self.fluctuation - 1.0) * square**2",
        "(self.fluctuation - 1.0) * square",
        ("test_attention_variants_limit.py::test_linear_rate_of_groups",),
    ),
    Mutant(
        "groups-values-of-their-own",
        _ATTENTION,
        "if h % self.heads_per_key == 0:\n                group = h",
        "if h >= 0:\n                group = h",
        ("test_attention_variants.py::test_the_chain_has_the_law_of_networks[groups-n = 16]",),
    ),
    Mutant(
        "soft-cap-of-one",
        _ATTENTION,
        "logits = self.softcap * tanh(logits / self.softcap)",
        "logits = tanh(logits / self.softcap)",
        (f"{_FORMULA}[soft cap]",),
    ),
    Mutant(
        "position-bias-not-in-the-centre",
        _MASK,
        "weights = softmax(logits, axis=-1)",
        "weights = softmax(0.0 * np.nan_to_num(logits), axis=-1)",
        (f"{_WIDE_LAYER}[bias]",),
    ),
]
