"""Errors in attention, activations and norms of the architectures in use."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ALIBI = "shaped_attention/blocks/positions.py"
_EMBEDDED = "shaped_attention/architectures/tokens.py"
_COSINES = "shaped_attention/blocks/limits/prepared_rows.py"


ARCHITECTURES = [
    Mutant(
        "projection-of-networks-over-the-width",
        "shaped_attention/blocks/attention.py",
        "mixed = (self.heads * self.values(n)) ** 0.5",
        "mixed = n**0.5",
        ("test_attention_variants.py::test_the_weights_are_those_of_the_formula[head size]",),
    ),
    Mutant(
        "mean-cosine-with-a-shifted-series",
        _COSINES,
        "((half + 1.0 + j) * (j + 1.0))",
        "((half + j) * (j + 1.0))",
        ("test_attention_variants.py::test_the_mean_cosine_of_gaussian_rows[4]",),
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
        "embedding-padding-has-a-position",
        _EMBEDDED,
        "places[:, ~zero] if embedding.zero_positions else places",
        "places",
        ("test_families.py::test_padding_tokens_keep_what_they_share[roberta-1.0]",),
    ),
]
