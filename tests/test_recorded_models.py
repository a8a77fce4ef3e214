"""Models of the `transformers` library, recorded, compared with the law of their configuration."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

import shaped_attention as sa
from shaped_attention.architectures.layer_summary import tokens_seen

IDS = [5, 9, 5, 17, 23, 9, 31, 40]
_SIZES = {"vocab_size": 50, "bos_token_id": None, "eos_token_id": None}
GPT2 = GPT2Config(n_embd=32, n_layer=4, n_head=4, n_positions=16, **_SIZES)
SIZES_OF_LLAMA = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "max_position_embeddings": 16, **_SIZES,
}  # fmt: skip
LLAMA = LlamaConfig(**SIZES_OF_LLAMA)


def made(config, count, seed=0, attention="eager", kind=AutoModel):
    """Models of a configuration, one at a time."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(count):
            yield kind.from_config(config, attn_implementation=attention).eval()


def law(config, **options):
    return sa.simulate_model(config, IDS, samples=1000, seed=1, progress=False, **options)


class Own(GPT2Config):
    """A family that is not covered."""

    model_type = "own"


class Decoder(nn.Module):
    """What is recognised of the library's models, without the library."""

    def __init__(self, depth=3, layers=3, dropout=0.0):
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=depth)
        with torch.random.fork_rng():
            self.embedding = nn.Embedding(10, 4)
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(self.dropout(x))
        return x


@pytest.mark.parametrize("config", [GPT2, LLAMA], ids=["gpt2", "llama"])
def test_states_are_those_that_the_library_returns(config):
    """To 10^-5 of single precision; the states after the final norm differ by more than 0.1."""
    (model,) = made(config, 1)
    data = sa.record_covariances(model, IDS)
    with torch.no_grad():
        out = model(torch.tensor([IDS]), output_hidden_states=True, output_attentions=True)
    states = torch.cat(out.hidden_states).double()
    v = (states @ states.mT / 32).numpy()
    np.testing.assert_allclose(data["V"][:4, 0], v[:4], atol=1e-5)
    np.testing.assert_allclose(data["V_final"][0], v[4], atol=1e-5)
    assert np.abs(data["V"][4, 0] - v[4]).max() > 0.1
    attention = torch.cat(out.attentions).double().numpy()
    entropy = -(attention * np.log(np.maximum(attention, 1e-300))).sum(-1)
    np.testing.assert_allclose(data["attention_entropy"][:, :, 0], entropy, atol=1e-5)
    simulated = sa.simulate_model(config, IDS, samples=2, progress=False)
    for name in simulated.data_vars:
        assert data[name].dims == simulated[name].dims
    for axis in ("position", "layer"):
        np.testing.assert_array_equal(data[axis], simulated[axis])


def test_a_head_and_the_form_of_the_inputs_change_nothing():
    (model,) = made(GPT2, 1, kind=AutoModelForCausalLM)
    data = sa.record_covariances(model, IDS)
    for inputs in (np.array(IDS), torch.tensor([IDS]), {"input_ids": torch.tensor([IDS])}):
        xr.testing.assert_equal(sa.record_covariances(model, inputs), data)
    xr.testing.assert_equal(sa.record_covariances(model.base_model, IDS)["V"], data["V"])
    later = sa.record_covariances(model, IDS, initial=False)
    np.testing.assert_array_equal(later["position"], [1, 2, 3, 4])
    (other,) = made(GPT2, 1, kind=AutoModelForCausalLM, attention="sdpa")
    fused = sa.record_covariances(other, IDS)
    assert "attention_entropy" not in fused
    np.testing.assert_allclose(fused["V"], data["V"], atol=1e-5)


def test_recorded_models_have_the_law_of_their_configuration():
    """KS tests at level 0.001 / 7 of 150 models at layer 4; twice the standard deviation fails.

    KS distinguishes two normal laws that differ by half a standard deviation nine times in ten.
    """
    recorded = sa.record_covariances(made(GPT2, 150), IDS)
    names = ["log V[0,0]", "log V[7,7]", "rho[0,2]", "rho[0,4]", "rho[3,7]", "log det V",
             "effective rank"]  # fmt: skip
    table = sa.compare(recorded, law(GPT2), observables=names)
    assert table.attrs["position"] == 4
    assert "at position 4" in table.attrs["verdict"]
    assert "CAUTION" not in table.attrs["verdict"]
    assert float(table["p_value"].min()) > 0.001 / len(names)
    wrong = sa.model_from_config(GPT2, initializer_range=0.04)
    assert float(sa.compare(recorded, law(wrong), observables=names)["p_value"].min()) < 1e-6
    assert sa.format_comparison(table).startswith("position 4; tokens: 8; samples: 150, 1000;")
    assert "stopped by then" not in sa.format_comparison(table)


def test_position_is_chosen_and_times_do_not_mix_with_positions():
    data = law(GPT2)
    table = sa.compare(data, law(LLAMA), position=2, permutations=99)
    assert table.attrs["position"] == 2
    assert "stopping time" not in table["observable"]
    assert sa.density(data, "rho[0,1]", position=1).attrs["position"] == 1
    chain = sa.simulate_chain(
        sa.ShapedMLP(0.5), sa.equicorrelated(8, 0.2), width=8, depth=4, samples=8, progress=False
    )
    for call, message in (
        (lambda: sa.compare(data, chain), "first has the axis position and sec"),
        (lambda: sa.compare(data, data, time=0.5), r"pass position= instead\); got 0.5$"),
        (lambda: sa.density(data, "stopping time"), "^observable must be one of .*; got 'st"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_entropies_of_a_family_that_is_not_covered_are_summarised():
    """The weights show which tokens are seen: those before, in a window the last 3 of these."""
    (own,) = made(GPT2, 1)
    known = sa.model_summary(sa.record_covariances(own, IDS))
    own.config = Own(
        **{name: value for name, value in GPT2.to_dict().items() if name != "model_type"}
    )
    own.config._attn_implementation = "eager"
    with pytest.raises(ValueError, match=r"config.model_type must be .*; got 'own'"):
        sa.model_from_config(own.config)
    recorded = sa.record_covariances(own, IDS)
    xr.testing.assert_equal(sa.model_summary(recorded), known)
    assert recorded["tokens_seen"].values[2, 0].tolist() == list(range(1, 9))
    window = MistralConfig(**SIZES_OF_LLAMA, num_key_value_heads=2, sliding_window=3)
    recorded = sa.record_covariances(made(window, 2), IDS)
    seen = tokens_seen(sa.model_from_config(window), 8)
    assert seen.max() == 3
    np.testing.assert_array_equal(recorded["tokens_seen"], np.stack([seen, seen], axis=1))


def test_samples_with_shared_weights_or_numbers_are_named():
    (model,) = made(GPT2, 1)
    shared = sa.record_covariances(model, torch.arange(40).reshape(8, 5))
    quick = {"permutations": 99}
    own = sa.record_covariances(made(GPT2, 8), torch.arange(5))
    joined = xr.concat(
        [sa.record_covariances(each, torch.arange(5)) for each in made(GPT2, 8)], "sample"
    )
    xr.testing.assert_equal(joined, own)
    table = sa.compare(shared, own, **quick)
    assert "share its weights" in table.attrs["verdict"]
    assert table.attrs["own_weights"] == 0
    assert "CAUTION" not in sa.compare(own, joined, **quick).attrs["verdict"]
    same = sa.compare(law(GPT2), law(LLAMA), **quick)
    assert "share random numbers" in same.attrs["verdict"]


def test_models_are_recognised_by_their_attributes(tmp_path):
    ids = torch.tensor([1, 2, 3])
    data = sa.record_covariances(Decoder(), ids)
    assert data["V"].sizes == {"position": 4, "sample": 1, "row": 3, "col": 3}
    assert data["module"].values.tolist() == ["input", "layers.0", "layers.1", "layers.2"]
    assert math.isclose(data.attrs["precision"], 2.0**-23)
    sa.save(data, tmp_path / "recorded.nc")
    xr.testing.assert_equal(sa.load(tmp_path / "recorded.nc"), data)
    with pytest.raises(ValueError, match="no module of the model is chosen"):
        sa.record_covariances(Decoder(depth=2), ids)
    chosen = sa.record_covariances(Decoder(), ids[None], lambda name, _: name == "layers.1")
    assert chosen["V"].dims[0] == "position"
    with torch.random.fork_rng(), pytest.warns(UserWarning, match="training mode, with dropout"):
        sa.record_covariances(Decoder(dropout=0.1), ids)
    for arguments, message in (
        ((Decoder(), "text"), "^inputs must be token ids .*; got 'text'"),
        (([], ids), r"^model must be a torch.nn.Module, or several; got \[\]"),
    ):
        with pytest.raises(ValueError, match=message):
            sa.record_covariances(*arguments)
