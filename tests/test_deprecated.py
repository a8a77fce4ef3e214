"""Old public names work, warn, and name what replaces them; the documentation lists all of them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import shaped_attention as sa
from shaped_attention.deprecated import OLD_MODULES, OLD_NAMES, renamed_arguments
from shaped_attention.trust import function_named, imported

PAGE = Path(__file__).parents[1] / "docs" / "deprecations.md"
CASES = [(module, name) for module, names in OLD_NAMES.items() for name in names]


@pytest.mark.quick
@pytest.mark.parametrize(("module", "name"), CASES)
def test_an_old_name_warns_and_names_the_new_one(module, name):
    place = importlib.import_module(module)
    assert name not in place.__all__
    text = f"^{re.escape(module)}.{name} is deprecated; use "
    with pytest.warns(DeprecationWarning, match=text) as warned:
        assert getattr(place, name) is not None
    # Python shows it in `__main__`, and pytest in tests, only if it is at the user's line.
    assert warned[0].filename == __file__


def test_the_page_lists_all_old_names():
    rows = re.findall(r"^\| `sa\.([\w.]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    listed = {name: new for name, new in rows}
    expected = {
        f"{module}.{name}".removeprefix("shaped_attention."): instead
        for module, names in OLD_NAMES.items()
        for name, (_, instead) in names.items()
    }
    assert listed.keys() == expected.keys()
    for name, instead in expected.items():
        assert instead in listed[name].replace("`", ""), name


def test_an_old_module_is_found_in_files_and_arguments():
    """Both ways in which "module:name" is looked up, a module and one of a package."""
    summary = importlib.import_module(OLD_MODULES["shaped_attention.architectures.table"])
    with pytest.warns(DeprecationWarning, match="^the module .*table is now .*layer_summary$"):
        found = function_named("shaped_attention.architectures.table:layer_numbers", "keep")
    assert found is summary.layer_numbers
    with pytest.warns(DeprecationWarning, match="is now shaped_attention.torch_models.scores$"):
        found = imported("function", "shaped_attention.models.scores:score_form", callable, "")
    assert found is sa.scores.score_form
    page = PAGE.read_text()
    assert all(f"`{name}`" in page for names in OLD_MODULES.items() for name in names)


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        sa.no_such_name  # noqa: B018


def test_old_names_of_arguments():
    @renamed_arguments(observe="keep")
    def run(keep: str = "V") -> str:
        return keep

    with pytest.warns(
        DeprecationWarning, match="^run: the argument observe is deprecated; use keep"
    ) as warned:
        assert run(observe="rho") == "rho"
    assert warned[0].filename == __file__
    with (
        pytest.warns(DeprecationWarning, match="use keep"),
        pytest.raises(TypeError, match="both observe and keep"),
    ):
        run(observe="rho", keep="V")
    assert run("V") == "V"
