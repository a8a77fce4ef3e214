"""Errors in lazily revealed weights: spaces, products, rules, transfers, optimisers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FORGETTING = "shaped_attention/lazy/forgetting.py"
_MATRICES = "shaped_attention/lazy/matrices.py"
_ROWS = "shaped_attention/rows/rows.py"
_SPACES = "shaped_attention/rows/spaces.py"
_ALL_GRADIENTS = "test_lazy_rules.py::test_gradients_are_those_of_torch"

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
        "step-zero-targets-in-the-order-of-the-vocabulary",
        _STEP_ZERO,
        "self._order[targets] if self.tied else targets",
        "targets",
        ("test_step_zero.py::test_a_token_predicts_itself_if_the_head_is_a_large_tied_embedding",),
    ),
    Mutant(
        "stored-divisor-forgotten",
        "shaped_attention/lazy/stored.py",
        "divisor, last = stds.values * math.sqrt(model.width), ",
        "divisor, last = 1.0, ",
        (_GPT2,),
    ),
    Mutant(
        "stored-norm-biases-of-the-other-norm",
        "shaped_attention/lazy/stored.py",
        "names_of(model), 0 if isinstance(block, ShapedAttention) else 1",
        "names_of(model), 1 if isinstance(block, ShapedAttention) else 0",
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
        "entries-of-the-first-rows-of-a-tile-alone",
        "shaped_attention/numerics/entrywise_product.py",
        'end = e.least(e.add(start, _TILE), "%rows")',
        'end = e.least(e.add(start, _TILE // 2), "%rows")',
        ("test_training_by_entries.py::test_compiled_products_are_those_of_torch",),
    ),
    Mutant(
        "gains-that-start-at-zero",
        "shaped_attention/lazy/side_by_side.py",
        "start = 1.0",
        "start = 0.0",
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
        "lazy-images-keep-the-known-part",
        _MATRICES,
        "self.std * (whole - (whole @ q.mT) @ q) + inner(",
        "self.std * whole + inner(",
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
        ("test_lazy_corners.py::test_rows_that_nearly_depend_on_others",),
    ),
    Mutant(
        "lazy-plain-numbers-are-constants",
        "shaped_attention/lazy/weights.py",
        "constant = x.shape[-1], not differentiable(x)",
        "constant = x.shape[-1], True",
        ("test_lazy_corners.py::test_gradients_through_a_projection_of_plain_numbers",),
    ),
    Mutant(
        "lazy-drawn-entries-are-no-border",
        "shaped_attention/lazy/forgetting.py",
        "if above.explicit:",
        "if above.explicit and not shared:",
        ("test_lazy_corners.py::test_a_gradient_below_tokens_whose_entries_were_drawn",),
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
        (_ALL_GRADIENTS, "test_lazy_rules.py::test_rules_against_difference_quotients"),
    ),
    Mutant(
        "lazy-rule-of-mixing-not-transposed",
        _ROWS,
        "add_gradient(self, plain.mT @ g)",
        "add_gradient(self, plain @ g)",
        (_ALL_GRADIENTS,),
    ),
    Mutant(
        "lazy-rule-of-broadcast-not-summed",
        "shaped_attention/rows/tape.py",
        "gradient.sum_to_size(plain.shape)",
        "gradient.expand(plain.shape)",
        (_ALL_GRADIENTS, "test_lazy_rules.py::test_rules_against_difference_quotients"),
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
        "side-by-side-gradient-of-the-first-only",
        "shaped_attention/lazy/side_by_side.py",
        "gradient = self._gradients.pop(number, None)",
        "gradient = self._gradients.pop(0, None)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "library-bias-as-the-block-divides",
        "shaped_attention/lazy/weights.py",
        "one = ones(self.source, 1.0 / group.divisor)",
        "one = ones(self.source)",
        ("test_training_of_models.py::test_laws_are_those_of_the_library[gpt2]",),
    ),
    Mutant(
        "weights-deviation-of-no-library",
        "shaped_attention/lazy/weights.py",
        "std = 1.0 if group is None else group.std",
        "std = 1.0 if group is not None else group.std",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "side-by-side-without-first-products",
        "shaped_attention/lazy/side_by_side.py",
        "assert self._split is not None",
        "assert self._split is None",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "lazy-mean-not-transposed",
        _ROWS,
        "return self @ one.mT",
        "return self @ one",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[layer after]",),
    ),
    Mutant(
        "lazy-frame-by-a-quotient",
        _SPACES,
        "return frame - 2.0 * v.mT @ (v @ frame)",
        "return frame - 2.0 / v.mT @ (v @ frame)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[sandwich]",),
    ),
    Mutant(
        "lazy-rule-of-scales-divides",
        _ROWS,
        "add_gradient(self, g * without_graph(other))",
        "add_gradient(self, g / without_graph(other))",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "ones-of-another-vector-after-a-sum",
        "shaped_attention/rows/spaces.py",
        "self._basis_with_ones(other.padded(ones), rows)",
        "directions(torch.cat([rows, other.padded(ones)], dim=1), rows[:, :0]).units",
        ("test_lazy_matrices.py::test_a_projection_whose_mean_is_known_may_be_added",),
    ),
    Mutant(
        "directions-of-the-row-before",
        "shaped_attention/numerics/operations/orthonormal.py",
        "row, done = rows[:, i : i + 1]",
        "row, done = rows[:, [i - 1]]",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "lazy-unit-rows-of-zeros",
        "shaped_attention/rows/entries.py",
        "    some = sign(squares)",
        "    some = 1.0 - sign(squares)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[qk-norm]",),
    ),
    Mutant(
        "quadratic-loss-without-half",
        "shaped_attention/lazy/gradient_norms.py",
        "value = 0.5 * (f * f).sum((1, 2))",
        "value = 1.0 * (f * f).sum((1, 2))",
        ("test_gradient_norms.py::test_a_loss_of_ones_own_and_its_gradient",),
    ),
    Mutant(
        "lazy-inner-product-not-transposed-back",
        _ROWS,
        "add_gradient(y, g.mT @ x)",
        "add_gradient(y, g @ x)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "lazy-constant-subtracted",
        _ROWS,
        "return self + self._constant(other)",
        "return self - self._constant(other)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[layer after]",),
    ),
    Mutant(
        "lazy-squares-by-a-quotient",
        _ROWS,
        "value = total([row_squares(part) for part in self.parts])",
        "value = total([row_sums(part) for part in self.parts])",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
    ),
    Mutant(
        "transfer-divides-by-what-is-missing",
        _FORGETTING,
        "outside = concatenate([inside * (1.0 - there), outside])",
        "outside = concatenate([inside / (1.0 - there), outside])",
        ("test_gradient_norms.py::test_laws_are_those_of_explicit_networks[shaped]",),
    ),
    Mutant(
        "lazy-graph-of-the-loss-freed",
        "shaped_attention/rows/tape.py",
        "loss.sum().backward(retain_graph=True)",
        "loss.sum().backward(retain_graph=keep)",
        ("test_lazy_rules.py::test_a_plain_matrix_may_enter_the_loss_and_multiply_rows",),
    ),
    Mutant(
        "reflection-that-is-a-projection",
        "shaped_attention/rows/spaces.py",
        "return frame - 2.0 * v.mT @ (v @ frame)",
        "return frame - v.mT @ (v @ frame)",
        ("test_lazy_matrices.py::test_a_space_that_becomes_explicit_keeps_all_inner_products",),
    ),
]
