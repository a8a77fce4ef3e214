"""Samples of models from a configuration: embedding, entropies, norms, records, bad input.

That the law is that of models of the `transformers` library is tested in `tests/test_families.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats

import shaped_attention as sa
from shaped_attention.blocks.parameters import at_depth
from tests.laws import threads
from tests.test_provenance import assert_same

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 100,
    "initializer_range": 0.1,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "vocab_size": 100,
    "n_positions": 64,
    "initializer_range": 0.1,
}
IDS = [3, 8, 3, 5]


def run(config=LLAMA, tokens=4, **options):
    return sa.simulate_model(config, tokens, **{"samples": 20, "progress": False} | options)


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["rms", "layer"])
def test_the_result(config):
    result = run(config, IDS)
    assert dict(result.sizes) == {
        "position": 4, "sample": 20, "row": 4, "col": 4, "layer": 3, "head": 4,
    }  # fmt: skip
    assert result.position.values.tolist() == [0, 1, 2, 3]
    assert result.layer.values.tolist() == [1, 2, 3]
    entropy = result.attention_entropy.values
    # A token that sees i tokens has an entropy between 0 and log i.
    assert (entropy[..., 0] == 0.0).all()
    assert (entropy >= 0.0).all()
    assert (entropy <= np.log([1, 2, 3, 4]) + 1e-12).all()


def test_equal_ids_are_equal_rows():
    """In a Llama up to the first layer; the positions of a GPT-2 make them different."""
    v = run(LLAMA, IDS).V.values
    np.testing.assert_allclose(v[0, :, 0], v[0, :, 2], rtol=1e-12)
    assert (abs(v[1, :, 0, 0] / v[1, :, 2, 2] - 1.0) > 1e-6).all()
    gpt2 = run(GPT2, IDS).V.values
    assert (abs(gpt2[0, :, 0, 0] / gpt2[0, :, 2, 2] - 1.0) > 1e-6).all()


def embedded(embedding, ids, width, samples, seed):
    """X_0 (samples, m, n) with explicit embeddings."""
    rng = np.random.default_rng(seed)
    words = embedding.std * rng.normal(size=(samples, embedding.vocabulary, width))
    words[:, list(embedding.zero_ids)] = 0.0
    places = embedding.position_std * rng.normal(size=(samples, len(ids), width))
    common = embedding.common_std * rng.normal(size=(samples, 1, width))
    x = embedding.scale * (words[:, ids] + places + common)
    if embedding.norm is not None:
        if embedding.norm.kind == "layer":
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + embedding.norm.eps)
    return x


RMS, LAYER = sa.Norm("rms", 0.1), sa.Norm("layer", 0.1)
EMBEDDINGS = {
    "few features": (sa.Embedding(9, 0.5), "rms", 3),
    "positions, few features": (sa.Embedding(9, 0.5, position_std=0.3), "layer", 3),
    "all": (sa.Embedding(9, 0.5, 0.3, 0.7, scale=2.0, norm=LAYER, zero_ids=(8,)), "layer", 8),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_the_law_of_the_embedding(name):
    """KS of V_0 and of V_1, after a layer that subtracts means if the model has LayerNorm.

    4,000 samples of each, Bonferroni at 10^-3; KS sees a shift of 0.1 standard deviations nearly
    always. The first layer, of given weights in law, makes the means of the tokens visible. Larger
    positions are rejected.
    """
    embedding, kind, width = EMBEDDINGS[name]
    block = sa.Normalised(sa.ShapedMLP(0.5, skip=1.0), "before", kind, eps=0.1)
    x = torch.from_numpy(embedded(embedding, IDS, width, 4000, 1))
    rng = np.random.default_rng(2)
    matrices = (torch.from_numpy(rng.normal(size=(4000, width, width))) for _ in range(2))
    after = block.forward(at_depth(block, 0.0), x, lambda z, *_: z @ next(matrices))
    real = [(y @ y.mT / width).numpy() for y in (x, after)]

    def smallest(law):
        model = sa.Model("own", width, 1, block, law)
        found = sa.simulate_model(model, IDS, samples=4000, entropy=False, progress=False).V.values
        p = [
            stats.ks_2samp(found[k, :, a, b], v[:, a, b]).pvalue
            for k, v in enumerate(real)
            for a, b in [(0, 0), (0, 1), (0, 2), (1, 3), (3, 3)]
            if np.ptp(found[k, :, a, b]) > 1e-9
        ]
        return min(p) * len(p)

    assert smallest(embedding) > 1e-3
    assert smallest(replace(embedding, position_std=embedding.position_std + 0.5)) < 1e-6


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["rms", "layer"])
def test_chunks_and_threads_change_nothing(config):
    whole = run(config, IDS, samples=130)
    for chunk in (1, 64):
        assert_same(whole, run(config, IDS, samples=130, chunk=chunk))
    with threads(1):
        assert_same(whole, run(config, IDS, samples=130))


def test_torch_computes_the_same():
    whole = run(GPT2, IDS)
    with sa.eager():
        again = run(GPT2, IDS)
    np.testing.assert_allclose(again.V.values, whole.V.values, rtol=1e-9)
    np.testing.assert_allclose(again.V_final.values, whole.V_final.values, rtol=1e-9)
    entropy = whole.attention_entropy.values
    np.testing.assert_allclose(again.attention_entropy.values, entropy, rtol=1e-8, atol=1e-12)


def test_observables_are_kept():
    whole = run(LLAMA, 3)
    kept = run(LLAMA, 3, keep="observables")
    expected = sa.observables(whole.V.values[2])
    for name, values in expected.items():
        found = kept.kept.sel(observable=name).values[2]
        np.testing.assert_allclose(found, values, rtol=1e-12, err_msg=name)


def test_a_given_covariance():
    """V_0 is where it starts; the mean of a matrix per sample, too."""
    v0 = sa.equicorrelated(3, 0.5, scale=0.01)
    for config in (LLAMA, GPT2):
        np.testing.assert_allclose(run(config, v0).V.values[0], np.tile(v0, (20, 1, 1)), rtol=1e-12)
    each = np.stack([v0 * (k + 1) for k in range(20)])
    np.testing.assert_allclose(run(LLAMA, each).V.values[0], each, rtol=1e-12)


def test_a_result_is_saved_and_made_again(tmp_path):
    result = run(GPT2, np.array(IDS))
    assert result.attrs["function"] == "shaped_attention:simulate_model"
    sa.save(result, tmp_path / "model.nc")
    again = sa.rerun(sa.load(tmp_path / "model.nc"))
    xr.testing.assert_identical(again, result)
    other = sa.rerun(result, seed=1)
    assert not np.array_equal(other.V.values, result.V.values)


def test_a_changed_model_is_recorded_as_it_is():
    """Not by the configuration that it no longer agrees with."""
    changed = replace(sa.model_from_config(LLAMA), depth=2)
    result = run(changed, 3)
    assert sa.specification(result)["model"]["depth"] == 2
    xr.testing.assert_identical(sa.rerun(result), result)
    assert "dict" in sa.specification(run(LLAMA, 3))["model"]


PADDED = LLAMA | {"pad_token_id": 0}


@pytest.mark.parametrize(
    ("config", "tokens", "message"),
    [
        (LLAMA, [1, 100], r"tokens must be ids in \[0, 99\]; got 100"),
        (PADDED, [0, 1], "tokens must be ids other than that of padding, .*; got 0"),
        (GPT2, 65, r"tokens must be at most 64, the number of positions .* n_positions\); got 65"),
        (LLAMA, np.eye(33), "width must be at least 33 for tokens of rank 33; got 32$"),
    ],
)
def test_tokens_are_refused(config, tokens, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        run(config, tokens)


def test_entropies_need_heads_at_the_start_of_every_layer():
    model = sa.Model("own", 8, 3, sa.ShapedMLP(0.5), sa.Embedding(9, 1.0))
    with pytest.raises(ValueError, match="layer 1 of own begins with 0 heads of attention, but"):
        run(model, 3)
    assert "attention_entropy" not in run(model, 3, entropy=False)
