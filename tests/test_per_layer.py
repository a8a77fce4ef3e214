"""Lists with an entry for each layer, when the depth of a configuration is changed."""

from __future__ import annotations

import pytest

import shaped_attention as sa
from tests.test_configurations import LLAMA, attention, facts

FULL, SLIDING = "full_attention", "sliding_attention"
FAMILIES = {
    "gemma2": ({"sliding_window": 3}, {"layer_types": [SLIDING, FULL]}),
    "gemma3_text": ({"sliding_window": 3}, {"layer_types": [*[SLIDING] * 5, FULL]}),
    "cohere2": ({"sliding_window": 3, "rms_norm_eps": None},
                {"layer_types": [*[SLIDING] * 3, FULL]}),
    "modernbert": ({"local_attention": 6, "rms_norm_eps": None, "num_key_value_heads": None},
                   {"layer_types": [FULL, SLIDING, SLIDING]}),
    "exaone4": ({"sliding_window": 3}, {"layer_types": [*[SLIDING] * 3, FULL]}),
    "smollm3": ({"pad_token_id": 0}, {"layer_types": [FULL], "no_rope_layers": [1, 1, 1, 0]}),
    "qwen2": ({}, {"layer_types": [FULL]}),
}  # fmt: skip


def configuration(family, depth):
    """A configuration with lists of this depth, which repeat those of the table."""
    fields, lists = FAMILIES[family]
    full = {name: [x[k % len(x)] for k in range(depth)] for name, x in lists.items()}
    return LLAMA | fields | {"model_type": family, "num_hidden_layers": depth} | full


@pytest.mark.parametrize("depth", [5, 31])
@pytest.mark.parametrize("family", FAMILIES)
def test_periodic_lists_follow_the_depth(family, depth):
    """The lists have two periods and a part of a third; the model is that of longer lists."""
    changed = sa.model_from_config(configuration(family, 14), num_hidden_layers=depth)
    assert facts(changed) == facts(sa.model_from_config(configuration(family, depth)))
    for name, pattern in FAMILIES[family][1].items():
        assert changed.config[name] == configuration(family, depth)[name]
        verb = "continued" if depth > 14 else "cut"
        text = f"{name} with period {len(pattern)} {verb} from 14 to {depth} layers"
        assert text in changed.adapted
        assert f"adapted: {text}" in sa.describe(changed).splitlines()
    again = sa.model_from_config(changed.config)
    assert (again, again.adapted) == (changed, ())


def test_by_any_name_of_the_depth_and_in_a_text_part():
    """Windows in a Gemma 3 inside a model that reads images."""
    inner = configuration("gemma3_text", 12)
    outer = {"model_type": "gemma3", "text_config": inner}
    for config in (inner, outer):
        changed = sa.model_from_config(config, n_layer=18)
        masks = [attention(changed, k).mask for k in range(18)]
        assert masks == [*["causal:3"] * 5, "causal"] * 3
    assert sa.model_from_config(inner, num_hidden_layers=12).adapted == ()


@pytest.mark.parametrize(
    ("types", "depth"),
    [
        ([FULL] * 3 + [SLIDING], 8),
        ([SLIDING, FULL, FULL, SLIDING], 3),
        ([SLIDING, FULL, SLIDING], 5),
    ],
)
def test_lists_without_two_periods_are_refused(types, depth):
    """Windows that begin at some layer, in the first and the last layer, or in 3 layers alone."""
    config = configuration("gemma2", len(types)) | {"layer_types": types}
    message = (
        rf"^config has layer_types for {len(types)} layers, without a repeated pattern, but "
        rf"num_hidden_layers={depth}; give layer_types for {depth} layers, or layer_types=None "
        r"\(null\) for the family's default$"
    )
    with pytest.raises(ValueError, match=message):
        sa.model_from_config(config, num_hidden_layers=depth)
    given = sa.model_from_config(config, num_hidden_layers=2, layer_types=[FULL, FULL])
    assert [attention(given, k).mask for k in range(2)] == ["causal", "causal"]
    own = sa.model_from_config(config, num_hidden_layers=2, layer_types=None)
    assert [attention(own, k).mask for k in range(2)] == ["causal:3", "causal"]
