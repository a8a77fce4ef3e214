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
        "frames-do-not-grow-with-what-is-drawn", _ROWS + "undrawn.py",
        "frame.size += self.blocks[-1].shape[-1]", "pass", _law("mixed_units"),
    ),
    Mutant(
        "joined-matrices-may-be-used-again", _ROWS + "undrawn.py",
        "            for u in new:\n                u.gone = True",
        "            for u in new:\n                u.gone = False", _law("sum_before_its_terms"),
    ),
    Mutant(
        "weights-are-forgotten-in-sums", _ROWS + "undrawn.py",
        "self.each(lambda left: self.weight * left)", "self._each(lambda left: 1.0 * left)",
        _law("tokens_before"),
    ),
    Mutant(
        "left-factors-of-a-matrix-are-not-added", _ROWS + "undrawn.py",
        "lefts[u] = lefts[u] + left if u in lefts else left", "lefts[u] = left",
        _law("tokens_before"),
    ),
    Mutant(
        "known-rows-are-left-out-of-a-sum", _ROWS + "undrawn.py",
        "result = sums[0] if known is None else [known]", "result = sums[0]",
        ("test_chain_law.py::test_members_and_edges_of_the_family[without identity]",),
    ),
    Mutant(
        "hidden-units-without-their-weight", _ROWS + "hidden.py",
        "return function(*(product(w, v) for w, v in zip(weights, of_each, strict=True)))",
        "return function(*(product(1.0, v) for w, v in zip(weights, of_each, strict=True)))",
        _law("logistic_units"),
    ),
    Mutant(
        "hidden-units-of-other-rows-count-as-alike", _ROWS + "hidden.py",
        "if not alike or len", "if len", _law("different_gates"),
    ),
    Mutant(
        "both-sides-of-a-product-along-its-frame", _ROWS + "undrawn.py",
        "    others = y.parts\n", "    others = y.linear.coordinates(whole=False)\n",
        _law("latent_mean"),
    ),
    Mutant(
        "projections-as-wide-as-the-tokens-stay-apart", _ROWS + "rows.py",
        "if self.space.n == tokens.n and len", "if self.space.n != tokens.n and len",
        ("test_chain_branches.py::test_centred_rows_have_no_mean",),
    ),
    Mutant(
        "states-without-their-root-of-n", _ROWS + "step.py",
        "turned(self.size**-0.5 * part", "turned(self.size**-0.4 * part",
        ("test_chain_branches.py::test_tokens_may_be_replaced",),
    ),
    Mutant(
        "one-degree-of-freedom-too-many", _ROWS + "step.py",
        "self._numbers.wishart(name, rows, rest, self._head)",
        "self._numbers.wishart(name, rows, rest + 1, self._head)",
        ("test_normalised.py::test_the_chain_has_the_law_of_networks[sandwich, n = m + 2]",),
    ),
]  # fmt: skip
