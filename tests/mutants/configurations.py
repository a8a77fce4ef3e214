"""Errors in models that are read from configurations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CONFIGURATIONS = [
    Mutant(
        "windows-one-layer-early",
        "shaped_attention/architectures/layer_types.py",
        "if used and k >= first else FULL",
        "if used and k + 1 >= first else FULL",
        ("test_configurations.py::test_masks_and_rotations_of_the_layers",),
    ),
    Mutant(
        "one-base-for-both-types",
        "shaped_attention/architectures/rotary.py",
        "base=base if kind == FULL else local",
        "base=base",
        ("test_configurations.py::test_the_base_of_each_type_of_layers",),
        blind=True,
    ),
    Mutant(
        "branch-multiplier-left-out",
        "shaped_attention/architectures/decoder.py",
        "self.place, norm, factors.branch)",
        "self.place, norm)",
        ("test_configurations.py::test_the_factors_of_granite",),
    ),
    Mutant(
        "eps-of-a-norm-of-the-weighted-branch",
        "shaped_attention/architectures/parts.py",
        "branch_eps=norm.eps / gamma**2",
        "branch_eps=norm.eps",
        ("test_reality_rms_norm.py::test_the_eps_behind_a_branch",),
        blind=True,
    ),
]
