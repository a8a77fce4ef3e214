"""Arguments of a wrong type are ValueErrors too, and NumPy's numbers are numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import shaped_attention as sa

WRONG_TYPES = """
import dataclasses, json, warnings, numpy as np, torch, shaped_attention as sa
half = torch.tensor(0.5, requires_grad=True)
warnings.simplefilter("error")
@dataclasses.dataclass(frozen=True)
class Labelled(sa.ShapedAttention):
    label: object = None
v0, block = np.eye(2), sa.ShapedAttention(0.5)
run = dict(width=8, depth=2, samples=4)
calls = {
    "gamma=tensor(0.5000, requires_grad=True)": lambda: sa.ShapedAttention(half),
    "query_bias=tensor(0.5000)": lambda: sa.ShapedAttention(0.5, query_bias=half.detach()),
    "gamma must be a number, or sa.Schedule([(s, value), ...])": lambda: sa.ShapedAttention(abs),
    "gamma=[0.1, 0.5]": lambda: sa.ShapedMLP([0.1, 0.5]),
    "tau0=the function <lambda>": lambda: sa.ShapedAttention(0.5, tau0=lambda s: 1.0),
    "knots must be pairs (relative depth, value) of numbers, such as": lambda: sa.Schedule(abs),
    "gamma=True": lambda: sa.ShapedMLP(True),
    "heads=1.5": lambda: sa.ShapedAttention(0.5, heads=1.5),
    "identity=1": lambda: sa.ShapedAttention(0.5, identity=1),
    "seed=True": lambda: sa.simulate_chain(block, v0, seed=True, **run),
    "blocks=[]": lambda: sa.Parallel([]),
    "blocks contain 5": lambda: sa.Parallel([block, 5]),
    "layer[1]=3": lambda: sa.simulate_chain([block, 3], v0, **run),
    "tokens=2.0": lambda: sa.equicorrelated(2.0, 0.1),
    "gamma=(0.5+0j)": lambda: sa.ShapedAttention(np.complex128(0.5)),
    "tau0=1e-200": lambda: sa.ShapedAttention(0.5, 1e-200),
    "key_size=9223372036854775808": lambda: sa.ShapedAttention(0.5, key_size=2**63),
    "mask=[[True], [True, True]]": lambda: sa.ShapedAttention(0.5, mask=[[True], [True, True]]),
    "c_plus=-1e+200": lambda: sa.ShapedMLP(0.5, -1e200),
    "gate_bias=[1]": lambda: sa.ShapedMLP(0.5, activation="silu", gate_bias=[1]),
    "v0 must be an array": lambda: sa.integrate_sde(block, [[1], [1, 2]], horizon=1.0, samples=4),
    "v0 must have a Frobenius norm": lambda: sa.simulate_chain(block, 1e308 * v0, **run),
    "width=9223372036854775808": lambda: sa.simulate_chain(block, v0, **run | {"width": 2**63}),
    "depth=4294967296": lambda: sa.simulate_chain(block, v0, **run | {"depth": 2**32}),
    "horizon / step must be below": lambda: sa.integrate_sde(block, v0, horizon=1e298, samples=4),
    "dtype=<class 'int'>": lambda: sa.simulate_chain(block, v0, dtype=int, **run),
    "times=[0j]": lambda: sa.simulate_chain(block, v0, times=[0j], **run),
    "layer[0] must be a block; got a list": lambda: sa.simulate_chain([[block]], v0, **run),
    "layer contains Labelled": lambda: sa.simulate_chain(Labelled(0.5, label=print), v0, **run),
    "tokens must be an array of numbers": lambda: sa.covariance_of([[1.0], [1.0, 2.0]]),
    "v must be real; got complex entries": lambda: sa.drift(block, 1j * v0),
    "v must be a tensor of floating-point numbers; got torch.int64": lambda: sa.diffusion(
        block, torch.eye(2, dtype=int)
    ),
    "v must have a diagonal >= 0; an entry is -1": lambda: sa.drift(sa.ShapedMLP(0.5), -v0),
    "v must be an array of matrices (..., m, m); got": lambda: sa.vech(np.ones((2, 3))),
}
answers = {}
for name, call in calls.items():
    try:
        call()
        answers[name] = "accepted"
    except ValueError as error:
        answers[name] = str(error)
    except Exception as error:
        answers[name] = repr(error)
print(json.dumps(answers))
"""


NUMPY_SCALARS = """
heads = sa.ShapedAttention(np.float32(0.3), output_projection=np.True_, key_size=np.int16(4))
runs = [
    sa.simulate_chain(heads, v0, width=np.int64(8), depth=np.int32(2), samples=np.int64(3)),
    sa.simulate_network(
        sa.ShapedMLP(np.float32(0.3), np.float32(0.1), 1), v0, width=8, depth=2, samples=3,
        seed=np.uint8(3), radius=np.float32(100.0),
    ),
    sa.integrate_sde(heads, v0, horizon=1, step=np.float64(0.5), samples=3, times=np.arange(2)),
]
print(json.dumps([bool(sa.rerun(run).identical(run)) for run in runs]))
"""


@pytest.fixture(scope="module")
def answers():
    """Return the message of a new process: here the run-time type checks would raise first."""
    out = subprocess.run(
        [sys.executable, "-c", WRONG_TYPES + NUMPY_SCALARS],
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in out.stdout.splitlines()]


def test_wrong_types_are_refused_by_our_own_checks(answers):
    for name, answer in answers[0].items():
        argument, _, value = name.partition(":")[0].partition("=")
        form = rf"{re.escape(argument)} must be .*; got {re.escape(value)}"
        older = re.escape(name) + ".*(needed|supported|use )"
        assert re.match(f"{form}|{older}|{re.escape(name)}", answer), (name, answer)
        assert answer != "accepted", name


def test_numpy_scalars_are_welcome_and_run_again_to_the_same_bits(answers):
    assert answers[1] == [True, True, True]


def test_a_start_that_single_precision_cannot_hold():
    big = 1e17 * np.eye(2)
    with pytest.raises(
        ValueError, match=r"^v0 must have a Frobenius norm below 1e\+16; it has 1.41421e\+17"
    ):
        sa.simulate_chain(
            sa.ShapedAttention(0.5), big, width=8, depth=1, samples=1, dtype="float32"
        )
    run = sa.simulate_chain(sa.ShapedAttention(0.5), big, width=8, depth=1, samples=1)
    assert np.isfinite(run["V"]).all()


@pytest.fixture(scope="module")
def replaced():
    """What every public function answers if one of its arguments is something else."""
    out = subprocess.run(
        [sys.executable, "-m", "tests.wrong_arguments"],
        env=os.environ | {"TQDM_DISABLE": "1"},
        capture_output=True,
        check=True,
    )
    found = {}
    for line in out.stdout.splitlines():
        found |= json.loads(line)
    return found


def test_errors_name_the_argument_of_a_wrong_type(replaced):
    """Of some 1,000 calls; each is accepted, or refused in a sentence with the argument's name."""
    assert sum(len(answers) for answers in replaced.values()) > 900
    raw = {
        f"{name}: {argument}": answer
        for name, answers in replaced.items()
        for argument, answer in answers.items()
        if answer != "accepted" and not answer.startswith("named: ")
    }
    assert raw == {}


def test_sentences_about_wrong_types():
    """The value, or its type if that would take more than a line."""
    for wrong, got in ((3, "3"), (np.eye(5), "a ndarray of shape (5, 5)")):
        with pytest.raises(ValueError, match=f"^path must be a path; got {re.escape(got)}$"):
            sa.load(wrong)
    words = "attention must be a SphereAttention or a TokenAttention; got 3"
    with pytest.raises(ValueError, match=f"^{words}$"):
        sa.sphere.sphere_flow(3, None, [0.0])
