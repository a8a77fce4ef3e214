"""Errors in rows of which nothing is drawn, and in the step of the chain that they make."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ROWS = "shaped_attention/rows/"


def _law(name: str) -> tuple[str, ...]:
    return (f"test_chain_branches.py::test_the_derived_chain_has_the_law_of_networks[{name}]",)


ROWS = [
    Mutant(
        "the-rest-of-a-matrix-is-never-drawn", _ROWS + "undrawn.py",
        "rest = frame.n - frame.size if whole else 0", "rest = 0", _law("summed_projections"),
    ),
    Mutant(
        "weights-are-forgotten-in-sums", _ROWS + "undrawn.py",
        "self.each(lambda left: self.weight * left)", "self._each(lambda left: 1.0 * left)",
        _law("tokens_before"),
    ),
    Mutant(
        "known-rows-are-left-out-of-a-sum", _ROWS + "undrawn.py",
        "result = sums[0] if known is None else [known]", "result = sums[0]",
        ("test_chain_law.py::test_members_and_edges_of_the_family[without identity]",),
    ),
    Mutant(
        "both-sides-of-a-product-along-its-frame", _ROWS + "undrawn.py",
        "    others = y.parts\n", "    others = y.linear.coordinates(whole=False)\n",
        _law("latent_mean"),
    ),
    Mutant(
        "one-degree-of-freedom-too-many", _ROWS + "step.py",
        "self._numbers.wishart(name, rows, rest, self._head)",
        "self._numbers.wishart(name, rows, rest + 1, self._head)",
        ("test_normalised.py::test_the_chain_has_the_law_of_networks[sandwich, n = m + 2]",),
    ),
]  # fmt: skip
