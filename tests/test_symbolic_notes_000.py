"""Claims of documents 000 and 001, softmax and the proportional limit: each check can turn."""

from __future__ import annotations

from typing import Any

import pytest
from sympy import Matrix, cancel, exp, floor, ones

from symbolic.claims import CLAIMS, Verdict, judge, proportional_limit, softmax, softmax_at_zero
from symbolic.claims.book import select
from symbolic.claims.softmax import Z


def verdict(key: str) -> Verdict:
    return judge(next(claim for claim in CLAIMS if claim.key == key)).finding.verdict


def turns(key: str) -> bool:
    """Whether the verdict is another one, or the correction no longer holds."""
    entry = next(claim for claim in CLAIMS if claim.key == key)
    try:
        return verdict(key) is not entry.expected
    except ArithmeticError:
        return True


def test_softmax_at_zero_is_judged_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """11^T/m for a vector is false; the vector 1/m would be true."""
    assert verdict("softmax-at-zero") is Verdict.FALSE
    monkeypatch.setattr(softmax_at_zero, "printed_value", lambda m: ones(m, 1) / m)
    assert verdict("softmax-at-zero") is Verdict.TESTED


def test_the_limit_is_judged_without_gaussian_increments() -> None:
    """The notes do not say that increments are Gaussian; "in law" and the exit are missing."""
    claim = next(claim for claim in CLAIMS if claim.key == "euler-step-1/n")
    assert "Gaussian" not in claim.statement + claim.corrected + claim.why
    assert "in law, and up to the exit" in claim.corrected
    assert "explodes" in claim.check().witness


def test_an_update_is_larger_than_its_mean() -> None:
    """Both lines had one verdict, imprecise: line 9 is about the update itself."""
    assert verdict("moments-of-order-1/n") is Verdict.IMPRECISE
    assert verdict("updates-of-order-1/n") is Verdict.FALSE
    assert [c.key for c in select("000:9")] == [c.key for c in select("001:7")]
    assert [c.key for c in select("000:9")] == ["updates-of-order-1/n"]


def wrong_jacobian(tokens: int) -> Matrix:
    return ones(tokens, tokens) / tokens


def without_normalisation() -> list[Any]:
    return [exp(z) / (1 + exp(z)) for z in Z[:3]]


def doubled(function: Any) -> Any:
    return lambda *arguments: 2 * function(*arguments)


@pytest.mark.parametrize(
    ("key", "name", "wrong"),
    [
        ("softmax-at-zero-diagonal", "at_zero", lambda m: ones(m, 1)),
        ("softmax-jacobian-at-zero", "jacobian_at_zero", wrong_jacobian),
        ("softmax-hessian-first-term", "jacobian_at_zero", wrong_jacobian),
        ("softmax-hessian-at-zero", "hessian_at_zero", doubled(softmax_at_zero.hessian_at_zero)),
        ("softmax-hessian-at-zero", "slice_at_zero", doubled(softmax_at_zero.slice_at_zero)),
    ],
)
def test_wrong_values_at_zero_are_seen(
    key: str, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax_at_zero, name, wrong)
    assert turns(key)


@pytest.mark.parametrize(
    "key",
    [
        "softmax-is-a-distribution",
        "softmax-of-a-component",
        "softmax-derivative-cases",
        "softmax-kronecker-form",
    ],
)
def test_a_softmax_without_its_sum_is_seen(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the logistic function of each entry."""
    monkeypatch.setattr(softmax, "values", without_normalisation)
    assert turns(key)


def test_a_wrong_slice_of_the_hessian_is_no_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the row where the column of the Jacobian is needed once more."""
    right = softmax._slice
    monkeypatch.setattr(softmax, "_slice", lambda j, s, k: right(j, s, k) - j[:, k] * s.T)
    with pytest.raises(ArithmeticError):
        verdict("softmax-hessian-matrix-formula")


def test_a_formula_with_shapes_is_not_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: were the products defined, the printed formula would not fail."""
    monkeypatch.setattr(softmax, "_has_shape", lambda _product: True)
    assert turns("softmax-hessian-matrix-formula")


@pytest.mark.parametrize(
    "key",
    [
        "moments-of-order-1/n",
        "updates-of-order-1/n",
        "constant-ratio-gives-time",
        "euler-step-1/n",
        "update-size-allows-sde",
    ],
)
def test_layers_with_other_fluctuations_are_seen(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: fluctuations of V of order 1/n, as if the updates had that size."""
    right = proportional_limit.one_token_cumulants

    def smaller(count: int) -> list[Any]:
        mean, *others = right(count)
        return [mean, *(cancel(value / proportional_limit.N) for value in others)]

    monkeypatch.setattr(proportional_limit, "one_token_cumulants", smaller)
    assert turns(key)


def test_updates_of_another_size_keep_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: were squares of 1/n not to vanish, the statement would not fail."""
    monkeypatch.setattr(proportional_limit, "squares", lambda _update: proportional_limit.T)
    assert turns("update-size-allows-sde")


def test_depths_rounded_down_stay_in_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: with L = T n rounded down no layer is later than T."""
    monkeypatch.setattr(proportional_limit, "ceiling", floor)
    assert turns("layer-times")


def test_gaps_that_depend_on_the_layer_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: t = l^2/n."""
    right = proportional_limit.time_of
    monkeypatch.setattr(proportional_limit, "time_of", lambda layer: right(layer**2))
    assert turns("layer-gaps")
