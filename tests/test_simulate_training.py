"""Training steps in law: against explicit weights with torch's gradients, and wrong variants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import shaped_attention as sa
from shaped_attention.lazy.matrices import Matrix
from shaped_attention.rows.rows import Rows
from tests.explicit_networks import TWO_EQUAL, Explicit, matrix_sign, norms, take_step
from tests.refusals import refused
from tests.test_gradient_norms import GPT, LLAMA

TARGETS = [0, 2, 1, 2]
STEPS, DEPTH = 3, 2
BIASED = sa.ShapedAttention(0.6, 0.5, query_bias=0.5, output_projection=True)
CASES = {
    "sgd": (GPT, 24, sa.SGD(2.0)),
    "biases": (BIASED, 16, sa.SGD({"*": 2.0, "readout": 1.0})),
    "momentum, decay": (GPT, 24, sa.SGD(1.0, momentum=0.9, weight_decay=0.05)),
    "clipping": (LLAMA, 24, sa.SGD(3.0, clip=0.3)),
    "muon": (GPT, 24, sa.Muon(0.1, momentum=0.9)),
}


def lazily(layer, width, rule, samples=800, seed=5, steps=STEPS):
    return sa.simulate_training(
        layer, TWO_EQUAL, TARGETS, width=width, depth=DEPTH, samples=samples, steps=steps,
        optimizer=rule, seed=seed,
    )  # fmt: skip


def is_hidden(name):
    return name != "readout"


def sign(name, x):
    """Of a matrix (inputs, outputs), times Muon's factor."""
    return max(1.0, x.shape[2] / x.shape[1]) ** 0.5 * matrix_sign(x, 1e-12)


def explicitly(layer, width, rule, samples=800, seed=7):
    """Rows of named values by step, with the weights of every sample in torch."""
    network = Explicit(layer, width, DEPTH, samples, seed)
    buffers: dict[str, torch.Tensor] = {}
    rows, reference = [], None
    for step in range(STEPS + 1):
        tokens = network.tokens()
        f = network.outputs(tokens[-1], 3)
        loss = -torch.log_softmax(f, -1)[:, range(4), TARGETS].mean(-1)
        names = list(network.weights)
        gradients = torch.autograd.grad(loss.sum(), [network.weights[name] for name in names])
        found = dict(zip(names, gradients, strict=True))
        reference = reference or [x.detach() for x in tokens]
        row = {"loss": loss.detach().numpy()}
        row |= {f"gradient {name}": x for name, x in norms(found).items()}
        for number, (x, y) in enumerate(zip(tokens, reference, strict=True)):
            row[f"V {number}"] = ((x[:, 2] * x[:, 3]).sum(-1) / width).detach().numpy()
            if step and number:
                change = ((x - y) ** 2).mean((1, 2)).sqrt().detach().numpy()
                row[f"change {number}"] = change
        with torch.no_grad():
            steps = take_step(network.weights, found, buffers, rule, is_hidden, sign)
        if rule.weight_decay == 0.0:
            row |= {f"update {name}": x for name, x in norms(steps).items()}
        rows.append(row)
    return rows


def values_of(run, name, step):
    kind, _, of = name.partition(" ")
    if kind == "loss":
        return run.loss[step].values
    if kind == "V":
        return run.V[step, int(of), :, 2, 3].values
    if kind == "change":
        return run.activation_change[step, int(of)].values
    return run[f"{kind}_norm"][step].sel(parameter=of).values


def p_values(run, rows):
    """Of all laws by (step, name), times their number; norms of signs, roots of ranks, left out."""
    p = {
        (step, name): stats.ks_2samp(values_of(run, name, step), real, method="asymp").pvalue
        for step, row in enumerate(rows)
        for name, real in row.items()
        if len(np.unique(real.round(9))) > 10
    }
    return {key: value * len(p) for key, value in p.items()}


@pytest.mark.parametrize("name", CASES)
def test_laws_are_those_of_explicit_weights(name):
    """Loss, gradients, updates, activations and their changes, before each of three steps."""
    layer, width, rule = CASES[name]
    p = p_values(lazily(layer, width, rule), explicitly(layer, width, rule))
    assert len(p) > 50
    assert min(p.values()) > 1e-3, min(p, key=p.__getitem__)


@pytest.fixture(scope="module")
def reality():
    return explicitly(GPT, 24, sa.SGD(2.0))


def test_a_fresh_transpose_is_rejected_from_the_second_entry_on(reality, monkeypatch):
    """W^T replaced by a matrix that has nothing to do with W: invisible at initialisation."""

    product = Matrix.product_on

    def wrong(self, side, x):
        if side == 0:
            return product(self, 0, x)
        self.__dict__.setdefault("twin", Matrix(*self._spaces, std=self.std))
        value = product(self.twin, 1, x)
        parts = value.parts
        for parameter in self.parameters:
            parts = parameter.with_update(parts, x, 1)
        return Rows(value.space, tuple(parts))

    monkeypatch.setattr(Matrix, "product_on", wrong)
    p = p_values(lazily(GPT, 24, sa.SGD(2.0)), reality)
    assert min(value for (step, _), value in p.items() if step > 0) < 1e-8


@pytest.mark.quick
def test_numbers_do_not_depend_on_chunks():
    run = {"width": 24, "depth": 2, "samples": 3, "steps": 2, "optimizer": sa.Muon(0.1)}
    whole = sa.simulate_training(GPT, TWO_EQUAL, TARGETS, **run)
    parts = sa.simulate_training(GPT, TWO_EQUAL, TARGETS, chunk=2, **run)
    np.testing.assert_allclose(whole.loss, parts.loss, rtol=1e-8)
    np.testing.assert_allclose(whole.update_norm, parts.update_norm, rtol=1e-6)


@pytest.mark.quick
def test_a_step_down_the_gradient_lowers_the_loss_by_its_square():
    """The first order of a small step, at width 10^6; and real targets."""
    rate = 1e-4
    run = sa.simulate_training(
        BIASED, TWO_EQUAL, [0.5, -1.0, 2.0, 0.0], width=10**6, depth=2, samples=4, steps=1,
        optimizer=sa.SGD(rate),
    )  # fmt: skip
    drop = (run.loss[0] - run.loss[1]).values
    squares = (run.gradient_norm[0] ** 2).sum("parameter").values
    np.testing.assert_allclose(drop, rate * squares, rtol=0.02)


def test_the_norm_of_an_update_leaves_out_weight_decay():
    data = sa.simulate_training(
        sa.ShapedAttention(0.5), TWO_EQUAL, TARGETS, width=32, depth=1, samples=2, steps=3,
        optimizer=sa.SGD(0.5, weight_decay=0.2),
    )  # fmt: skip
    np.testing.assert_allclose(data.update_norm / data.gradient_norm, 0.5, rtol=1e-12)


def train(**arguments):
    named = {"targets": [0, 1, 0, 1], "width": 8, "depth": 1, "samples": 2} | arguments
    return sa.simulate_training(sa.ShapedAttention(0.5), np.eye(4), **named)


test_bad_input = pytest.mark.quick(
    refused(
        ({"optimizer": "adam"}, r"optimizer must be an SGD, Muon, AdamW or Lion"),
        ({"memory": 1000}, "about what one sample takes"),
        ({"classes": 2, "targets": [0, 1, 2, 0]}, r"targets must be classes 0, \.\.\., 1"),
        ({"optimizer": sa.SGD({"nothing": 1.0})}, r"lr has a rate for 'nothing'"),
        by=lambda arguments: train(**arguments),
    )
)

test_settings_of_optimizers_are_checked = refused(
    (lambda: sa.AdamW(0.1, betas=(0.9, 1.0)), r"betas must be two numbers in \[0, 1\)"),
    (lambda: sa.AdamW(0.1, weight_decay={"x": -1.0}), r"weight_decay\['x'\] must be"),
)


def test_a_loss_that_is_not_finite_is_an_error():
    with pytest.raises(FloatingPointError, match="the loss is not finite"):
        train(depth=2, steps=8, optimizer=sa.SGD(1e60))
