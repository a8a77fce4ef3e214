"""`prove` judges a person's own drift and diffusion, with a witness if they are false."""

from __future__ import annotations

import pytest
from sympy import Matrix, Symbol, eye, ones

from symbolic import ShapedAttention, ShapedMLP, derive, prove
from tests.refusals import refused

GAMMA, TAU = Symbol("gamma", positive=True), Symbol("tau_0", positive=True)


def drift(v):
    """The closed form of full attention, as a person writes it."""
    m = v.rows
    c = eye(m) - ones(m, m) / m
    p = c * v * c
    s = Matrix([p[i, i] - p.trace() / m for i in range(m)])
    q, u = Matrix([v[i, i] for i in range(m)]), v * s
    square = sum(x**2 for x in p)
    return GAMMA**2 / TAU**2 * (square / m**2 * v + (q * u.T + u * q.T) / (2 * m))


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_true_statement_is_proven(tokens):
    diffusion = derive(ShapedAttention(), tokens).diffusion
    proof = prove(ShapedAttention(), tokens, drift=drift, diffusion=diffusion)
    assert (proof.holds, proof.points) == (True, 0)
    assert proof.entries == tokens**2 + (tokens * (tokens + 1) // 2) ** 2
    assert "minus the statement" in str(proof)


def test_a_false_statement_has_a_witness():
    for wrong in (lambda v: 2 * drift(v), lambda v: drift(v) + GAMMA**8 * ones(2, 2)):
        proof = prove(ShapedAttention(), 2, drift=wrong)
        assert proof.holds is False
        witness = "at V = [[1, 0], [0, 1]], gamma = 1/2, tau_0 = 1/3 derived 9/16"
        assert str(proof).startswith(f"DISPROVED: drift entry (0, 0); {witness}, stated ")
        assert "; derived minus stated is " in str(proof)


def test_symbols_count_by_their_names():
    """Of the parameters and of V, whatever their assumptions; a wrong sign is disproved."""
    gamma, c_minus, v = Symbol("gamma"), Symbol("c_minus", positive=True), Symbol("V[0,0]")
    assert prove(ShapedMLP(), 1, diffusion=[[4 * gamma**2 * v**2]]).holds
    assert not prove(ShapedMLP(), 1, diffusion=[[-4 * gamma**2 * v**2]]).holds
    drift = derive(ShapedMLP(), 2).drift.subs(Symbol("c_minus", real=True), c_minus)
    assert prove(ShapedMLP(), 2, drift=drift).holds
    assert not prove(ShapedMLP(), 2, drift=drift.subs(c_minus, -c_minus)).holds


test_bad_statements = refused(
    (lambda v: Symbol("x") * v, "drift contains the symbol x; those of the layer and of V are"),
    (lambda v: v[:1, :], r"drift must have shape \(2, 2\); got \(1, 2\)"),
    (5, "drift is not a matrix of expressions"),
    by=lambda statement: prove(ShapedAttention(), 2, drift=statement),
)
