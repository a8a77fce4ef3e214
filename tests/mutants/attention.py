"""Errors in shaped attention: every face, masks, biases, heads, output projection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION = "shaped_attention/blocks/attention.py"
_ATTENTION_LIMIT = "shaped_attention/blocks/attention_limit.py"
_ATTENTION_MOMENTS = "shaped_attention/blocks/score_moments.py"
_ATTENTION_SCORES = "shaped_attention/blocks/attention.py"
_LIMIT = "shaped_attention/theory/moments.py"
_MASK = "shaped_attention/blocks/positions.py"
_ROTATIONS = "shaped_attention/blocks/rotations.py"


ATTENTION = [
    Mutant(
        "attention-root-one-key-less",
        "shaped_attention/rows/undrawn.py",
        "rest = frame.n - frame.size if whole else 0",
        "rest = frame.n - frame.size - 1 if whole else 0",
        ("test_chain_law.py::test_members_and_edges_of_the_family[width m + 2]",),
    ),
    Mutant(
        "attention-temperature-one-key-more",
        "shaped_attention/blocks/attention_fields.py",
        "(scaled * self.keys(width)) ** 0.5",
        "(scaled * (self.keys(width) + 1)) ** 0.5",
        ("test_real_weights.py::test_attention[block0-formula0]",),
    ),
    Mutant(
        "attention-branch-projection-scaled-by-head",
        "shaped_attention/blocks/attention.py",
        "mixed = (self.heads * self.values(n)) ** 0.5",
        "mixed = self.values(n) ** 0.5",
        ("test_attention_variants.py::test_the_weights_are_those_of_the_formula[head size]",),
    ),
    Mutant(
        "attention-second-order-without-half",
        _ATTENTION_LIMIT,
        "(0.5 / m * rate) * second",
        "(1.0 / m * rate) * second",
        ("test_limit.py::test_attention_agrees_with_the_closed_forms[3]",),
    ),
    Mutant(
        "attention-second-order-cross-term",
        _ATTENTION_MOMENTS,
        "diagonal(key).mT + (-2.0) * (w @ self.turned(key))",
        "diagonal(key).mT + (-1.0) * (w @ self.turned(key))",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "attention-square-of-means-twice",
        _ATTENTION_MOMENTS,
        "(cross + parity * cross.mT) + both",
        "(cross + parity * cross.mT) + 2.0 * both",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "attention-diffusion-without-heads",
        _ATTENTION_LIMIT,
        "return p.gamma**2 / (p.tau0 * math.sqrt(self.heads))",
        "return p.gamma**2 / p.tau0",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours2-derived2-values2-2]",),
    ),
    Mutant(
        "limit-linear-diffusion-rows-swapped",
        _LIMIT,
        '"...ad,...bc->...abcd", v, v)',
        '"...ab,...cd->...abcd", v, v)',
        ("test_limit.py::test_attention_agrees_with_the_closed_forms[2]",),
    ),
    Mutant(
        "attention-factor-drift-left-without-heads",
        _ATTENTION_LIMIT,
        "** 2 * (1.0 - p.gamma**2 / self.heads)",
        "** 2 * (1.0 - p.gamma**2)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours2-derived2-values2-2]",),
    ),
    Mutant(
        "attention-factor-drift-square-twice",
        _ATTENTION_LIMIT,
        "(0.5 * self._left(p)) * (square * factor)",
        "self._left(p) * (square * factor)",
        ("test_limit.py::test_attention_agrees_with_the_closed_forms[2]",),
    ),
    Mutant(
        "attention-factor-noise-by-heads",
        _ATTENTION_LIMIT,
        "(p.tau0 * math.sqrt(self.heads))",
        "(p.tau0 * self.heads)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours2-derived2-values2-2]",),
    ),
    Mutant(
        "attention-growth-without-bias",
        _ATTENTION_MOMENTS,
        "query = v + self.query_bias if self.query_bias > 0.0 else v",
        "query = v",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours3-derived3-values3-2]",),
    ),
    Mutant(
        "attention-centre-ignores-mask",
        _ATTENTION,
        "return seen - constant(w, like=logits)\n",
        "return seen - 1.0 / logits.shape[-1]\n",
        ("test_real_weights.py::test_attention[block2-formula2]",),
    ),
    Mutant(
        "attention-second-order-without-bias",
        _ATTENTION_MOMENTS,
        "return diagonal(query), w * (s - row_sums(w * s))",
        "return diagonal(v), w * (s - row_sums(w * s))",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours3-derived3-values3-3]",),
    ),
    Mutant(
        "attention-masked-second-order-without-half",
        _ATTENTION_LIMIT,
        "return (0.5 * rate) * (q * (centred @ factor))",
        "return rate * (q * (centred @ factor))",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-3]",),
    ),
    Mutant(
        "mask-causal-upper",
        _MASK,
        "return (apart >= 0) & (apart < window)",
        "return (apart <= 0) & (apart > -window)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "mask-weights-by-column",
        _MASK,
        ", logits, -np.inf), axis=-1)",
        ", logits, -np.inf), axis=-2)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "bias-of-branch-is-variance",
        _ATTENTION_SCORES,
        "(*x.shape[:-2], 1, 1), math.sqrt(variance))",
        "(*x.shape[:-2], 1, 1), variance)",
        ("test_attention_variants.py::test_the_weights_are_those_of_the_formula[rope, biases]",),
    ),
    Mutant(
        "heads-groups-as-wide-as-all",
        "shaped_attention/rows/step.py",
        "self.size = width // len(state.factors)",
        "self.size = width",
        ("test_chain_law.py::test_members_and_edges_of_the_family[two heads]",),
    ),
    Mutant(
        "projection-rate-without",
        _ATTENTION_LIMIT,
        "return 2.0 * square if self.output_projection else square * (2.0 - square)",
        "return square * (2.0 - square)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "attention-factor-noise-mean-over-all",
        _ATTENTION_LIMIT,
        "return scale * ((w * (scores - row_sums(w * scores))) @ factor)",
        "return scale * ((w * (scores - row_sums(scores) / m)) @ factor)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "attention-growth-with-the-noise-s-share",
        _ATTENTION_LIMIT,
        "else self._left(p) * self.moments.squares(v)",
        "else (p.gamma / p.tau0) ** 2 * self.moments.squares(v)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "attention-noise-bias-is-variance",
        _ATTENTION_MOMENTS,
        "query, key = extended(factor, self.query_bias),",
        "query, key = extended(factor, self.query_bias**2),",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours3-derived3-values3-2]",),
    ),
    Mutant(
        "attention-identity-in-the-softmax",
        _ATTENTION,
        "return values + mixed if self.identity else mixed",
        "return 2.0 * values + mixed if self.identity else mixed",
        ("test_real_weights.py::test_attention[block0-formula0]",),
    ),
    Mutant(
        "rope-turned-backwards",
        "shaped_attention/numerics/operations/rotate.py",
        "y * cos + x * sin",
        "y * cos - x * sin",
        ("test_attention_variants.py::test_the_weights_are_those_of_the_formula[rope]",),
    ),
    Mutant(
        "rope-second-order-without-rotation",
        _ATTENTION_MOMENTS,
        "return key * constant(kernel(self.angles, self.share, key.shape[-2]), like=key)",
        "return key",
        ("test_attention_variants_limit.py::test_drift_and_noise_from_one_wide_layer[rope]",),
    ),
    Mutant(
        "rope-noise-of-the-even-part-alone",
        _ROTATIONS,
        "(-1.0, np.sin, 0.0)",
        "(-1.0, np.cos, 0.0)",
        ("test_attention_variants_limit.py::test_drift_and_noise_from_one_wide_layer[rope]",),
    ),
    Mutant(
        "groups-fluctuation-of-gamma-squared",
        _ATTENTION_LIMIT,
        "(self.fluctuation - 1.0) * square**2",
        "(self.fluctuation - 1.0) * square",
        ("test_attention_variants_limit.py::test_linear_rate_of_groups[options0-4.0]",),
    ),
    Mutant(
        "soft-cap-of-one",
        _ATTENTION,
        "logits = self.softcap * tanh(logits / self.softcap)",
        "logits = tanh(logits / self.softcap)",
        ("test_attention_variants.py::test_the_weights_are_those_of_the_formula[soft cap]",),
    ),
    Mutant(
        "position-bias-not-in-the-centre",
        _MASK,
        "softmax(np.where(allowed(mask, tokens), logits, -np.inf), axis=-1)",
        "softmax(np.where(allowed(mask, tokens), 0.0 * logits, -np.inf), axis=-1)",
        ("test_attention_variants_limit.py::test_drift_and_noise_from_one_wide_layer[bias]",),
    ),
]
