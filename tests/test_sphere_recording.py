"""Hidden states of models: recorded by hooks, and read from files."""

from __future__ import annotations

import hashlib
from collections import UserDict

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shaped_attention.io.inputs import read_array, read_example
from shaped_attention.models.recording import record_outputs
from shaped_attention.sphere.trained import (
    example_hidden_states,
    read_hidden_states,
    record_hidden_states,
)
from tests.test_sphere_trained import STATES, WIDTH, FaceModel, encoder


class InPlace(nn.Module):
    """Two modules of which the second overwrites what the first put out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def is_layer(name, _module):
    return name.startswith("layers.") and name.count(".") == 1


def normed(x, norm):
    centred = x - x.mean()
    deviation = np.sqrt((centred**2).mean() + norm.eps)
    return centred / deviation * norm.weight.numpy() + norm.bias.numpy()


def layer_by_hand(x, layer):
    """Post-norm attention with two heads and a ReLU network, token by token, in NumPy."""
    with torch.no_grad():
        joint, bias = layer.self_attn.in_proj_weight.numpy(), layer.self_attn.in_proj_bias.numpy()
        query, key, value = (
            [joint[k * WIDTH : (k + 1) * WIDTH] @ t + bias[k * WIDTH : (k + 1) * WIDTH] for t in x]
            for k in range(3)
        )
        out, half = [], WIDTH // 2
        for i, token in enumerate(x):
            seen = []
            for part in (slice(0, half), slice(half, WIDTH)):
                scores = [np.exp(query[i][part] @ k[part] / half**0.5) for k in key]
                pairs = zip(scores, value, strict=True)
                seen.append(sum(s * v[part] for s, v in pairs) / sum(scores))
            project = layer.self_attn.out_proj
            mixed = project.weight.numpy() @ np.concatenate(seen) + project.bias.numpy()
            y = normed(token + mixed, layer.norm1)
            hidden = np.maximum(layer.linear1.weight.numpy() @ y + layer.linear1.bias.numpy(), 0.0)
            moved = layer.linear2.weight.numpy() @ hidden + layer.linear2.bias.numpy()
            out.append(normed(y + moved, layer.norm2))
    return np.array(out)


@pytest.mark.parametrize("training", [True, False])
def test_hooks_record_the_layers_of_an_encoder(training):
    """To 1e-14 against NumPy, also in torch's fast path; the layers in another order are not."""
    model = encoder().train(training)
    tokens = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    found = record_hidden_states(model, tokens, is_layer)
    assert found.shape == (2, 2, 5, WIDTH)
    assert found.dtype == np.float64
    x = tokens.numpy()
    first = np.array([layer_by_hand(sample, model.layers[0]) for sample in x])
    second = np.array([layer_by_hand(sample, model.layers[1]) for sample in first])
    np.testing.assert_allclose(found, [first, second], atol=1e-14)
    swapped = np.array([layer_by_hand(sample, model.layers[1]) for sample in x])
    assert np.abs(found[0] - swapped).max() > 0.1
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("call", [dict, UserDict, None])
def test_hidden_states_of_the_hugging_face_interface_are_all_recorded(call):
    """Embeddings and layers to float32 rounding, against NumPy; without batch axis as well."""
    model = FaceModel()
    ids = torch.tensor([[1, 4, 4, 10, 0], [3, 2, 1, 0, 9]])
    for words in (ids, ids[0]):
        found = record_hidden_states(model, call({"input_ids": words}) if call else words)
        known = [model.table.detach().double().numpy()[words.numpy()]]
        for w in model.maps.detach().double().numpy():
            known.append(np.tanh(np.einsum("...j,ij->...i", known[-1], w)))
        assert found.shape == (4, *words.shape, WIDTH)
        np.testing.assert_allclose(found, known, atol=2e-6)
        assert np.abs(found[1] - known[2]).max() > 0.1


def test_a_recorded_output_is_a_copy():
    """ReLU in place changes the input of the call, and not what was recorded before it."""
    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]], dtype=torch.float64)
    found = record_outputs(InPlace(), x.clone(), lambda name, _: name == "first")["first"]
    assert torch.equal(found, x)
    changed = x.clone()
    InPlace()(changed)
    assert not torch.equal(changed, x)


def test_a_failing_call_leaves_no_hooks():
    model = encoder()
    with pytest.raises(AssertionError):
        record_hidden_states(model, torch.zeros(1, 5, WIDTH + 1).double(), is_layer)
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("kind", ["npy", "npz", "npz, key", "pt", "pt, key"])
@pytest.mark.parametrize("samples", [False, True])
def test_every_format_gives_the_same_hidden_states(tmp_path, kind, samples):
    """To the last bit; matrices next to the one array of three or four dimensions need no key."""
    states = np.stack([STATES, -STATES], axis=1) if samples else STATES
    path = tmp_path / f"states.{kind[:3].strip(',')}"
    arrays = {"h": states, "other": STATES[0]}
    if "key" in kind:
        arrays["more"] = states + 1.0
    if kind == "npy":
        np.save(path, states)
    elif "npz" in kind:
        np.savez(path, **arrays)
    else:
        torch.save({name: torch.tensor(array) for name, array in arrays.items()}, path)
    found = read_hidden_states(path, "h" if "key" in kind else None)
    np.testing.assert_array_equal(found, states)
    assert found.dtype == np.float64
    if "key" in kind:
        with pytest.raises(ValueError, match=r"2 arrays .* four-dimensional .* key= must name"):
            read_hidden_states(path)
    if kind == "npz":
        np.testing.assert_array_equal(read_array(path), STATES[0])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            STATES[0],
            r"the array has shape \(6, 4\); a three- or four-dimensional one is needed$",
        ),
        (
            np.ones((1, 1, 2, 3, 4)),
            r"the array has shape \(1, 1, 2, 3, 4\); a three- or",
        ),
        (np.full((1, 1, 2, 3), np.nan), "in layer 1, sample 1, row 1, column 1"),
        (np.ones((2, 0, 3)), r"empty with shape \(2, 0, 3\); at least one layer, one row"),
        (np.where(STATES[1, 2, 3] == STATES, np.nan, STATES), "in layer 2, row 3, column 4"),
        (STATES * 1j, "entries are complex; real numbers are needed"),
    ],
)
def test_bad_files_of_hidden_states_are_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=message):
        read_hidden_states(tmp_path / "a.npy")


def test_a_csv_file_holds_no_hidden_states(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"is \.csv; a \.npy, \.npz or \.pt file is needed"):
        read_hidden_states(tmp_path / "a.csv")


def test_the_example_is_the_shipped_file():
    """The numbers by their hash, so that another file cannot take its place."""
    words, states = example_hidden_states()
    assert (len(words), states.shape, states.dtype) == (70, (7, 70, 384), np.float64)
    assert words[:9] == ["[CLS]", *read_example("moby_dick_tokens.npz", "embeddings")[0]]
    digest = hashlib.sha256(states.astype("<f2").tobytes()).hexdigest()
    assert digest.startswith("1a1ca3f0112e8a07")
