"""The ledger: verdicts as recorded, and checks that can turn against a claim."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sympy import symbols

from symbolic.blocks import ShapedAttention
from symbolic.claims import bilinear_forms, ledger, particles, proportional_limit, random_layers
from symbolic.claims.ledger import Entry, Verdict, claims, judge
from symbolic.claims.text import as_latex, as_text, summary
from tests.ledger import named, turned


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.key)
def test_the_verdict_is_the_one_on_record(claim: Any) -> None:
    entry = judge(claim)
    assert not entry.changed, entry.finding
    assert entry.finding.witness


def test_the_ledger_is_well_formed() -> None:
    mended = (Verdict.IMPRECISE, Verdict.FALSE)
    for claim in claims():
        assert bool(claim.corrected) == (claim.expected in mended), claim.key
        assert bool(claim.latex) != bool(claim.passages), claim.key
        if claim.latex:
            assert bool(claim.corrected_latex) == bool(claim.corrected), claim.key
        if claim.passages:
            assert bool(claim.why) == bool(claim.corrected), claim.key
            assert len(claim.why) <= 160, claim.key
        if claim.test:
            file, _, name = claim.test.partition("::")
            source = (Path(__file__).parent / file).read_text(encoding="utf-8")
            assert f"def {name}(" in source, claim.key


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("003", {"svd-terms-orthogonal": {}}, "svd_terms_orthogonal is the key of 2 claims"),
        ("001", {"new": {}}, "new has no check"),
        ("004", {}, "no claim has the check "),
    ],
)
def test_a_table_without_its_checks_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, table: dict[str, Any], message: str
) -> None:
    right, row = ledger._table, {"claim": "", "verdict": "proven"}
    more = {key: row for key in table}
    monkeypatch.setattr(
        ledger, "_table",
        lambda file: ((right(file) if table else {}) | more) if file == name else right(file),
    )  # fmt: skip
    if name == "003":
        tables = {"002": more}
        monkeypatch.setattr(ledger, "_table", lambda file: right(file) | tables.get(file, {}))
    with pytest.raises(ValueError, match=message):
        ledger.claims.__wrapped__()


def test_verdicts_follow_from_facts() -> None:
    assert ledger.proven(True, True).verdict is Verdict.PROVEN
    assert ledger.proven(True, False).verdict is Verdict.FALSE
    assert ledger.tested(True).verdict is Verdict.TESTED
    assert ledger.tested(False).verdict is Verdict.FALSE
    assert ledger.refuted(claim_fails=True, correction_holds=True).verdict is Verdict.FALSE
    assert ledger.refuted(claim_fails=False, correction_holds=True).verdict is Verdict.TESTED
    assert ledger.imprecise(True, True).verdict is Verdict.IMPRECISE
    assert ledger.imprecise(True, False).verdict is Verdict.TESTED
    assert ledger.imprecise(False, True).verdict is Verdict.FALSE
    with pytest.raises(ArithmeticError, match="the corrected statement does not hold"):
        ledger.refuted(claim_fails=True, correction_holds=False)
    with pytest.raises(ValueError, match="at least one computed fact is needed"):
        ledger.proven()


def test_a_wrong_nu_is_not_accepted_as_the_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with the printed function as the derived one, the correction fails."""
    monkeypatch.setattr(
        proportional_limit, "nu", lambda rho, p, q: (p + q) ** 2 * proportional_limit.ARC
    )
    assert turned("relu-nu-printed")


def test_a_wrong_tensor_changes_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the tensor at 0 with one entry doubled."""
    right = proportional_limit.differentiated_tensor

    def wrong(order: int, tokens: int) -> Any:
        tensor = right(order, tokens).as_mutable()
        tensor[(0,) * (order + 1)] *= 2
        return tensor

    monkeypatch.setattr(proportional_limit, "differentiated_tensor", wrong)
    assert turned("softmax-first-derivatives")


def test_a_wrong_energy_changes_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the sum of squares with a wrong factor."""
    right = particles.energy_rate

    def wrong(count: int, unnormalised: bool) -> Any:
        rate, squares = right(count, unnormalised)
        return rate, 2 * squares

    monkeypatch.setattr(particles, "energy_rate", wrong)
    for key in ("energy-derivative-usa", "energy-derivative-sa"):
        assert turned(key), key


@pytest.mark.parametrize("name", ["drift", "bracket"])
def test_a_wrong_law_of_random_values_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: d + 1 in place of d, in the drift or in the bracket alone."""
    right = getattr(random_layers, name)

    def wrong(*arguments: Any) -> Any:
        return right(*arguments).subs(random_layers.D, random_layers.D + 1)

    monkeypatch.setattr(random_layers, name, wrong)
    assert turned("random-values-limit")
    assert turned("random-values-two-tokens")


def test_another_threshold_of_the_antipode_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: d - 1 in place of d - 2 in the slope of the scale density."""
    slope = random_layers.SLOPE + random_layers.APART
    monkeypatch.setattr(random_layers, "SLOPE", slope)
    assert turned("random-values-antipode")


def test_the_factor_equation_is_sharp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the limit with two heads has another law than the equation for F."""
    right = proportional_limit.derive
    monkeypatch.setattr(
        proportional_limit, "derive", lambda _block, m: right(ShapedAttention(heads=2), m)
    )
    assert not proportional_limit.factor_equation_holds(2)


def test_wrong_heads_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the closed form of one head more than the block has."""
    right = proportional_limit.expected

    def wrong(layer: Any, algebra: Any) -> Any:
        return right(ShapedAttention(heads=layer.heads + 1), algebra)

    monkeypatch.setattr(proportional_limit, "expected", wrong)
    assert turned("attention-limit-heads")


def test_a_wrong_order_of_eigenvalues_is_seen() -> None:
    """Negative control: with a negative difference the gap is no sum of squares."""
    h, x = symbols("h x")
    assert bilinear_forms._has_nonnegative_coefficients(h * x**2)
    assert not bilinear_forms._has_nonnegative_coefficients(-h * x**2)


def test_ablations_that_have_a_limit_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: were there a limit without centring, the verdict would turn."""
    monkeypatch.setattr(proportional_limit, "_has_limit", lambda _block: True)
    assert turned("three-modifications-needed")


def test_tables() -> None:
    entry = judge(named("relu-nu-printed"))
    text = as_text(entry)
    assert text.startswith("FALSE  relu-nu-printed\n")
    assert "instead Both signs are wrong" in text
    changed = Entry(replace(entry.claim, expected=Verdict.PROVEN), entry.finding)
    assert "VERDICT CHANGED: proven is on record" in as_text(changed)
    assert "VERDICTS CHANGED: relu-nu-printed" in summary([changed])
    assert summary([entry]) == "1 claim: 1 false; no verdict has changed"
    printed = judge(named("courant-fischer-svd"))
    text = summary([entry, printed])
    assert text.startswith("2 claims: 1 imprecise, 1 false; ")
    assert text.endswith("\n1 of these are statements of the notes: 1 imprecise")
    table = as_latex([entry, changed])
    assert table.startswith(r"\begin{longtable}")
    assert r"\textbf{changed}" in table
