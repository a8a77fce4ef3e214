"""Errors in attention, activations and norms of the architectures in use."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ALIBI = "shaped_attention/blocks/positions.py"
_ATTENTION = "shaped_attention/blocks/attention.py"
_ATTENTION_LIMIT = "shaped_attention/blocks/attention_limit.py"
_EMBEDDED = "shaped_attention/architectures/tokens.py"
_MLP_LIMIT = "shaped_attention/blocks/mlp_limit.py"
_SCORES = "shaped_attention/blocks/score_moments.py"


ARCHITECTURES = [
    Mutant(
        "qk-norm-to-unit-length",
        "shaped_attention/numerics/operations/sums.py",
        "return size**0.5 * unit_rows(rows)",
        "return unit_rows(rows)",
        (
            "test_attention_variants.py"
            "::test_the_weights_are_those_of_the_formula[normalised heads]",
        ),
    ),
    Mutant(
        "projection-of-networks-over-the-width",
        "shaped_attention/blocks/attention.py",
        "mixed = (self.heads * self.values(n)) ** 0.5",
        "mixed = n**0.5",
        ("test_attention_variants.py::test_the_weights_are_those_of_the_formula[head size]",),
    ),
    Mutant(
        "spread-of-antisymmetric-modes",
        _SCORES,
        "- (cross + parity * cross.mT) + both",
        "- (cross + cross.mT) + both",
        ("test_attention_variants_limit.py::test_drift_and_noise_from_one_wide_layer[rope, half]",),
    ),
    Mutant(
        "groups-fluctuate-with-gamma-squared",
        _ATTENTION_LIMIT,
        "(self.fluctuation - 1.0) * square**2",
        "(self.fluctuation - 1.0) * square",
        ("test_attention_variants_limit.py::test_linear_rate_of_groups[options0-4.0]",),
    ),
    Mutant(
        "second-order-of-softmax-without-rotation",
        _SCORES,
        "(-2.0) * (w @ self.turned(key))",
        "(-2.0) * (w @ key)",
        ("test_attention_variants_limit.py::test_drift_and_noise_from_one_wide_layer[rope]",),
    ),
    Mutant(
        "mean-cosine-with-a-shifted-series",
        _SCORES,
        "((half + 1.0 + j) * (j + 1.0))",
        "((half + j) * (j + 1.0))",
        ("test_attention_variants_limit.py::test_the_mean_cosine_of_gaussian_rows[4]",),
    ),
    Mutant(
        "third-derivative-twice",
        _MLP_LIMIT,
        "(self.rows * self._rate(p)) * (",
        "(2.0 * self.rows * self._rate(p)) * (",
        ("test_activations.py::test_the_drift_is_the_limit_of_the_exact_kernel[tanh]",),
    ),
    Mutant(
        "hidden-ratio-with-gamma-squared",
        _MLP_LIMIT,
        "self._excess * p.gamma**4",
        "self._excess * p.gamma**2",
        ("test_activations.py::test_the_linear_rate_of_any_ratio_of_hidden_units[0.25]",),
    ),
    Mutant(
        "eps-of-the-sum-over-groups",
        "shaped_attention/numerics/operations/sums.py",
        "by_length(rows, size * eps)",
        "by_length(rows, eps)",
        ("test_normalised.py::test_eps_is_added_to_the_mean_square[simulate_chain-inner1]",),
    ),
    Mutant(
        "alibi-missing-slopes-in-a-row",
        _ALIBI,
        "range(1, 2 * (heads - power), 2)",
        "range(1, heads - power + 1)",
        ("test_alibi.py::test_slopes_are_those_of_bloom[6]",),
    ),
    Mutant(
        "alibi-scale-of-rounded-slopes-alone",
        _ALIBI,
        "return self.scale * alibi(tokens, self.slope)",
        "return alibi(tokens, self.slope)",
        ("test_alibi.py::test_a_named_bias_gives_the_paths_of_the_array[alibi:0.25-0.25]",),
    ),
    Mutant(
        "embedding-padding-has-a-position",
        _EMBEDDED,
        "places[:, ~zero] if embedding.zero_positions else places",
        "places",
        ("test_families.py::test_padding_tokens_keep_what_they_share[roberta-1.0]",),
    ),
]
