"""Bad arguments are ValueErrors: one sentence, with the argument's name and what is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import shaped_attention as sa
from tests.refusals import refused

V0 = np.eye(3)
LAYER = [sa.ShapedAttention(0.5), sa.ShapedMLP(0.5)]
NAN = float("nan")
ASYMMETRIC = np.array([[1.0, 0.3], [0.2, 1.0]])
MASK = sa.ShapedAttention(0.5, mask=np.eye(2, dtype=bool))


def network(layer=LAYER, v0=V0, **options):
    return sa.simulate_network(layer, v0, **{"width": 8, "depth": 2, "samples": 4} | options)


def chain(layer=LAYER, v0=V0, **options):
    return sa.simulate_chain(layer, v0, **{"width": 8, "depth": 2, "samples": 4} | options)


def sde(layer=LAYER, v0=V0, **options):
    return sa.integrate_sde(layer, v0, **{"horizon": 0.25, "step": 0.125, "samples": 4} | options)


SHARED = [
    ({"v0": ASYMMETRIC}, "v0 must be symmetric; .*up to 0.1$"),
    ({"v0": [[1.0, 2.0], [2.0, 1.0]]}, "v0 must be positive semidefinite.*-1$"),
    ({"v0": [[NAN, 0.0], [0.0, 1.0]]}, "v0 must be finite; it has NaN or infinite"),
    (
        {"v0": torch.eye(3, dtype=torch.float64, requires_grad=True)},
        r"v0 must not require gradients, .*; pass v0\.detach\(\)$",
    ),
    ({"samples": 0}, "samples must be an integer >= 1; got 0"),
    ({"seed": -1}, "seed must be an integer >= 0; got -1"),
    ({"times": [0.05]}, "times contains 0.05, which is off the grid"),
    ({"times": [0.0], "save_every": 1}, "times and save_every=1 cannot be used together"),
    ({"radius": 1.0}, r"radius must be larger than \|v0\| = 1.73.*; got 1.0"),
    ({"device": "tpu"}, "device must be 'cpu', 'cuda' or .*; got 'tpu'"),
    ({"dtype": "float16"}, "dtype must be 'float64' or 'float32'; got 'float16'"),
    ({"memory": 0}, "memory must be a number of bytes >= 1, or a size in KiB, .*; got 0"),
    ({"layer": []}, r"layer must be a block or a non-empty list of blocks; got \[\]"),
    ({"layer": MASK}, r"mask must have shape \(3, 3\) for 3 tokens; got \(2, 2\)"),
    ({"keep": "os:system"}, r"keep must be 'V', .*; got 'os:system' \(of Python's library\)$"),
]


@pytest.mark.parametrize("sampler", [network, chain, sde])
@pytest.mark.parametrize(("options", "message"), SHARED)
def test_what_samplers_share(sampler, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        sampler(**options)
    assert len(str(caught.value).splitlines()) == 1


test_sizes = refused(
    (lambda: chain(width=2), "width must be at least 3 for v0 of rank 3; got 2"),
    (lambda: chain(sa.ShapedMLP(0.5, -3.0, -3.0), width=9), "at width 9 both slopes"),
    (lambda: sde(horizon=0.0), "horizon must be positive and finite; got 0.0"),
    (lambda: sde(step=0.15), "step must be .*horizon=0.25, such as the nearest, 0.125; got 0.15$"),
)

test_fields_of_attention = refused(
    ({"gamma": 1.5}, r"^gamma must be in \[0, 1\]; got 1.5$"),
    ({"tau0": 0.0}, "tau0 must be positive.*; got 0.0"),
    ({"mask": "casual"}, r"mask must be None, .*; got 'casual' \(did you mean 'causal'\?\)"),
    ({"mask": np.zeros((2, 2), dtype=bool)}, "mask must let each token see at least one"),
    by=lambda options: sa.ShapedAttention(**{"gamma": 0.5} | options),
)

test_functions = refused(
    (lambda: sa.equicorrelated(3, -0.6), r"rho must be in \[-0.5, 1\] .* 3 tokens; got -0.6"),
    (lambda: sa.covariance_of(np.ones(3)), r"tokens must be an array .*; got shape \(3,\)"),
    (lambda: sa.drift(LAYER, np.ones((2, 3))), r"^v must be of shape .*; got \(2, 3\)"),
    (lambda: sa.load(3), "^path must be a path; got 3$"),
)


def test_more_tokens_than_features_are_warned_of():
    with pytest.warns(
        UserWarning, match=r"tokens has shape \(5, 2\): rows are tokens .* transposed"
    ):
        v = sa.covariance_of(np.ones((5, 2)))
    np.testing.assert_array_equal(v, np.ones((5, 5)))


def test_names_that_are_near_are_suggested():
    message = r"^simulate_chain\(\) has no argument 'widht'; did you mean 'width'\?$"
    with pytest.raises(TypeError, match=message):
        sa.simulate_chain(sa.ShapedAttention(0.3), V0, widht=3)
    with pytest.raises(AttributeError, match=r"'simulate_chains'; did you mean 'simulate_chain'\?"):
        sa.simulate_chains  # noqa: B018


NUMPY_SCALARS = """
import json, numpy as np, shaped_attention as sa
heads = sa.ShapedAttention(np.float32(0.3), output_projection=np.True_, key_size=np.int16(4))
v0, sizes = np.eye(2), {"width": np.int64(8), "depth": np.int32(2), "samples": np.int64(3)}
runs = [
    sa.simulate_chain(heads, v0, **sizes),
    sa.simulate_network(sa.ShapedMLP(np.float32(0.3)), v0, **sizes, seed=np.uint8(3)),
    sa.integrate_sde(heads, v0, horizon=1, step=np.float64(0.5), samples=3, times=np.arange(2)),
]
print(json.dumps([bool(sa.rerun(run).identical(run)) for run in runs]))
"""


def in_a_process(*arguments):
    """What a new process prints: here the run-time type checks would raise first."""
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"TQDM_DISABLE": "1"},
        capture_output=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_numpy_scalars_are_welcome_and_run_again_to_the_same_bits():
    assert in_a_process("-c", NUMPY_SCALARS) == [[True, True, True]]


def test_errors_name_the_argument_of_a_wrong_type():
    """Of some 1,000 calls; each is accepted, or refused in a sentence with the argument's name."""
    answers = {
        f"{name}: {argument}": answer
        for line in in_a_process("-m", "tests.wrong_arguments")
        for name, found in line.items()
        for argument, answer in found.items()
    }
    assert len(answers) > 900
    raw = {key: x for key, x in answers.items() if x != "accepted" and not x.startswith("named: ")}
    assert raw == {}
