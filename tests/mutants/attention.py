"""Errors in shaped attention: every face, masks, biases, heads, output projection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION = "shaped_attention/blocks/attention.py"
_ATTENTION_SCORES = "shaped_attention/blocks/attention.py"
_LIMIT = "shaped_attention/theory/moments.py"
_MASK = "shaped_attention/blocks/positions.py"


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
        "limit-linear-diffusion-rows-swapped",
        _LIMIT,
        '"...ad,...bc->...abcd", v, v)',
        '"...ab,...cd->...abcd", v, v)',
        ("test_limit.py::test_attention_agrees_with_the_closed_forms[2]",),
    ),
    Mutant(
        "attention-centre-ignores-mask",
        _ATTENTION,
        "return seen - constant(w, like=logits)\n",
        "return seen - 1.0 / logits.shape[-1]\n",
        ("test_real_weights.py::test_attention[block2-formula2]",),
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
        "rope-noise-of-the-even-part-alone",
        "shaped_attention/blocks/limits/rotation_modes.py",
        "(np.sin, 0.0)",
        "(np.cos, 0.0)",
        ("test_attention_variants_limit.py::test_drift_and_noise_from_one_wide_layer[rope]",),
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
