"""What is no configuration: other objects, classes, files that are missing or invalid, names."""

from __future__ import annotations

import pytest

import shaped_attention as sa
from tests.test_configurations import LLAMA


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "paligemma", "text_config": LLAMA},
            "config has model_type='paligemma' around a text_config, which is not covered; "
            "its text_config, as a configuration of its own, is needed",
        ),
        (
            {"model_type": "llava", "text_config": 3},
            "config has model_type='llava' and text_config=3; an object with the fields of "
            "the text model is needed",
        ),
        (3, r"config is of the type int; .*"),
        (
            "Llama-3.1-70B",
            r"config='Llama-3.1-70B': one of bert-large, .*, the path of a config\.json is "
            r"needed \(did you mean 'llama-3\.1-70b'\?\)",
        ),
    ],
)
def test_what_is_no_configuration(config, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        sa.model_from_config(config)


def test_files_that_are_missing_or_invalid(tmp_path):
    def refused(error, path, content=None):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(error) as info:
            sa.model_from_config(path)
        return str(info.value).replace(str(tmp_path), "X")

    file = tmp_path / "config.json"
    no_file = "config='X/none.json': there is no such file; a config.json is needed"
    assert refused(FileNotFoundError, tmp_path / "none.json") == no_file
    no_config = "config='X': the folder has no config.json; a folder with one is needed"
    assert refused(FileNotFoundError, tmp_path) == no_config
    start = "config='X/config.json': a JSON file is needed ("
    assert refused(ValueError, file, b"{").startswith(start)
    assert refused(ValueError, file, b"\xff\xfe\x00").startswith(start)
    a_list = "config='X/config.json': a file with a JSON object is needed"
    assert refused(ValueError, file, b"[]") == a_list


def test_a_class_is_no_configuration():
    """The class itself has the method `to_dict` too."""
    transformers = pytest.importorskip("transformers")
    message = (
        "^config is the class LlamaConfig; an object of it, such as LlamaConfig\\(\\), is needed$"
    )
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(transformers.LlamaConfig)
    with pytest.raises(ValueError, match=r"^model is the class GPT2Model; a configuration"):
        sa.describe(transformers.GPT2Model)


@pytest.mark.parametrize("installed", [True, False])
def test_names_of_a_hub_are_not_downloaded(monkeypatch, installed):
    """The sentence names the call that gets the configuration, and the installation if needed."""
    name = "meta-llama/Llama-3.1-8B"
    monkeypatch.setattr(
        "shaped_attention.architectures.config_files.importlib.util.find_spec",
        lambda module: object() if installed else None,
    )
    with pytest.raises(FileNotFoundError) as info:
        sa.model_from_config(name)
    expected = (
        f"config={name!r}: there is no such folder, and nothing is downloaded; the object "
        f"transformers.AutoConfig.from_pretrained({name!r}) is needed"
    )
    if not installed:
        expected += "; pip install 'shaped-attention[trained]' installs it"
    assert str(info.value) == expected
