"""Losses against the learning rate: against explicit weights in the parametrisation's own scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from tests.explicit_networks import Explicit

WIDTH, DEPTH, STEPS, SAMPLES = 24, 2, 3, 1000
RATES = {"standard": 0.02, "muP": 0.3}
"""At which a step lowers the loss, but far from zero."""
LAYER = sa.Normalised(sa.ShapedAttention(2**-0.5, skip=1.0, output_projection=True), norm="rms")
TARGETS = (1.0, -1.0)
CEILING = 1e6


def training_losses(kind, layer, *, width, depth, rate, steps, samples, seed=0):
    """Losses (steps + 1, samples) by SGD with a learning rate, in a parametrisation.

    Two tokens, the loss is |y - f|^2 / 2 with y = (1, -1). Hidden matrices W (n, n) have N(0, 1/n)
    entries. Both parametrisations name learning rates of W and of the readout u, f = X_L u:

        standard    u ~ N(0, 1/n)      rate eta for all
        muP         u ~ N(0, 1/n^2)    rate eta for W, eta / n for u

    as in table 3 of Yang et al. (arXiv 2203.03466) for SGD, from Yang and Hu (arXiv 2011.14522).
    `simulate_training` has matrices of N(0, 1) entries, W = w / sqrt n, and f = X_L v / sqrt n.
    The gradient in w is that in W over sqrt n, and a step of w is that of W times sqrt n, so that
    rate eta in W is rate n eta in w. So the standard rates are n eta for w and v. With muP
    u = v / n, so a step of rate eta / n in u is one of rate n^2 eta / n = n eta in v: n eta again,
    for w and v, of the loss of f / sqrt n,

        |y - f / sqrt n|^2 / 2 = |sqrt n y - f|^2 / (2 n),

    which is that of the targets sqrt n y over n. With these targets both rates are therefore eta.

    Losses above 10^6 are returned as 10^6. If a step makes a loss of one of the samples overflow,
    so are all of that step.
    """
    # A loss of simulate_training is `unit` times that of the parametrisation.
    unit = 1.0 if kind == "standard" else float(width)
    hidden = readout = width * rate / unit
    losses = np.full((steps + 1, samples), CEILING)
    # If not all steps are finite, as many as are.
    for count in range(steps, 0, -1):
        try:
            run = sa.simulate_training(
                layer, sa.equicorrelated(2, 0.2), [math.sqrt(unit) * y for y in TARGETS],
                width=width, depth=depth, samples=samples, steps=count, seed=seed, progress=False,
                optimizer=sa.SGD({"*": hidden, "readout": readout}),
            )  # fmt: skip
        except FloatingPointError:
            continue
        losses[: count + 1] = np.minimum(run["loss"].values / unit, CEILING)
        break
    return losses


class Scaled(Explicit):
    """Matrices with entries of variance 1 / n, and a readout of a given standard deviation."""

    def weight(self, name, rows, columns):
        if name not in self.weights:
            spread = self.readout if name == "readout" else self.width**-0.5
            self.weights[name] = (spread * self.normal(self.count, rows, columns)).requires_grad_()
        # The block and `outputs` divide by sqrt n.
        return math.sqrt(self.width) * self.weights[name]


def explicitly(kind, hidden=1.0, readout=None):
    """Losses (step, sample) of weights of table 3 of Yang et al., with torch's gradients."""
    network = Scaled(LAYER, WIDTH, DEPTH, SAMPLES, seed=3, v0=sa.equicorrelated(2, 0.2))
    network.readout = WIDTH**-0.5 if kind == "standard" else 1.0 / WIDTH
    readout = readout or (1.0 if kind == "standard" else 1.0 / WIDTH)
    losses = []
    for _ in range(STEPS + 1):
        f = network.outputs(network.tokens()[-1], 1)[..., 0]
        loss = 0.5 * ((f - torch.tensor(TARGETS)) ** 2).sum(-1)
        losses.append(loss.detach().numpy())
        gradients = torch.autograd.grad(loss.sum(), list(network.weights.values()))
        with torch.no_grad():
            for (name, w), g in zip(network.weights.items(), gradients, strict=True):
                w -= RATES[kind] * (readout if name == "readout" else hidden) * g
    return np.stack(losses)


def lazily(kind):
    return training_losses(
        kind, LAYER, width=WIDTH, depth=DEPTH, rate=RATES[kind], steps=STEPS, samples=SAMPLES,
        seed=5,
    )  # fmt: skip


def smallest_p(kind, **rates):
    """Of Kolmogorov-Smirnov tests of the loss before each step and after the last, times four."""
    pairs = zip(lazily(kind), explicitly(kind, **rates), strict=True)
    return min(stats.ks_2samp(a, b, method="asymp").pvalue for a, b in pairs) * (STEPS + 1)


@pytest.mark.parametrize("kind", RATES)
def test_losses_are_those_of_weights_in_their_own_scale(kind):
    """Detects a shift of the loss by 0.13 standard deviations half of the time.

    Rates of hidden matrices or readout that are off by a factor of two are rejected.
    """
    assert smallest_p(kind) > 1e-3
    own = 1.0 if kind == "standard" else 1.0 / WIDTH
    assert smallest_p(kind, hidden=2.0) < 1e-6
    assert smallest_p(kind, readout=2.0 * own) < 1e-6


@pytest.mark.quick
def test_a_loss_that_overflows_is_the_ceiling():
    losses = training_losses(
        "standard", LAYER, width=8, depth=1, rate=1e40, steps=4, samples=2, seed=1
    )
    assert (losses[0] < 100.0).all()
    assert (losses[1:] == 1e6).all()


@pytest.mark.quick
def test_the_best_rate_of_mup_does_not_depend_on_the_width():
    """Medians after three steps at widths 32 and 10^5: equal by muP, a factor apart otherwise."""
    sizes = {"depth": 2, "steps": 3, "samples": 40}
    mup, standard = (
        [
            np.median(training_losses(kind, LAYER, width=n, rate=rate, **sizes)[-1])
            for n in (32, 10**5)
        ]
        for kind, rate in (("muP", 0.05), ("standard", 0.002))
    )
    assert mup[0] == pytest.approx(mup[1], rel=0.25)
    assert mup[1] < 0.6
    assert standard[1] > 100.0 * standard[0]
