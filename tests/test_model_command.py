"""The command `model`: tables, verdicts and figures from configurations."""

from __future__ import annotations

import json
import sys

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


@pytest.mark.parametrize(
    "arguments",
    [
        ("model", "llama.json", "--tokens", "5", "--figure", "model.png"),
        ("compare", "--tokens", "2", "--width", "20", "--depth", "10", "--step", "0.05",
         "--samples", "200", "--network-samples", "50"),
    ],
)  # fmt: skip
def test_without_matplotlib_only_the_figure_is_missing(run, monkeypatch, arguments):
    for name in [x for x in sys.modules if x.partition(".")[0] in ("matplotlib", "seaborn")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("matplotlib", "seaborn"):
        monkeypatch.setitem(sys.modules, name, None)
    figures = __import__("shaped_attention.figures").figures
    for name in ("plots", "panels"):
        monkeypatch.delitem(sys.modules, f"shaped_attention.figures.{name}", raising=False)
        monkeypatch.delitem(vars(figures), name, raising=False)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert last.startswith("no figure: ")
    assert "the extra `figures` installs it" in last
    expected = "Norms stay" if arguments[0] == "model" else "comparison.json"
    assert expected in result.output


def test_two_models_have_two_tables_and_a_comparison(run, tmp_path):
    result = run("llama.json", "gpt2", "--results", "data")
    assert result.exit_code == 0, result.output
    tables = [line for line in result.output.splitlines() if line.startswith("layer ")]
    assert len(tables) == 2
    assert "\nllama and gpt2\nThe effective rank after the last layer is" in result.output
    data = {path.name for path in (tmp_path / "data").iterdir()}
    assert data == {"model-llama.nc", "model-gpt2.nc"}
    twice = run("llama.json", "llama.json", "--set", "num_hidden_layers=3")
    assert twice.exit_code == 0, twice.output
    assert "llama and llama (llama.json)" in twice.output


def test_fields_are_set(run):
    result = run("llama.json", "--set", "num_hidden_layers=30", "--set", "hidden_act=gelu")
    assert result.exit_code == 0, result.output
    assert "30 layers of width 16" in result.output
    table = result.output.partition("layer ")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in table][::5] == ["0", "10", "20", "30"]
    every = run("llama.json", "--set", "num_hidden_layers=30", "--every", "15")
    table = every.output.partition("layer ")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[0] for line in table] == ["0", "15", "30"]


def test_two_recipes_are_compared(run):
    two = ("--init", "library", "--init", "torchtitan")
    compared = run("llama.json", *two, "--accept-approximation")
    assert "\nllama, library and llama, torchtitan\nThe effective rank" in compared.output
    described = run("llama.json", *two, "--describe").output
    assert "0.02/sqrt(2*(l+1)) = 0.01 to 0.0141: self_attn.o_proj, mlp.up_proj" in described
    assert "not Gaussian" in run("llama.json", "--init", "torchtitan").stderr
    assert "--init can be given twice for one" in run("llama.json", *two, "--init", "gpt2").stderr


def test_files_of_an_earlier_command_are_not_replaced(run, tmp_path):
    """--overwrite replaces them; without --figure and --results nothing is written."""
    both = ("--figure", "a/model.png", "--results", "data")
    assert run("llama.json", *both).exit_code == 0
    figure = (tmp_path / "a" / "model.png").read_bytes()
    for options, place, how in (
        (both[:2], "a/model.png", "another --figure"),
        (both[2:], "data/model-llama.nc", "another folder with --results"),
    ):
        refused = run("llama.json", "--seed", "1", *options)
        assert refused.exit_code == 2
        known = f"Error: {place} exists; choose {how}, or --overwrite"
        assert refused.stderr.strip().endswith(known)
        assert not refused.stdout
    assert run("llama.json", "--seed", "1", *both, "--overwrite").exit_code == 0
    assert (tmp_path / "a" / "model.png").read_bytes() != figure
    assert run("llama.json").exit_code == 0


def test_names_of_files_are_plain_words(run, tmp_path):
    """Names of models may be paths, and values of fields JSON."""
    for family, config in (("gpt2", GPT2), ("llama", LLAMA)):
        named = config | {"_name_or_path": f"some/{family}"}
        (tmp_path / f"{family}.json").write_text(json.dumps(named))
    change = 'rope_scaling={"rope_type": "linear", "factor": 2.0}'
    assert run("gpt2.json", "llama.json", "--results", "data").exit_code == 0
    changed = run("llama.json", "--set", change, "--results", "data")
    assert changed.exit_code == 0, changed.output
    assert {path.name for path in (tmp_path / "data").iterdir()} == {
        "model-some_gpt2.nc",
        "model-some_llama.nc",
        "model-some_llama-rope_scaling=_rope_type_linear_factor_2.0.nc",
    }


def test_entropies_can_be_left_out(run):
    assert "entropy, %" in run("llama.json").output
    without = run("llama.json", "--no-entropy", "--overwrite")
    assert without.exit_code == 0, without.output
    assert "ntropy" not in without.output


@pytest.mark.parametrize("ids", ["3,4,3", "[3, 4, 3]", "ids.txt"])
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


def test_lists_that_follow_the_depth_are_reported(run, tmp_path):
    types = ["sliding_attention", "full_attention"] * 2
    fields = {"model_type": "gemma2", "num_hidden_layers": 4, "layer_types": types, "head_dim": 8,
              "num_key_value_heads": 2}  # fmt: skip
    (tmp_path / "gemma.json").write_text(json.dumps(LLAMA | fields))
    result = run("gemma.json", "--set", "num_hidden_layers=6")
    assert result.exit_code == 0, result.output
    assert "gemma: gemma2, 6 layers of width 16; 5 tokens, 4 samples\n" in result.output
    assert "\nadapted: layer_types with period 2 continued from 4 to 6 layers\n" in result.output


@pytest.mark.parametrize("tokens", [("--tokens", "1"), ("--ids", "7")])
def test_a_single_token_has_a_size_alone(run, tokens):
    result = run("llama.json", few=(*tokens, "--samples", "4", "--forward-only"))
    assert result.exit_code == 0, result.output
    assert "1 token, 4 samples" in result.output
    assert "Rank" not in result.output
    assert "oot mean square" in result.output


def test_what_was_understood_is_described(run, tmp_path):
    result = run("llama.json", "gpt2", "--describe")
    assert result.exit_code == 0, result.output
    assert "llama: llama, 2 layers of width 16" in result.output
    assert "gpt2: gpt2, 3 layers of width 16" in result.output
    assert "model_type=" not in result.output
    neox = run("pythia-6.9b", "--describe")
    assert "without influence on the tokens: max_position_embeddings=2048\n" in neox.output
    assert "layer  mean cosine" not in result.output


BAD = {
    "no configuration": ((), "CONFIG must be given once or twice; got 0"),
    "missing file": (("none.json",), "none.json"),
    "no value": (("gpt2", "--set", "n_layer"), "--set must be FIELD=VALUE; got 'n_layer'"),
    "unknown field": (
        ("llama.json", "--set", "num_hiden_layers=3"),
        "config has num_hiden_layers=3, which the description of this family does not cover (did "
        "you mean 'num_hidden_layers'?)",
    ),
    "both": (("gpt2", "--ids", "1,2"), "--ids and --tokens cannot be used together"),
    "positions": (("gpt2", "--tokens", "45"), "tokens must be at most 40, the number"),
    "every": (("gpt2", "--every", "0"), "every must be an integer >= 1; got 0"),
    "results": (("gpt2", "--results", "llama.json/x"), "results='llama.json/x'"),
    "targets": (("gpt2", "--targets", "1,2"), "targets must be 'next', or 5 token ids, one for"),
    "large target": (("gpt2", "--targets", "1,2,3,4,50"), "targets must be ids in [0, 49]; got 50"),
    "contradiction": (
        ("gpt2", "--targets", "1,2,3,4,5", "--forward-only"),
        "--targets and --forward-only cannot be used together",
    ),
    "large id": (("gpt2", "--ids", "1,99"), "tokens must be ids in [0, 49]; got 99"),
    "no ids": (
        ("gpt2", "--ids", "none.txt"),
        "--ids must be a comma-separated list of integers, or a ",
    ),
    "a letter": (("gpt2", "--ids", "1,x"), "or a file that contains integers; got '1,x'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_draws_nothing(run, name, tmp_path):
    options, message = BAD[name]
    tokens = () if {"--tokens", "--ids"} & {*options} and name != "both" else ("--tokens", "5")
    result = run(*options, few=(*tokens, "--samples", "4"))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    error = result.stderr[result.stderr.index("Error:") :].strip()
    assert len(error.splitlines()) == 1
    assert not any(path.suffix in (".png", ".nc") for path in tmp_path.rglob("*"))


def test_shipped_configurations_are_listed_and_run(run):
    listed = run("--list", few=()).output.splitlines()
    assert len(listed) == 10
    assert "gpt2" in listed
    result = run("gpt2", "--describe", "--set", "n_layer=2", few=())
    assert result.exit_code == 0, result.output
