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
            "its text_config may be, as a configuration by itself",
        ),
        (
            {"model_type": "llava", "text_config": 3},
            "config.text_config must be an object with the fields of the text model; got 3",
        ),
        (3, "config must be a configuration with to_dict, .*; got 3"),
        (
            "Llama-3.1-70B",
            r"config='Llama-3.1-70B' is no configuration; choose one of bert-large, .*, the path "
            r"of a config\.json \(did you mean 'llama-3\.1-70b'\?\)",
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
    no_file = "config='X/none.json' does not exist; it must be a config.json"
    assert refused(FileNotFoundError, tmp_path / "none.json") == no_file
    no_config = "config='X' is a folder without a config.json"
    assert refused(FileNotFoundError, tmp_path) == no_config
    start = "config='X/config.json' is not a JSON file ("
    assert refused(ValueError, file, b"{").startswith(start)
    assert refused(ValueError, file, b"\xff\xfe\x00").startswith(start)
    a_list = "config='X/config.json' is a JSON file without an object"
    assert refused(ValueError, file, b"[]") == a_list


def test_a_class_is_no_configuration():
    """The class itself has the method `to_dict` too."""
    transformers = pytest.importorskip("transformers")
    message = r"^config must be an object of the class, such as LlamaConfig\(\); got <class"
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(transformers.LlamaConfig)
    with pytest.raises(ValueError, match=r"^model must be a configuration .*; got <class"):
        sa.describe(transformers.GPT2Model)


@pytest.mark.parametrize("installed", [True, False])
def test_names_of_a_hub_are_not_downloaded(monkeypatch, installed):
    """The sentence names the call that gets the configuration, and the installation if needed."""
    name = "meta-llama/Llama-3.1-8B"
    monkeypatch.setattr(
        "shaped_attention.architectures.configurations.importlib.util.find_spec",
        lambda module: object() if installed else None,
    )
    with pytest.raises(FileNotFoundError) as info:
        sa.model_from_config(name)
    expected = (
        f"config={name!r} is no folder, and nothing is downloaded; give the object "
        f"transformers.AutoConfig.from_pretrained({name!r})"
    )
    if not installed:
        expected += "; pip install 'shaped-attention[trained]' installs it"
    assert str(info.value) == expected
