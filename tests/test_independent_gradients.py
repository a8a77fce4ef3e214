"""A step with gradients through an independent matrix: against torch, with its own backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention.figures.paper.independent_gradients import BACKWARD, one_step
from shaped_attention.figures.paper.learning_rates import TARGETS, tokens_after
from tests.explicit_networks import Explicit, norms

LAYER = tokens_after(2**-0.5)
WIDTH, DEPTH, RATE, SAMPLES = 20, 2, 0.3, 600


class Through(torch.autograd.Function):
    """x W, with the gradient g B^T of x and that of W as it is."""

    @staticmethod
    def forward(ctx, x, w, back):
        ctx.save_for_backward(x, back)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, back = ctx.saved_tensors
        return g @ back.mT, x.mT @ g, None


class Product:
    """A pair of matrices that takes the place of one in ``x @ w``."""

    def __init__(self, w, back):
        self.w, self.back = w, back

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        x, pair = args
        return Through.apply(x, pair.w, pair.back)


class Independent(Explicit):
    def weight(self, name, rows, columns):
        w = super().weight(name, rows, columns)
        backs = self.__dict__.setdefault("backs", {})
        if name not in backs:
            backs[name] = self.normal(self.count, rows, columns)
        return Product(w, backs[name])


def explicitly(kind):
    """Losses and norms before and after the step."""
    network = (Explicit if kind == "transpose" else Independent)(
        LAYER, WIDTH, DEPTH, SAMPLES, seed=8, v0=sa.equicorrelated(2, 0.2)
    )
    rows = []
    for _ in range(2):
        f = network.outputs(network.tokens()[-1], 1)[..., 0]
        loss = 0.5 * ((f - torch.tensor(TARGETS)) ** 2).sum(-1)
        gradients = torch.autograd.grad(loss.sum(), list(network.weights.values()))
        found = norms(dict(zip(network.weights, gradients, strict=True)))
        total = np.sqrt(sum(x**2 for x in found.values()))
        rows += [loss.detach().numpy(), total, found["0.0.2"], found["1.0.0"]]
        with torch.no_grad():
            for (name, w), g in zip(network.weights.items(), gradients, strict=True):
                w -= RATE * g
                if kind == "independent":
                    network.backs[name] -= RATE * g
    return with_fall(rows)


def with_fall(rows):
    """Add by how much the loss falls, over what a gradient promises."""
    return [*rows, (rows[0] - rows[4]) / (RATE * rows[1] ** 2)]


def lazily(kind, seed=2):
    run = {"width": WIDTH, "depth": DEPTH, "rate": RATE, "samples": SAMPLES, "seed": seed}
    step = one_step(LAYER, kind, **run)
    kept = zip(step.loss, step.total, step.norms["0.0.2"], step.norms["1.0.0"], strict=True)
    return with_fall([values for row in kept for values in row])


def p_values(first, second):
    return np.array([stats.ks_2samp(a, b).pvalue for a, b in zip(first, second, strict=True)])


def test_laws_are_those_of_torch_and_only_the_step_tells_them_apart():
    """Loss and norms before and after the step, and the fall of the loss, of both kinds.

    Before the step the laws of the two kinds differ by less than the test sees. The fall differs by
    more than its standard deviation.
    """
    real = {kind: explicitly(kind) for kind in BACKWARD}
    for kind in BACKWARD:
        assert p_values(lazily(kind), real[kind]).min() * 9 > 1e-3
    across = p_values(lazily("independent"), real["transpose"])
    assert across[:4].min() * 4 > 1e-3
    assert across[8] < 1e-8


@pytest.mark.quick
def test_with_the_transpose_it_is_simulate_training():
    """Number by number: the same random numbers have the same names."""
    run = {"width": 16, "depth": 2, "samples": 3, "seed": 1}
    step = one_step(LAYER, "transpose", rate=0.1, **run)
    whole = sa.simulate_training(
        LAYER, sa.equicorrelated(2, 0.2), list(TARGETS), steps=1, optimizer=sa.SGD(0.1), **run
    )
    np.testing.assert_allclose(step.loss, whole.loss, rtol=1e-9)
    for name, values in step.norms.items():
        np.testing.assert_allclose(values, whole.gradient_norm.sel(parameter=name), rtol=1e-7)
    other = one_step(LAYER, "independent", rate=0.1, **run)
    np.testing.assert_allclose(other.loss[0], whole.loss[0], rtol=1e-9)
    assert not np.allclose(other.loss[1], whole.loss[1], rtol=1e-3)
