"""Planted errors in training steps of lazily revealed weights."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOW_RANK = "shaped_attention/lazy/low_rank.py"
_OPTIMIZERS = "shaped_attention/lazy/optimizers.py"

TRAINING = [
    Mutant(
        "update-norm-with-decay",
        _OPTIMIZERS,
        "return rate * state.of_rank(state.pure).norm()",
        "return rate * state.of_rank(state.buffer).norm()",
        ("test_simulate_training.py::test_the_norm_of_an_update_leaves_out_weight_decay",),
    ),
    Mutant(
        "sgd-momentum-without-memory",
        _OPTIMIZERS,
        "self.momentum * a + b for a, b in zip(buffer, direction, strict=True)",
        "b for a, b in zip(buffer, direction, strict=True)",
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
        "muon-takes-all-matrices-as-outputs-by-inputs",
        _OPTIMIZERS,
        "shape[::-1] if parameter.by_inputs else shape",
        "shape",
        ("test_training_of_models.py::test_laws_are_those_of_the_library[gpt2 with Muon]",),
    ),
    # Lines and operators drawn by lot from the sources.
]
