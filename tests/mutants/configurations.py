"""Errors in models that are read from configurations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONFIGURATIONS = [
    Mutant(
        "attention-factor-of-the-whole-head",
        "shaped_attention/blocks/rotations.py",
        "rotate(rows, _turns(tuple(angles), rows.shape[-2], float(factor)))",
        "factor * rotate(rows, _turns(tuple(angles), rows.shape[-2], 1.0))",
        ("test_rope_scalings.py::test_the_factor_multiplies_the_rotated_columns_alone",),
    ),
    Mutant(
        "windows-one-layer-early",
        "shaped_attention/architectures/layer_types.py",
        "if used and k >= first else FULL",
        "if used and k + 1 >= first else FULL",
        ("test_configurations.py::test_masks_and_rotations_of_the_layers",),
    ),
    Mutant(
        "one-base-for-both-types",
        "shaped_attention/architectures/rope.py",
        "return rope_of(fields, size, kind, base=local, by_type=True)",
        "return rope_of(fields, size, kind, base=base, by_type=True)",
        ("test_configurations.py::test_the_base_of_each_type_of_layers[gemma3_text-bases0]",),
    ),
    Mutant(
        "eps-of-a-norm-of-the-weighted-branch",
        "shaped_attention/architectures/parts.py",
        "branch_eps=norm.eps / gamma**2",
        "branch_eps=norm.eps",
        ("test_families.py::test_the_eps_behind_a_branch",),
    ),
    Mutant(
        "qk-norm-eps-of-weights-of-variance-one",
        "shaped_attention/architectures/parts.py",
        "qk_norm.eps / inner",
        "qk_norm.eps",
        (
            "test_describe.py::test_positions_padding_and_norms_of_queries_are_described"
            "[qwen3-8b-changes2-QK-norm over a head (eps 6.1e-06 for queries and keys of mean "
            "square 1)]",
        ),
    ),
    Mutant(
        "yarn-mscale-not-divided-by-that-of-all-dimensions",
        "shaped_attention/architectures/rope.py",
        'attention /= _growth(factor, options["mscale_all_dim"])',
        "attention /= 1.0",
        ("test_rope_scalings.py::test_angles_and_factors_are_those_of_the_library[yarn, mscale]",),
    ),
    Mutant(
        "truncation-leaves-the-deviation",
        "shaped_attention/architectures/recipes.py",
        "return float(truncnorm.std(-self.cut, self.cut))",
        "return 1.0",
        ("test_recipes.py::test_numbers_worked_out_by_hand[olmo-mitchell]",),
    ),
    Mutant(
        "first-layer-s-deviations-in-all",
        "shaped_attention/lazy/named_model.py",
        "stds[layer % len(stds)]",
        "stds[0]",
        ("test_recipes.py::test_gradients_are_those_of_models_initialised_by_hand",),
    ),
]
