"""Errors in shaped attention: every face, masks, biases, heads, output projection."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ATTENTION = "shaped_attention/blocks/attention.py"
_MASK = "shaped_attention/blocks/positions.py"


ATTENTION = [
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
        "mask-causal-upper",
        _MASK,
        "return (apart >= 0) & (apart < window)",
        "return (apart <= 0) & (apart > -window)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours1-derived1-values1-2]",),
    ),
    Mutant(
        "rope-noise-of-the-even-part-alone",
        "shaped_attention/blocks/limits/prepared_rows.py",
        "(np.sin, 0.0)",
        "(np.cos, 0.0)",
        ("test_derived_limits.py::test_drift_and_diffusion_are_the_closed_forms[rope-4]",),
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
        ("test_derived_limits.py::test_drift_and_diffusion_are_the_closed_forms[position bias-2]",),
    ),
]
