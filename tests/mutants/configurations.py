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
        "longrope-one-token-early",
        "shaped_attention/blocks/rotations.py",
        "tokens <= longest",
        "tokens < longest",
        ("test_rope_scalings.py::test_the_number_of_tokens_decides_on_the_angles",),
    ),
    Mutant(
        "yarn-without-its-factor",
        "shaped_attention/architectures/rope.py",
        "Rope(angles=angles, attention_factor=float(attention))",
        "Rope(angles=angles)",
        ("test_rope_scalings.py::test_angles_and_factors_are_those_of_the_library[yarn]",),
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
        "branch-multiplier-left-out",
        "shaped_attention/architectures/family.py",
        "normed(hidden, place, norm, details.branch)",
        "normed(hidden, place, norm)",
        ("test_configurations.py::test_the_factors_of_granite",),
    ),
    Mutant(
        "eps-of-a-norm-of-the-weighted-branch",
        "shaped_attention/architectures/parts.py",
        "branch_eps=norm.eps / gamma**2",
        "branch_eps=norm.eps",
        ("test_reality_rms_norm.py::test_the_eps_behind_a_branch",),
    ),
    Mutant(
        "changes-under-another-name",
        "shaped_attention/architectures/fields.py",
        "named[known[0] if known and name not in values else name] = value",
        "named[name] = value",
        ("test_configuration_refusals.py::test_a_change_by_another_name_of_the_size_is_a_change",),
    ),
    Mutant(
        "part-of-a-head-rotated-by-any-family",
        "shaped_attention/architectures/rope.py",
        "if part > 1.0 or (part != 1.0 and share is None):",
        "if part > 1.0:",
        (
            "test_configuration_refusals.py::test_what_is_not_covered_is_refused_by_name"
            "[fields20-config.partial_rotary_factor must be 1, so that whole heads are rotated; "
            "got 0.5]",
        ),
    ),
    Mutant(
        "truncation-of-modernbert-at-three",
        "shaped_attention/architectures/families.py",
        '{"initializer_cutoff_factor": 2.0}',
        "{}",
        (
            "test_families.py::test_a_missing_field_has_the_value_of_the_class_of_the_library"
            "[modernbert]",
        ),
    ),
    Mutant(
        "modernbert-window-one-token-short",
        "shaped_attention/architectures/families.py",
        "default=128) // 2 + 1",
        "default=128) // 2",
        ("test_reality_layer_norm.py::test_windows_are_those_of_the_library[modernbert]",),
    ),
    Mutant(
        "periods-that-begin-with-a-full-layer",
        "shaped_attention/architectures/layer_types.py",
        "FULL if (k + 1) % every == 0 else SLIDING",
        "FULL if k % every == 0 else SLIDING",
        ("test_configurations.py::test_masks_and_rotations_of_the_layers",),
    ),
    Mutant(
        "gpt2-inverse-scale-one-layer-late",
        "shaped_attention/architectures/layer_types.py",
        "divisor=k + 1 if",
        "divisor=max(k, 1) if",
        (
            "test_configurations.py::test_logits_by_the_number_of_the_layer_are_those_of_the_library",
        ),
    ),
    Mutant(
        "qk-norm-eps-of-weights-of-variance-one",
        "shaped_attention/architectures/parts.py",
        "qk_norm.eps / inner",
        "qk_norm.eps",
        (
            "test_describe.py::test_positions_padding_and_norms_of_queries_are_described"
            "[qwen3-8b-changes3-QK-norm over a head (eps 6.1e-06 for queries and keys of mean "
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
    Mutant(
        "head-with-the-deviation-of-the-embedding",
        "shaped_attention/lazy/named_model.py",
        "std = model.embedding.std if model.head_std is None else model.head_std",
        "std = model.embedding.std",
        ("test_recipes.py::test_gradients_are_those_of_models_initialised_by_hand",),
    ),
]
