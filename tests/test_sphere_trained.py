"""Trained models: hidden states, recorded and read from files, and the law of their cosines."""

from __future__ import annotations

import hashlib
from collections import UserDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from shaped_attention import load
from shaped_attention.commands.main import main
from shaped_attention.io.inputs import read_array, read_example
from shaped_attention.sphere import (
    example_hidden_states,
    inner_products,
    read_hidden_states,
    record_hidden_states,
    uniform_start,
)
from shaped_attention.sphere.figures.histograms import inner_product_histograms
from shaped_attention.torch_models.recording import record_outputs

RANDOM = np.random.default_rng(5)
STATES = RANDOM.standard_normal((3, 6, 4)) + 0.3
WIDTH = 8


@dataclass
class Output:
    """What Hugging Face models return, as far as it is used."""

    last_hidden_state: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class FaceModel(nn.Module):
    """Embeddings and three layers x -> tanh(W x), called like a Hugging Face model."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.table = nn.Parameter(torch.randn(11, WIDTH, generator=generator))
        self.maps = nn.Parameter(torch.randn(3, WIDTH, WIDTH, generator=generator) / WIDTH**0.5)

    def forward(self, input_ids: Tensor, output_hidden_states: bool = False) -> Output:
        x = self.table[input_ids]
        states = [x]
        for w in self.maps:
            x = torch.tanh(x @ w.mT)
            states.append(x)
        return Output(x, tuple(states) if output_hidden_states else None)


class Ragged(FaceModel):
    """Its states differ in their number of tokens."""

    def forward(self, *args: Tensor, **options: bool) -> Output:
        states = super().forward(*args, **options).hidden_states
        return Output(states[-1], (*states, states[-1][..., :2, :]))


def encoder(dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(7)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 16, dropout=0.0, batch_first=True, dtype=dtype, norm_first=False
        )
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
    return model


def cosines_by_hand(layer):
    found = []
    for i in range(len(layer)):
        for j in range(i):
            x, y = layer[i], layer[j]
            found.append(sum(x * y) / np.sqrt(sum(x * x) * sum(y * y)))
    return np.array(found)


def test_statistics_are_those_of_the_pairs():
    """To 1e-14 against a loop over pairs; the pairs i <= j have another mean."""
    data = inner_products(STATES, bins=7, quantiles=(0.1, 0.5), delta=0.6)
    for k, layer in enumerate(STATES):
        known = cosines_by_hand(layer)
        counts = np.zeros(7)
        for c in known:
            counts[min(int((c + 1.0) / 2.0 * 7), 6)] += 1
        np.testing.assert_allclose(data["density"][k], counts / 15 / (2 / 7), rtol=1e-14)
        assert float(data["mean"][k]) == pytest.approx(known.mean(), abs=1e-14)
        assert float(data["median"][k]) == pytest.approx(sorted(known)[7], abs=1e-14)
        assert float(data["quantile"].sel(level=0.5)[k]) == float(data["median"][k])
        tenth = sorted(known)[1] * 0.6 + sorted(known)[2] * 0.4
        assert float(data["quantile"].sel(level=0.1)[k]) == pytest.approx(tenth, abs=1e-14)
        assert float(data["close"][k]) == sum(c >= 0.4 for c in known) / 15
        with_itself = (known.sum() + 6.0) / 21.0
        assert abs(float(data["mean"][k]) - with_itself) > 0.05
    np.testing.assert_allclose(data["cosine"], [(2 * k - 6) / 7 for k in range(7)], atol=4e-15)
    np.testing.assert_allclose(data["density"].sum("cosine") * 2 / 7, 1.0, rtol=1e-14)


def test_samples_are_pooled_inside_and_not_across():
    """The mean over samples of the means; pairs across the two samples would give another."""
    both = np.stack([STATES, STATES @ np.diag([1.0, 2.0, -1.0, 0.5]) + 1.0], axis=1)
    data = inner_products(both)
    parts = [inner_products(both[:, k]) for k in range(2)]
    for name in ("mean", "close", "density"):
        np.testing.assert_allclose(data[name], (parts[0][name] + parts[1][name]) / 2, atol=1e-13)
    across = inner_products(both.reshape(3, 12, 4))
    assert np.abs(data["mean"] - across["mean"]).min() > 1e-3


def test_uniform_tokens_have_the_dashed_law():
    """Binned cosines against the plotted density at d = 5: chi-square, below its 0.999 quantile.

    Pairs of a sample are pairwise independent, so counts have about binomial variances. The curve
    of d = 6 is rejected.
    """
    states = uniform_start(4, 5, samples=4000, seed=2)[None].numpy()
    data = inner_products(states, bins=16)
    figure = inner_product_histograms(data, "uniform")
    grid, curve = figure.axes[0].lines[1].get_data()
    pairs, statistics = 4000 * 6, []
    for density in (curve, (1 - grid**2) ** 1.5 * 2 / np.pi * 4 / 3):
        mass = np.interp(np.linspace(-1, 1, 1601), grid, density) / 800
        expected = pairs * mass[:-1].reshape(16, 100).sum(axis=1)
        seen = data["density"].values[0] * pairs / 8
        statistics.append(((seen - expected) ** 2 / expected).sum())
    # The 0.999 quantile of chi-square with 15 degrees of freedom.
    assert statistics[0] < 37.7
    assert statistics[1] > 200.0


def test_cosines_of_the_example_grow_with_depth_but_for_the_last_layer():
    """Means 0.066 to 0.321, then 0.266; with shuffled features there is no growth to be seen."""
    states = example_hidden_states()[1]
    mean = inner_products(states)["mean"].values
    np.testing.assert_allclose(
        mean, [0.0656, 0.1180, 0.1325, 0.1606, 0.2216, 0.3206, 0.2663], atol=1e-4
    )
    assert (np.diff(mean)[:5] > 0.01).all()
    assert mean[6] < mean[5] - 0.05
    shuffled = np.random.default_rng(1).permuted(states, axis=-1)
    assert np.abs(inner_products(shuffled)["mean"].values).max() < 0.01


def test_the_figure_shows_each_layer_and_its_mean():
    data = inner_products(example_hidden_states()[1])
    figure = inner_product_histograms(data, "MiniLM")
    panels = [axis for axis in figure.axes if axis.get_visible()]
    assert len(panels) == 7
    for k, axis in enumerate(panels):
        assert axis.lines[0].get_xdata()[0] == float(data["mean"][k])
        np.testing.assert_array_equal(axis.patches[0].get_data().values, data["density"][k])
        edges = axis.patches[0].get_data().edges
        np.testing.assert_allclose(edges, np.linspace(-1.0, 1.0, 81), atol=1e-12)
        assert axis.get_ylim() == panels[0].get_ylim()
        assert axis.get_ylim()[1] > float(data["density"].max())
    plain = inner_product_histograms(inner_products(np.ones((1, 2, 1))), "one feature")
    assert len(plain.axes[0].lines) == 1


ONE = np.ones((2, 1, 3))
ZERO = STATES.copy()
ZERO[2, 4] = 0.0
INFINITE = STATES.copy()
INFINITE[0, 0, 0] = np.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: inner_products(STATES[0]), r"must be of shape \(layers, .*; got \(6, 4\)"),
        (lambda: inner_products(ONE), "must be of at least two tokens"),
        (lambda: inner_products(ZERO), "zero vector, .*: token 4 of layer 2"),
        (lambda: inner_products(INFINITE), "must be finite"),
        (
            lambda: inner_products(STATES, quantiles=(0.5, 1.5)),
            "quantiles must be in .0, 1.; got 1.5",
        ),
        (
            lambda: inner_product_histograms({}, "t"),
            "data must be a Dataset made by inner_products",
        ),
        (
            lambda: record_hidden_states(nn.ReLU(), torch.ones(2, 3)),
            "choose must be a function, because ReLU returns no",
        ),
        (
            lambda: record_hidden_states(Ragged(), torch.tensor([[1, 2, 3]])),
            "hidden_states of Ragged are not all tokens",
        ),
        (
            lambda: record_hidden_states(
                nn.Sequential(nn.Identity(), nn.AvgPool1d(2)),
                torch.ones(5, 4),
                lambda name, _: bool(name),
            ),
            "do not all return tokens of one shape",
        ),
        (
            lambda: record_outputs(encoder(), torch.ones(1, 5, WIDTH).double(), unused),
            "do not all return tokens of one shape",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def unused(name, _module):
    # The encoder works with the weights of this module, and never calls it.
    return name == "layers.0.self_attn.out_proj"


class InPlace(nn.Module):
    """Two modules of which the second overwrites what the first put out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def is_layer(name, _module):
    return name.startswith("layers.") and name.count(".") == 1


@pytest.mark.parametrize("training", [True, False])
def test_hooks_record_the_layers_of_an_encoder(training):
    """To 1e-14 those called one by one, also in torch's fast path; not in another order."""
    model = encoder().train(training)
    tokens = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    found = record_hidden_states(model, tokens, is_layer)
    assert found.shape == (2, 2, 5, WIDTH)
    assert found.dtype == np.float64
    first, second = model.layers
    known = torch.stack([first(tokens), second(first(tokens))]).detach()
    np.testing.assert_allclose(found, known, atol=1e-14)
    assert np.abs(found[0] - second(tokens).detach().numpy()).max() > 0.1
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


@pytest.fixture
def albert(tmp_path):
    """A folder with a small ALBERT of four layers that share their weights, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = transformers.AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=8, num_attention_heads=2, num_hidden_layers=4,
        intermediate_size=16, max_position_embeddings=6, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(2)
        transformers.AlbertModel(config).save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({w: k for k, w in enumerate("abcdefg")}, unk_token="g"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path)
    return tmp_path


def test_the_states_of_a_folder_are_those_of_its_model(albert):
    """Embeddings and four layers; each is the one shared layer on the last, to 1e-5.

    The states of other words, and a layer on the state before, are further than 0.1.
    """
    from transformers import AutoModel

    states = record_hidden_states(albert, "a c b f e")
    model = AutoModel.from_pretrained(albert).eval()
    ids = torch.tensor([[0, 2, 1, 5, 4]])
    assert states.shape == (5, 1, 5, 8)
    np.testing.assert_array_equal(states, record_hidden_states(model, ids))
    np.testing.assert_array_equal(states, record_hidden_states(str(albert), {"input_ids": ids}))
    layer = model.encoder.albert_layer_groups[0].albert_layers[0]
    with torch.no_grad():
        for k in range(4):
            after = layer(torch.tensor(states[k]).float())
            after = (after[0] if isinstance(after, tuple) else after).double()
            np.testing.assert_allclose(states[k + 1], after, atol=1e-5)
            assert np.abs(states[k] - after.numpy()).max() > 0.1
    assert np.abs(states - record_hidden_states(albert, "a c b f a")).max() > 0.1


def test_a_folder_that_lacks_files_is_told_which(albert, tmp_path):
    """Weights and word pieces by name; a text is not cut, and weights are not made up."""
    from safetensors.torch import load_file, save_file

    with pytest.raises(ValueError, match=r"inputs must be a text of at most 6 tokens, .*; got 7"):
        record_hidden_states(albert, "a a a a a a a")
    (albert / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks tokenizer\.json; nothing is downloaded"):
        record_hidden_states(albert, "a b")
    assert record_hidden_states(albert, {"input_ids": torch.tensor([[0, 1]])}).shape[2] == 2
    weights = load_file(albert / "model.safetensors")
    del weights["encoder.embedding_hidden_mapping_in.bias"], weights["pooler.bias"]
    save_file(weights, albert / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"no weights for encoder\.embedding.* 0 more param"):
        record_hidden_states(albert, {"input_ids": torch.tensor([[0, 1]])})
    (albert / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks model\.safetensors, tokenizer\.json"):
        record_hidden_states(albert, "a b")
    with pytest.raises(FileNotFoundError, match=r"is not a folder; .* 'albert/albert-xlarge-v2'"):
        record_hidden_states(tmp_path / "none", "a b")


def test_the_command_draws_the_model_of_a_folder(albert, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a c b f e")
    folders = ["--figures", str(tmp_path), "--results", str(tmp_path)]
    words = ["sphere", "histograms", str(albert), "--text", str(text), *folders]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    drawn = load(tmp_path / "sphere-histograms.nc")
    known = inner_products(record_hidden_states(albert, "a c b f e"))
    np.testing.assert_array_equal(drawn["density"], known["density"])
    result = CliRunner().invoke(main, ["sphere", "histograms", "--text", str(text)])
    assert "needs FILE" in result.output


@pytest.mark.parametrize("samples", [False, True])
def test_hidden_states_are_read_from_files(tmp_path, samples):
    """The one array of three or four dimensions needs no key; two of them do."""
    states = np.stack([STATES, -STATES], axis=1) if samples else STATES
    np.savez(tmp_path / "one.npz", h=states, other=STATES[0])
    np.testing.assert_array_equal(read_hidden_states(tmp_path / "one.npz"), states)
    np.testing.assert_array_equal(read_array(tmp_path / "one.npz"), STATES[0])
    torch.save({"h": torch.tensor(states), "more": torch.tensor(states + 1.0)}, tmp_path / "a.pt")
    found = read_hidden_states(tmp_path / "a.pt", "h")
    np.testing.assert_array_equal(found, states)
    assert found.dtype == np.float64
    with pytest.raises(ValueError, match=r"2 arrays .* four-dimensional .* key= must name"):
        read_hidden_states(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (STATES[0], r"a three- or four-dimensional array; its shape is \(6, 4\)$"),
        (np.full((1, 1, 2, 3), np.nan), "in layer 1, sample 1, row 1, column 1"),
        (np.ones((2, 0, 3)), r"at least one layer, one row .* shape of the array is \(2, 0, 3\)"),
    ],
)
def test_bad_files_of_hidden_states_are_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ValueError, match=message):
        read_hidden_states(tmp_path / "a.npy")


def test_the_example_is_the_shipped_file():
    """The numbers by their hash, so that another file cannot take its place."""
    words, states = example_hidden_states()
    assert (len(words), states.shape, states.dtype) == (70, (7, 70, 384), np.float64)
    assert words[:9] == ["[CLS]", *read_example("moby_dick_tokens.npz", "embeddings")[0]]
    digest = hashlib.sha256(states.astype("<f2").tobytes()).hexdigest()
    assert digest.startswith("1a1ca3f0112e8a07")
