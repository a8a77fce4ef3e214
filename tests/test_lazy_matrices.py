"""Spaces, rows and lazily revealed matrices: what does not depend on chance, and the law of W."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from shaped_attention import lazy
from shaped_attention.numerics.draws import Draws
from shaped_attention.rows.coordinates import inner
from shaped_attention.rows.rows import Rows
from shaped_attention.rows.sources import Source
from shaped_attention.rows.spaces import Frame, Open

pytestmark = pytest.mark.quick


def close(a, b, error=1e-12):
    return float((a - b).abs().max()) <= error * max(1.0, float(b.abs().max()))


def test_a_product_and_its_transpose_are_of_one_matrix():
    """<x W, g> = <x, g W^T>, whatever was asked before, also from a space to itself."""
    for ends in ((7, 7), (10**9, 10**6), (5, 10**4)):
        a, b = (lazy.Space(n, samples=3, seed=1) for n in ends)
        space = a if ends[0] == ends[1] else b
        w = lazy.Matrix(a, space, std=0.3)
        for _ in range(4):
            x, g = a.normal(3), space.normal(2)
            assert close((x @ w) @ g.mT, x @ (g @ w.mT).mT, 1e-11)
            twice = x @ w
            assert close(inner(twice, twice), inner(x @ w, x @ w), 1e-11)


@pytest.mark.portability
@pytest.mark.parametrize("distance", [1e-4, 1e-9])
def test_rows_that_nearly_depend_on_others(distance):
    """The third row is the difference of the others, but for rounding."""
    n = 8
    space = lazy.Space(n, samples=500)
    other = space.beside(n)
    w = lazy.Matrix(space, other, std=n**-0.5)
    z, x, t = (space.normal(3) for _ in range(3))
    _ = (z + x + t) @ w
    rows = torch.cat([x, x + distance * t, t], dim=1)
    first, again = rows @ w, rows @ w
    assert float(((again - first).squares() / first.squares()).max()) < 1e-16
    g = other.normal(3)
    torch.testing.assert_close(inner(rows @ w, g), inner(rows, g @ w.T), rtol=0.0, atol=1e-9 * n)


def test_equal_rows_stay_equal_and_zero_rows_zero():
    space = lazy.Space(100, samples=2)
    x = space.normal(1)
    same = torch.tensor([[1.0], [1.0], [0.0]], dtype=torch.float64) @ x
    y = same @ lazy.Matrix(space, space)
    assert torch.equal(y.coordinates[:, 0], y.coordinates[:, 1])
    assert not y.coordinates[:, 2].any()


def test_a_matrix_that_is_revealed_whole_is_gaussian():
    """From both sides in turn, by questions that depend on answers; then entry by entry."""
    count, n = 4000, 3
    a, b = (lazy.Space(n, count, seed=3, explicit=True) for _ in range(2))
    w = lazy.Matrix(a, b, std=0.5)
    x = a.rows(torch.tensor([[1.0, 2.0, 0.0]]))
    g = (x @ w) * (1.0 / (x @ w).norm())
    h = g @ w.T
    whole = (a.rows(torch.eye(n)) @ w).entries()
    assert close(x.entries() @ whole, (x @ w).entries())
    assert close(g.entries() @ whole.mT, h.entries())
    p = [stats.kstest(whole[:, i, j] / 0.5, "norm").pvalue for i in range(n) for j in range(n)]
    assert min(p) > 1e-3 / len(p)
    squares = ((x @ w).squares()[:, 0, 0] / (0.25 * 5.0)).numpy()
    assert stats.kstest(squares, stats.chi2(3).cdf).pvalue > 1e-3
    # The control: x W is not independent of the answer that chose g.
    along = (x.entries() @ whole @ g.entries().mT)[:, 0, 0].numpy() / (0.5 * 5.0**0.5)
    assert stats.kstest(along, "norm").pvalue < 1e-10


@pytest.mark.parametrize("n", [4, 6, 40])
def test_lengths_and_products_have_their_laws_in_narrow_and_wide_spaces(n, monkeypatch):
    """<x W, y W> given x, y: Wishart, also where a frame becomes complete."""

    def p_values(seed):
        space = lazy.Space(n, 3000, seed=seed)
        x = space.rows(torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
        w = lazy.Matrix(space, space)
        gram = inner(x @ w, x @ w).numpy()
        rng = np.random.default_rng(seed)
        g = rng.standard_normal((3000, 2, n))
        factor = np.array([[1.0, 0.0], [0.6, 0.8]])
        real = factor @ g @ g.transpose(0, 2, 1) @ factor.T
        return [stats.ks_2samp(gram[:, i, j], real[:, i, j]).pvalue for i, j in ((0, 0), (0, 1))]

    assert min(p_values(1)) > 1e-3 / 2
    # The control: degrees of freedom that ignore the two directions known already.
    drawn = Draws.normals_beside_wishart
    monkeypatch.setattr(
        Draws, "normals_beside_wishart", lambda self, m, known, dof: drawn(self, m, known, dof + 2)
    )
    if n == 40:
        assert min(p_values(1)) < 1e-6


def test_numbers_do_not_depend_on_the_samples_beside():
    def product(first, count):
        source = Source(count, 5, first=first)
        a, b = Frame(30, source), Frame(20, source)
        w = lazy.Matrix(a, b, name="w")
        x = Rows(a, (a.fresh(2, source.stream("x").draws()),))
        return inner(x @ w, x @ w)

    assert torch.equal(product(0, 6)[4:], product(4, 2))


def test_a_space_that_becomes_explicit_keeps_all_inner_products():
    space = lazy.Space(30, 2, seed=1)
    x = space.normal(3)
    w = lazy.Matrix(space, space)
    y, mean = x @ w, x.mean()
    before = inner(x, y)
    entries = x.entries()
    assert space.explicit
    assert close(inner(x, y), before)
    assert close(entries.mean(-1, keepdim=True), mean)
    assert close(entries @ y.entries().mT, before)
    again = x @ w
    assert close(again.entries(), y.entries())


def test_a_projection_whose_mean_is_known_may_be_added():
    """The vector of ones of its space is that of the other; so are all inner products."""
    space = lazy.Space(9, 3000, seed=1)
    x = space.normal(2)
    y = lazy.Matrix(space, Open(9, space.source), std=1.0 / 3.0)
    y = x @ y
    mean, products = y.mean(), inner(y, y)
    both = x + y
    y_there = both - x
    assert close(y_there.mean(), mean)
    assert close(inner(y_there, y_there), products)
    # x y^T is as for independent directions, given the means: its mean square is that of N(0, W).
    along = (x @ y.mT - 9.0 * x.mean() * mean.mT)[:, 0, 1]
    rest = (inner(x, x)[:, 0, 0] - 9.0 * x.mean()[:, 0, 0] ** 2) * (
        products[:, 1, 1] - 9.0 * mean[:, 1, 0] ** 2
    )
    ratio = (along**2 / rest).numpy()
    assert stats.kstest(ratio, stats.beta(0.5, 3.5).cdf).pvalue > 1e-3
    assert stats.kstest(ratio, stats.beta(0.5, 4.0).cdf).pvalue < 1e-3


def test_direct_sums_split_a_matrix_and_may_repeat_a_space():
    """With W = [W_1; W_2], (x, y) W = x W_1 + y W_2 in law: squares are chi^2; and duality."""
    out = lazy.Space(50, 2000, seed=3)
    head = out.beside(6)
    x, y = head.normal(1), head.normal(1)
    both = torch.cat([x, y], dim=-1)
    w = lazy.Matrix(lazy.Sum([head, head]), out)
    squares = ((both @ w).squares() / both.squares())[:, 0, 0].numpy()
    assert stats.kstest(squares, stats.chi2(50).cdf).pvalue > 1e-3
    g = out.normal(2)
    assert close((both @ w) @ g.mT, both @ (g @ w.T).mT, 1e-11)


def test_signs_of_matrices_of_low_rank():
    """Against the singular value decomposition of the whole matrix, two rows equal."""
    a, b = (lazy.Space(n, 2, explicit=True) for n in (6, 7))
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.3, 2.0]], dtype=torch.float64) @ a.normal(2)
    g = b.normal(3)
    sign = lazy.Factors(x, g).sign()
    found = sign.left.entries().mT @ sign.right.entries()
    u, s, vh = torch.linalg.svd(x.entries().mT @ g.entries(), full_matrices=False)
    assert close(found, (u * (s > 1e-12)[:, None]) @ vh)
    assert close(sign.norm() ** 2, torch.tensor([2.0, 2.0], dtype=torch.float64))


def test_updates_are_added_to_products_from_both_sides():
    space = lazy.Space(5, 2, explicit=True)
    w, x, g = lazy.Matrix(space, space), space.normal(2), space.normal(2)
    before = (space.rows(torch.eye(5)) @ w).entries()
    w.set(0.5, lazy.Factors(x, g))
    after = 0.5 * before + x.entries().mT @ g.entries()
    assert close((space.rows(torch.eye(5)) @ w).entries(), after)
    assert close((x @ w.T).entries(), x.entries() @ after.mT)
