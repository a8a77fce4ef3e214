"""Errors in lazily revealed weights: spaces, products, rules, transfers, optimisers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DIRECTIONS = "shaped_attention/lazy/directions.py"
_FORGETTING = "shaped_attention/lazy/forgetting.py"
_LOW_RANK = "shaped_attention/lazy/low_rank.py"
_MATRICES = "shaped_attention/lazy/matrices.py"
_OPTIMIZERS = "shaped_attention/lazy/optimizers.py"
_ROWS = "shaped_attention/lazy/rows.py"
_SPACES = "shaped_attention/lazy/spaces.py"
_TANGENTS = "shaped_attention/blocks/tangents.py"
_ALL_GRADIENTS = "test_lazy_rules.py::test_gradients_are_those_of_torch"

LAZY = [
    Mutant(
        "lazy-degrees-of-freedom-of-the-whole-space",
        _SPACES,
        "left = self.n - self.size",
        "left = self.n",
        ("test_lazy_matrices.py",),
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
        _DIRECTIONS,
        "    _, units = _off(units, known)\n",
        "",
        ("test_lazy_matrices.py::test_projecting_once_is_not_enough",),
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
        "shaped_attention/lazy/tape.py",
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
        "sgd-momentum-without-memory",
        _OPTIMIZERS,
        "self.momentum * a + b for a, b in zip(state.buffer, direction, strict=True)",
        "b for a, b in zip(state.buffer, direction, strict=True)",
        ("test_simulate_training.py::test_laws_are_those_of_explicit_weights[momentum, decay]",),
    ),
    Mutant(
        "sign-keeps-the-singular-values",
        _LOW_RANK,
        "self.left.like(there * (u.mT @ left.units))",
        "self.left.like(values[..., None] * (u.mT @ left.units))",
        ("test_lazy_matrices.py::test_signs_of_matrices_of_low_rank",),
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
        "muon-takes-all-matrices-as-outputs-by-inputs",
        _OPTIMIZERS,
        "shape[::-1] if parameter.by_inputs else shape",
        "shape",
        ("test_training_of_models.py::test_laws_are_those_of_the_library[gpt2 with Muon]",),
    ),
    # Lines and operators drawn by lot from the sources.
    Mutant(
        "lazy-mean-not-transposed",
        _ROWS,
        "return self @ one.mT",
        "return self @ one",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[layer after]",),
        blind=True,
    ),
    Mutant(
        "training-change-is-a-sum",
        "shaped_attention/lazy/training_run.py",
        "((x - y).squares().sum((1, 2)) / (n * m)).sqrt()",
        "((x + y).squares().sum((1, 2)) / (n * m)).sqrt()",
        ("test_simulate_training.py::test_laws_are_those_of_explicit_weights[sgd]",),
        blind=True,
    ),
    Mutant(
        "lazy-frame-by-a-quotient",
        _SPACES,
        "return frame - 2.0 * v.mT @ (v @ frame)",
        "return frame - 2.0 / v.mT @ (v @ frame)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[sandwich]",),
        blind=True,
    ),
    Mutant(
        "lazy-rule-of-scales-divides",
        _ROWS,
        "add_gradient(self, g * without_graph(other))",
        "add_gradient(self, g / without_graph(other))",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
        blind=True,
    ),
    Mutant(
        "directions-of-no-row",
        _DIRECTIONS,
        "row = rows[:, i : i + 1]",
        "row = rows[:, i : i - 1]",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
        blind=True,
    ),
    Mutant(
        "sign-over-zero-singular-values",
        _LOW_RANK,
        "there = (values > level).to(values.dtype)[..., None]",
        "there = (values <= level).to(values.dtype)[..., None]",
        ("test_lazy_matrices.py::test_signs_of_matrices_of_low_rank",),
        blind=True,
    ),
    Mutant(
        "lazy-unit-rows-of-zeros",
        "shaped_attention/lazy/entries.py",
        "zero = squares <= 0.0",
        "zero = squares > 0.0",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[qk-norm]",),
        blind=True,
    ),
    Mutant(
        "quadratic-loss-without-half",
        "shaped_attention/lazy/gradient_norms.py",
        "value = 0.5 * (f * f).sum((1, 2))",
        "value = 1.0 * (f * f).sum((1, 2))",
        ("test_gradient_norms.py::test_a_loss_of_ones_own_and_its_gradient",),
        blind=True,
    ),
    Mutant(
        "lazy-inner-product-not-transposed-back",
        _ROWS,
        "add_gradient(y, g.mT @ x)",
        "add_gradient(y, g @ x)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
        blind=True,
    ),
    Mutant(
        "lazy-constant-subtracted",
        _ROWS,
        "return self + self._constant(other)",
        "return self - self._constant(other)",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[layer after]",),
        blind=True,
    ),
    Mutant(
        "lazy-squares-by-a-quotient",
        _ROWS,
        "value = total([(part * part).sum(-1, keepdim=True) for part in self.parts])",
        "value = total([(part / part).sum(-1, keepdim=True) for part in self.parts])",
        ("test_lazy_rules.py::test_gradients_are_those_of_torch[attention]",),
        blind=True,
    ),
    Mutant(
        "transfer-divides-by-what-is-missing",
        _FORGETTING,
        "outside = torch.cat([inside * (1.0 - part.there), outside], dim=-1)",
        "outside = torch.cat([inside / (1.0 - part.there), outside], dim=-1)",
        ("test_gradient_norms.py::test_laws_are_those_of_explicit_networks[shaped]",),
        blind=True,
    ),
    Mutant(
        "tangents-of-a-copy-once",
        _TANGENTS,
        "return _square(u[0][k] + u[k][0], u[k][0], none)",
        "return _square(u[0][k], u[k][0], none)",
        ("test_with_tangents.py::test_drift_of_relu_is_the_closed_form",),
    ),
    Mutant(
        "copies-see-each-other",
        "shaped_attention/blocks/score_moments.py",
        "self._copied(centre(self.mask, self.bias, m), like, np.eye)",
        "self._copied(centre(self.mask, self.bias, m), like)",
        ("test_with_tangents.py::test_drift_of_attention_is_the_closed_form",),
    ),
    Mutant(
        "tangents-of-other-blocks",
        _TANGENTS,
        "rows: list[list[Any]] = [split(row.mT, size) for row in split(v, size)]",
        "rows: list[list[Any]] = [split(row, size) for row in split(v, size)]",
        ("test_with_tangents.py::test_drift_of_attention_is_the_closed_form",),
        blind=True,
    ),
    Mutant(
        "exponents-start-at-another-length",
        "shaped_attention/lazy/lyapunov.py",
        "- 0.5 * np.log(len(v))",
        "- 1.0 * np.log(len(v))",
        ("test_lyapunov.py::test_limit_is_that_of_wide_networks",),
        blind=True,
    ),
]
