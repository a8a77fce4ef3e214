"""The command `model`: tables, verdicts and figures from configurations."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from shaped_attention import load
from shaped_attention.architectures.layer_summary import model_summary
from shaped_attention.architectures.verdict import summary_table, verdict
from shaped_attention.commands.main import main
from shaped_attention.models.simulate import simulate_model

LLAMA = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 8, "vocab_size": 90,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 2, "vocab_size": 50,
    "n_positions": 40,
}  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch, undrawn):
    """Run the command in a folder with two configurations, with few tokens and samples."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "llama.json").write_text(json.dumps(LLAMA))
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(GPT2))
    few = ("--tokens", "5", "--samples", "4", "--forward-only")

    def invoke(*arguments, few=few):
        return CliRunner().invoke(main, ["model", *arguments, *few])

    return invoke


def flat(text):
    return " ".join(text.split())


def test_the_table_and_the_verdict_are_those_of_the_library(run, tmp_path):
    result = run("llama.json", "--seed", "3", "--results", "data")
    assert result.exit_code == 0, result.output
    expected = model_summary(simulate_model(LLAMA, 5, samples=4, seed=3, progress=False))
    assert summary_table(expected) in result.output
    assert verdict(expected) in flat(result.output)
    assert "llama: llama, 2 layers of width 16; 5 tokens, 4 samples" in result.output
    stored = load(tmp_path / "data" / "model-llama.nc")
    assert model_summary(stored)["cosine"].identical(expected["cosine"])
    assert [path.name for path in tmp_path.rglob("*.png")] == []


def test_two_models_have_two_tables_and_a_comparison(run, tmp_path):
    result = run("llama.json", "gpt2", "--results", "data")
    assert result.exit_code == 0, result.output
    tables = [line for line in result.output.splitlines() if line.startswith("layer ")]
    assert len(tables) == 2
    assert "\nllama and gpt2\nThe effective rank after the last layer is" in result.output
    data = {path.name for path in (tmp_path / "data").iterdir()}
    assert data == {"model-llama.nc", "model-gpt2.nc"}


def test_two_recipes_are_compared(run):
    two = ("--init", "library", "--init", "torchtitan")
    compared = run("llama.json", *two, "--accept-approximation")
    assert "\nllama, library and llama, torchtitan\nThe effective rank" in compared.output
    described = run("llama.json", *two, "--describe").output
    assert "0.02/sqrt(2*(l+1)) = 0.01 to 0.0141: self_attn.o_proj, mlp.up_proj" in described
    assert "not Gaussian" in run("llama.json", "--init", "torchtitan").stderr
    assert "--init can be given twice for one" in run("llama.json", *two, "--init", "gpt2").stderr


@pytest.mark.parametrize("ids", ["3,4,3", "ids.txt"])
def test_ids_of_tokens(run, tmp_path, ids):
    """As a list, and from a file; equal ids are equal tokens, at cosine 1 in the embedding."""
    (tmp_path / "ids.txt").write_text("3, 4\n3")
    result = run(
        "llama.json", "--ids", ids, few=("--samples", "4", "--forward-only", "--results", "data")
    )
    assert result.exit_code == 0, result.output
    assert "3 tokens" in result.output
    expected = model_summary(
        simulate_model(LLAMA, [3, 4, 3], samples=4, progress=False)
    )["cosine"]  # fmt: skip
    assert model_summary(load(tmp_path / "data" / "model-llama.nc"))["cosine"].identical(expected)


BAD = {
    "contradiction": (
        ("gpt2", "--targets", "1,2,3,4,5", "--forward-only"),
        "--targets and --forward-only cannot be used together",
    ),
    "a letter": (("gpt2", "--ids", "1,x"), "or a file that contains integers; got '1,x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_draws_nothing(run, name, tmp_path):
    options, message = BAD[name]
    tokens = () if "--ids" in options else ("--tokens", "5")
    result = run(*options, few=(*tokens, "--samples", "4"))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    error = result.stderr[result.stderr.index("Error:") :].strip()
    assert len(error.splitlines()) == 1
    assert not any(path.suffix in (".png", ".nc") for path in tmp_path.rglob("*"))
