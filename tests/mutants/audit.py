"""Errors in the check of one module."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LAWS = "shaped_attention/audit/entry_laws.py"
_RULE = "shaped_attention/audit/rule.py"
_EFFECTS = "shaped_attention/audit/effects.py"
_PLANTED = "test_check_model.py::test_a_planted_error_is_named_and_nothing_else"

AUDIT = [
    Mutant(
        "audit-cut-without-its-variance",
        _LAWS,
        "return 1.0 - edge, 3.0",
        "return 1.0, 3.0",
        ("test_check_model.py::test_the_level_of_the_rule_for_parameters[2.0]",),
    ),
    Mutant(
        "audit-pooled-scale-over-the-number-of-layers",
        _RULE,
        "z.sum() / math.sqrt(many)",
        "z.sum() / many",
        ("test_check_model.py::test_the_level_of_the_rule_for_parameters[inf]",),
    ),
    Mutant(
        "audit-tail-of-the-mean-effect",
        _EFFECTS,
        "(count - 1.0 - own**2))).max(1)",
        "(count - 1.0 - own**2))).mean(1)",
        ("test_check_model.py::test_the_level_for_effects",),
    ),
    Mutant(
        "ranks-without-the-draw-itself",
        "shaped_attention/statistics/ranks.py",
        "equal + 1\n",
        "equal\n",
        ("test_check_model.py::test_ranks_are_uniform_and_their_p_values_exact",),
    ),
]
