"""Planted falsehoods: with a wrong formula in its place, a check no longer finds what is on record.

That the right formulas give the verdicts on record is in ``test_symbolic_claims.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from sympy import KroneckerDelta, Matrix, Rational, cancel

from symbolic.blocks import ShapedAttention
from symbolic.claims import architectures, norms, proportional_limit, random_layers
from symbolic.claims.ledger import SUBJECTS, claims, judge

Wrong = Callable[[Any], Any]
"""Makes what stands in the place of a formula from the right one."""


def doubled(right: Any) -> Any:
    return lambda *arguments, **options: 2 * right(*arguments, **options)


def negated(right: Any) -> Any:
    return lambda *arguments: -right(*arguments)


def of_the_opposite(right: Any) -> Any:
    """The formula for the other value of its first argument, a sign."""
    return lambda sign, *arguments: right(-sign, *arguments)


def always_true(_right: Any) -> Any:
    return lambda *_arguments, **_options: True


def of_smaller_updates(right: Any) -> Any:
    """Fluctuations of V of order 1/n, as if the updates had that size."""

    def cumulants(count: int) -> list[Any]:
        mean, *others = right(count)
        return [mean, *(cancel(value / proportional_limit.N) for value in others)]

    return cumulants


def of_one_more_head(right: Any) -> Any:
    return lambda block, algebra: right(ShapedAttention(heads=block.heads + 1), algebra)


def of_twice_the_squares(right: Any) -> Any:
    def rate(count: int, unnormalised: bool) -> Any:
        value, squares = right(count, unnormalised)
        return value, 2 * squares

    return rate


def in_one_more_dimension(right: Any) -> Any:
    return lambda *arguments: right(*arguments).subs(random_layers.D, random_layers.D + 1)


def with_one_value_matrix(_right: Any) -> Any:
    return KroneckerDelta(random_layers.COLUMN, random_layers.OTHER_COLUMN)


def with_peri_norms_by_the_size(right: Any) -> Any:
    entries = list(right["Peri-LN"])
    entries[2] = entries[2] / random_layers.SIZE
    return {**right, "Peri-LN": tuple(entries)}


def without_a_right_angle(right: Any) -> Any:
    return lambda angle: Matrix([right(angle)[0, :], right(angle)[0, :]])


def with_one_angle_at_all_positions(right: Any) -> Any:
    return lambda c, s, count, one: right(c, s, min(count, 1), one)


def with_half_the_dimension(right: Any) -> Any:
    """A gamma function of d/2 in place of d/2 + 1."""
    return lambda j: right(j) * (1 + 2 * j / architectures.D)


def without_the_last_term(right: Any) -> Any:
    return lambda b, sigma: right(b, sigma) - norms.R * sigma["aabb"] / 4


FALSEHOODS: dict[str, list[tuple[str, str, Wrong]]] = {
    "proportional_limit": [
        ("softmax-hessian-at-zero", "hessian_at_zero", doubled),
        ("softmax-second-derivative", "_jacobian", lambda _: lambda s: Matrix.diag(*s) + s * s.T),
        # The printed function as the derived one.
        ("relu-nu-printed", "nu", lambda _: lambda r, p, q: (p + q) ** 2 * proportional_limit.ARC),
        ("attention-limit-heads", "expected", of_one_more_head),
        ("euler-step-1/n", "one_token_cumulants", of_smaller_updates),
        # Were there a limit without centring, the statement would not fail.
        ("three-modifications-needed", "_has_limit", always_true),
    ],
    "bilinear_forms": [
        # Of the symmetric part, for which it would be true.
        ("courant-fischer", "largest_eigenvalue", lambda right: lambda a: right((a + a.T) / 2)),
        ("svd-of-omega", "gram_of_left_vectors", doubled),
        ("scores-as-attention-module", "SCORES", lambda right: right.T),
        ("layer-norm-as-unit-norm", "layer_norm", lambda right: lambda x, centred: right(x, False)),
    ],
    "particles": [
        ("energy-derivative-sa", "energy_rate", of_twice_the_squares),
        ("continuity-equation-on-the-sphere", "defect_of_the_density", of_the_opposite),
        ("energy-minimiser", "gegenbauer_coefficient", lambda f: lambda k, j: f(k, j) * (k + 1)),
        ("scaled-scores-variance", "score_variance", lambda f: lambda d, scale: f(d, scale**2)),
    ],
    "clustering": [
        ("rate-of-convergence", "linear_rate", doubled),
        (
            "one-cluster-in-three-dimensions",
            "every_point_has_a_way_up",
            lambda f: lambda d: f(d - 1),
        ),
        ("collapse-in-finite-time", "rate_of_the_cosine", doubled),
        ("repulsive-energy", "rate_of_the_energy", of_the_opposite),
    ],
    "transport": [
        ("wasserstein-gradient", "divergence", negated),
        ("sign-of-the-divergence", "follows_the_flow", of_the_opposite),
        ("benamou-brenier", "gaussian_velocity", doubled),
        # Were the least cost a distance as it stands, the statement would not fail.
        ("wasserstein-distance", "triangle_holds", always_true),
    ],
    "random_layers": [
        ("random-values-limit", "drift", in_one_more_dimension),
        ("random-values-two-tokens", "bracket", in_one_more_dimension),
        ("random-values-heads", "HEAD_COVARIANCE", with_one_value_matrix),
        ("random-mlp-kernel", "half_gaussian_moment", doubled),
        ("normalisation-speeds", "SCHEMES", with_peri_norms_by_the_size),
    ],
    "explosion": [
        ("explosion-two-tokens", "linear_rate", doubled),
        ("explosion-threshold", "two_tokens", lambda right: lambda heads: right(heads / 2)),
        ("explosion-scale", "DRIFT", lambda right: Rational(99, 100) * right),
        ("explosion-probability", "beta_slope", doubled),
        ("explosion-live-token-mlp", "MLP_GAMMA", lambda right: 2 * right),
        ("revealed-image", "turned", without_a_right_angle),
    ],
    "architectures": [
        ("centre-moments", "transported", doubled),
        ("rotary-scores", "multiple", with_one_angle_at_all_positions),
        ("qk-norm-kernel", "stated_coefficient", with_half_the_dimension),
        ("smooth-limit", "smooth_drift", doubled),
    ],
    "norms": [
        ("post-rms-drift", "post_norm_drift", lambda _: lambda b, _sigma: norms._projected(b)),
        ("sandwich-limit", "post_norm_drift", without_the_last_term),
        ("pre-rms-correction", "stated_share", doubled),
    ],
}
"""Claims of each subject, with a formula that their check needs, and what is wrong with it."""


@pytest.mark.parametrize(
    ("subject", "key", "name", "wrong"),
    [(subject, *row) for subject, rows in FALSEHOODS.items() for row in rows],
)
def test_a_falsehood_is_seen(
    subject: str, key: str, name: str, wrong: Wrong, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is not the one on record, or the corrected statement does not hold."""
    module = import_module(f"symbolic.claims.{subject}")
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    claim = next(claim for claim in claims() if claim.key == key)
    try:
        seen = judge(claim).changed
    except ArithmeticError:
        seen = True
    assert seen


def test_every_subject_has_its_falsehoods() -> None:
    assert set(FALSEHOODS) == set(SUBJECTS)
