"""Errors in lazily revealed weights: spaces, products, rules, transfers, optimisers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FORGETTING = "shaped_attention/lazy/forgetting.py"
_MATRICES = "shaped_attention/lazy/matrices.py"
_ROWS = "shaped_attention/rows/rows.py"
_SPACES = "shaped_attention/rows/spaces.py"
_ALL_GRADIENTS = "test_gradients_of_rows.py::test_gradients_are_those_of_torch"

_ADAMW = (
    "test_training_by_entries.py::"
    "test_explicit_weights_that_answer_give_the_training_of_torch[adamw-gpt2]"
)
_GPT2 = "test_step_zero.py::test_three_families_have_the_law_of_models_of_the_library[gpt2]"
_STEP_ZERO = "shaped_attention/lazy/step_zero.py"

LAZY = [
    Mutant(
        "step-zero-rows-of-other-tokens-left-out",
        _STEP_ZERO,
        "torch.hypot(norms[embedding], norm)",
        "norms[embedding]",
        (_GPT2,),
    ),
    Mutant(
        "stored-divisor-forgotten",
        "shaped_attention/lazy/stored.py",
        "divisor, last = stds.values * math.sqrt(model.width), ",
        "divisor, last = 1.0, ",
        (_GPT2,),
    ),
    Mutant(
        "adamw-updates-that-do-not-decay",
        "shaped_attention/lazy/entrywise.py",
        "self.decay ** (steps - t)",
        "1.0 ** (steps - t)",
        (_ADAMW,),
    ),
    Mutant(
        "adamw-second-moment-of-the-last-gradient-alone",
        "shaped_attention/lazy/entrywise.py",
        "e.fma(b, v, e.fmul(g, g))",
        "e.fma(0.0, v, e.fmul(g, g))",
        (_ADAMW,),
    ),
    Mutant(
        "lazy-degrees-of-freedom-of-the-whole-space",
        _SPACES,
        "left = self.n - self.size",
        "left = self.n",
        ("test_lazy_matrices.py::test_a_matrix_that_is_revealed_whole_is_gaussian",),
    ),
    Mutant(
        "lazy-images-ignore-the-other-side",
        _MATRICES,
        "value = self.std * (whole - (whole @ q.mT) @ q) + inner(units, there.images) @ q",
        "value = self.std * whole",
        ("test_lazy_matrices.py::test_a_product_and_its_transpose_are_of_one_matrix",),
    ),
    Mutant(
        "lazy-images-without-deviation",
        _MATRICES,
        "Rows(target, cut(self.std * whole, target))",
        "Rows(target, cut(whole, target))",
        ("test_lazy_matrices.py::test_a_matrix_that_is_revealed_whole_is_gaussian",),
    ),
    Mutant(
        "lazy-directions-projected-once",
        "shaped_attention/numerics/operations/orthonormal.py",
        "if known.shape[1]:",
        "if known.shape[1] < 0:",
        ("test_lazy_matrices.py::test_rows_that_nearly_depend_on_others",),
    ),
    Mutant(
        "lazy-drawn-entries-are-no-border",
        "shaped_attention/lazy/forgetting.py",
        "if above.explicit:",
        "if above.explicit and not shared:",
        ("test_gradient_norms.py::test_a_gradient_below_tokens_whose_entries_were_drawn",),
    ),
    Mutant(
        "lazy-ones-not-uniform",
        _SPACES,
        "return frame - 2.0 * v.mT @ (v @ frame)",
        "return frame",
        ("test_lazy_matrices.py::test_a_space_that_becomes_explicit_keeps_all_inner_products",),
    ),
    Mutant(
        "lazy-rule-of-squares-without-two",
        _ROWS,
        "(2.0 * g) * self",
        "g * self",
        (_ALL_GRADIENTS, "test_gradients_of_rows.py::test_rules_against_difference_quotients"),
    ),
    Mutant(
        "lazy-transfer-forgets-the-perpendicular-part",
        _FORGETTING,
        "below.padded(inside @ units) + lower @ directions(fresh, units).units",
        "below.padded(inside @ units)",
        ("test_gradient_norms.py::test_laws_are_those_of_explicit_networks[gpt]",),
    ),
    Mutant(
        "lazy-update-on-one-side-only",
        "shaped_attention/lazy/parameters.py",
        "        if self.update is None:",
        "        if self.update is None or side == 1:",
        ("test_lazy_matrices.py::test_updates_are_added_to_products_from_both_sides",),
    ),
    Mutant(
        "library-bias-as-the-block-divides",
        "shaped_attention/lazy/weights.py",
        "one = ones(self.source, 1.0 / group.divisor)",
        "one = ones(self.source)",
        ("test_training_of_models.py::test_laws_are_those_of_the_library[gpt2]",),
    ),
    Mutant(
        "ones-of-another-vector-after-a-sum",
        "shaped_attention/rows/spaces.py",
        "self._basis_with_ones(other.padded(ones), rows)",
        "directions(torch.cat([rows, other.padded(ones)], dim=1), rows[:, :0]).units",
        ("test_lazy_matrices.py::test_a_projection_whose_mean_is_known_may_be_added",),
    ),
]
