"""Errors in the code that derives chains from branches, drawn by lot from its operators."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FOLDER = "shaped_attention/derived/"

DERIVED = [
    Mutant(
        "eps-of-scaled-rows-as-that-of-tokens",
        _FOLDER + "rows.py",
        "elif rows.power == 1 and rows.value == 1.0:",
        "elif rows.power == 1 or rows.value == 1.0:",
        ("test_derived_roots.py::test_same_paths[sandwich, rms, eps=0.01, attention]",),
    ),
    Mutant(
        "rows-start-with-a-root-of-n",
        _FOLDER + "rows.py",
        "def like(self, parts: Sequence[Part], value: Any = 1.0, power: int = 0) -> Rows:",
        "def like(self, parts: Sequence[Part], value: Any = 1.0, power: int = 1) -> Rows:",
        ("test_derived_roots.py::test_same_paths[attention, rope]",),
    ),
    Mutant(
        "left-factors-of-the-other-matrices",
        _FOLDER + "parts.py",
        "parts = [self.evaluate(lambda x, s=s: s.root if x is s else None) for s in sources]",
        "parts = [self.evaluate(lambda x, s=s: s.root if x is not s else None) for s in sources]",
        ("test_derived_roots.py::test_same_paths[attention, plain]",),
    ),
    Mutant(
        "every-matrix-gone-from-the-start",
        _FOLDER + "spaces.py",
        "self.gone = False",
        "self.gone = True",
        ("test_derived_roots.py::test_same_paths[attention, plain]",),
    ),
    Mutant(
        "only-segments-that-one-side-lacks",
        _FOLDER + "products.py",
        "if k < len(left.blocks) and k < len(right.blocks)",
        "if k >= len(left.blocks) and k < len(right.blocks)",
        ("test_derived_roots.py::test_same_paths[attention, plain]",),
    ),
    Mutant(
        "frame-of-the-tokens-for-other-widths",
        _FOLDER + "reveal.py",
        "if rows.columns == self.width and len(rows.parts) <= self.groups:",
        "if rows.columns != self.width and len(rows.parts) <= self.groups:",
        ("test_derived_roots.py::test_same_paths[sandwich, layer, eps=0.0, attention]",),
    ),
    Mutant(
        "sum-starts-with-the-second-term",
        _FOLDER + "parts.py",
        "return sum(terms[1:], terms[0])",
        "return sum(terms[1:], terms[1])",
        ("test_derived_roots.py::test_same_paths[attention, plain]",),
    ),
    Mutant(
        "rotation-forgets-a-factor-of-two",
        _FOLDER + "reveal.py",
        "return [[applied(product(rows.coefficient, block))]]",
        "return [[applied(product(2.0 * rows.coefficient, block))]]",
        (
            "test_derived_branches.py"
            "::test_the_derived_chain_has_the_law_of_networks[turned_queries]",
        ),
    ),
    Mutant(
        "mean-of-entries-as-of-coordinates",
        _FOLDER + "rows.py",
        "power = self.power - 1 if along_ones else self.power",
        "power = self.power - 1 if along_ones else self.power - 1",
        ("test_derived_branches.py::test_centred_rows_have_no_mean",),
    ),
    Mutant(
        "open-only-if-explicit",
        _FOLDER + "reveal.py",
        "x.space.explicit or (x.space.group is None and not x.space.segments) for x in rows.parts",
        "x.space.explicit and (x.space.group is None and not x.space.segments) for x in rows.parts",
        ("test_derived_roots.py::test_same_paths[mlp, shaped gate]",),
    ),
    Mutant(
        "a-matrix-is-never-complete",
        _FOLDER + "spaces.py",
        "self.complete = True",
        "self.complete = False",
        ("test_derived_roots.py::test_same_paths[attention, grouped keys]",),
    ),
    Mutant(
        "mean-with-n-for-its-root",
        _FOLDER + "rows.py",
        "weight = size**0.5 * self.reveal.root / self.columns",
        "weight = size**1.0 * self.reveal.root / self.columns",
        ("test_derived_branches.py::test_centred_rows_have_no_mean",),
    ),
    Mutant(
        "number-subtracted-from-entries",
        _FOLDER + "rows.py",
        "return entrywise(lambda x: x + other, self)",
        "return entrywise(lambda x: x - other, self)",
        ("test_derived_roots.py::test_same_paths[mlp, shaped gate]",),
    ),
    Mutant(
        "known-side-not-preferred",
        _FOLDER + "products.py",
        "if known[0] != known[1]:",
        "if known[0] == known[1]:",
        ("test_derived_roots.py::test_same_paths[attention, grouped keys]",),
    ),
    Mutant(
        "squares-with-the-root-of-their-power",
        _FOLDER + "rows.py",
        "return product(self.value, self.value) * self.reveal.root ** (2 * self.power) * squares",
        "return product(self.value, self.value) * self.reveal.root ** (2 / self.power) * squares",
        ("test_derived_branches.py::test_the_derived_chain_has_the_law_of_networks[lengths]",),
    ),
    Mutant(
        "splits-that-do-not-match",
        _FOLDER + "rows.py",
        "if share * len(a.parts) != len(b.parts):",
        "if share * len(a.parts) == len(b.parts):",
        ("test_derived_roots.py::test_same_paths[parallel, heads]",),
    ),
    Mutant(
        "second-part-asked-whether-it-waits",
        _FOLDER + "hidden.py",
        "leaf = rows.parts[0].only if len(rows.parts) == 1 else None",
        "leaf = rows.parts[1].only if len(rows.parts) == 1 else None",
        ("test_derived_roots.py::test_same_paths[attention, plain]",),
    ),
    Mutant(
        "eps-of-doubled-tokens-as-of-tokens",
        _FOLDER + "rows.py",
        "elif rows.power == 1 and rows.value == 1.0:",
        "elif rows.power == 1 and rows.value == 2.0:",
        ("test_derived_branches.py::test_a_norm_keeps_the_sign[-1.0]",),
    ),
    Mutant(
        "torch-subtracts-rows-that-it-adds",
        _FOLDER + "dispatch.py",
        '"add": "add"',
        '"add": "sub"',
        ("test_derived_branches.py::test_a_norm_keeps_the_sign[1.0]",),
    ),
    Mutant(
        "coordinates-only-of-what-is-not-drawn",
        _FOLDER + "spaces.py",
        "assert self.drawn is not None",
        "assert self.drawn is None",
        ("test_derived_roots.py::test_same_paths[attention, grouped keys]",),
    ),
    Mutant(
        "factor-with-the-wrong-power",
        _FOLDER + "reveal.py",
        "scale = scale * self.root ** (rows.power - 1)",
        "scale = scale / self.root ** (rows.power - 1)",
        ("test_derived_branches.py::test_tokens_may_be_replaced",),
    ),
    Mutant(
        "core-of-one-side",
        _FOLDER + "products.py",
        "if left is not None and right is not None and not space.explicit:",
        "if left is not None or right is not None and not space.explicit:",
        ("test_derived_branches.py::test_compiled_code_gives_the_paths_of_torch[tokens_as_keys]",),
    ),
    Mutant(
        "powers-of-the-root-subtracted",
        _FOLDER + "rows.py",
        "power = x.power + y.power",
        "power = x.power - y.power",
        ("test_derived_roots.py::test_same_paths[attention, qk norm, one head]",),
    ),
    Mutant(
        "scaled-entries-without-their-scale",
        _FOLDER + "hidden.py",
        "product(c, f(*(known[b] for b in bases)))",
        "f(*(known[b] for b in bases))",
        ("test_derived_roots.py::test_same_paths[mlp, shaped tanh]",),
    ),
]
