"""Every plotting function draws into Axes that are given as `ax`, and returns them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

import shaped_attention as sa
from shaped_attention import plots
from shaped_attention.figures.labels import observable_label
from shaped_attention.figures.panels import Panels, styled
from shaped_attention.statistics.density import observable_names
from tests.public_calls import CONFIG

V0, BLOCK = sa.equicorrelated(3, 0.2), sa.ShapedAttention(0.6, 0.5)


def modules() -> list[ModuleType]:
    package = importlib.import_module("shaped_attention.figures")
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def plotting_functions(module):
    """Its public functions that return what was drawn, by the annotation."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        returned = str(inspect.signature(function).return_annotation)
        own = function.__module__ == module.__name__ and not name.startswith("_")
        if own and returned in ("Drawn", "Figure", "dict[str, Figure]"):
            yield function


def without_ax(module):
    return {
        function.__name__
        for function in plotting_functions(module)
        if "ax" not in inspect.signature(function).parameters
    }


def test_every_plotting_function_has_ax():
    """Those of the table below are all of them; a function without is found."""
    found = {function for module in modules() for function in plotting_functions(module)}
    drawn = {draw.__name__ for draw, _ in TABLE.values()}
    assert {function.__name__ for function in found} == drawn
    assert not any(without_ax(module) for module in modules())
    wrong = ModuleType("wrong")
    source = "def draw(data, title=None) -> Figure:\n    pass\n"
    exec(source, wrong.__dict__)
    assert without_ax(wrong) == {"draw"}


def results():
    return {
        "chain": sa.simulate_chain(BLOCK, V0, width=20, depth=10, samples=40, save_every=2),
        "SDE": sa.integrate_sde(BLOCK, V0, horizon=0.5, step=0.1, samples=50, save_every=1),
    }


TABLE = {
    "trajectories": (plots.trajectories, results),
    "densities": (plots.densities, results),
    "model_layers": (plots.model_layers, lambda: sa.simulate_model(CONFIG, 3, samples=4)),
    "coordinates": (
        plots.coordinates,
        lambda: sa.coordinate_check(CONFIG, 2, widths=[16, 32, 48], steps=1, samples=2),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_a_figure_is_drawn_into_given_axes(name):
    """As many as it has panels: all hold data, and the rest of the figure is left alone.

    A Figure of its own has its title.
    """
    draw, make = TABLE[name]
    data = make()
    own = draw(data, title="of its own")
    assert isinstance(own, Figure)
    assert "of its own" in own.get_suptitle()
    panels = [a for a in own.axes if a.get_visible() and a.get_label() != "<colorbar>"]
    given = Figure().subplots(1, len(panels), squeeze=False)
    ax = given[0, 0] if len(panels) == 1 else given
    with mpl.rc_context():
        before = dict(mpl.rcParams)
        assert draw(data, title="given", ax=ax) is ax
        assert dict(mpl.rcParams) == before
    figure = given[0, 0].figure
    assert figure.get_suptitle() == ""
    assert figure.legends == []
    assert given[0, 0].get_title().startswith("given")
    for axis, known in zip(given.ravel(), panels, strict=True):
        assert axis.has_data()
        assert len(axis.lines) == len(known.lines)
        assert axis.get_xlabel()
    too_many = list(Figure().subplots(1, len(panels) + 1))
    with pytest.raises(ValueError, match=rf"^ax must have one Axes .*; got {len(panels) + 1}$"):
        draw(data, ax=too_many)


def test_the_message_names_the_panels():
    some = list(Figure().subplots(1, 2))
    message = "ax must have one Axes for each of log V[0,0], rho[0,1], log det V; got 2"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        plots.densities(results(), ax=some)
    with pytest.raises(ValueError, match=r"^ax must be matplotlib Axes; got 3"):
        plots.densities(results(), ax=3)


def test_given_axes_keep_their_style():
    """The package's style is for Figures of its own."""

    @styled
    def size(*, ax=None):
        return mpl.rcParams["font.size"], ax

    with mpl.rc_context({"font.size": 3.0}):
        assert size(ax=1)[0] == 3.0
        assert size()[0] != 3.0


def test_several_panels_are_lettered_and_given_axes_are_not():
    new = Panels(None, ["one", "two", "three"], (6.0, 2.0), 2)
    assert [axis.get_title(loc="left") for axis in new.axes] == ["(a)", "(b)", "(c)"]
    assert Panels(None, ["one"], (2.0, 2.0)).axes[0].get_title(loc="left") == ""
    axes = list(Figure().subplots(1, 2))
    assert [a.get_title(loc="left") for a in Panels(axes, "ab", (2, 2)).axes] == ["", ""]


def test_labels_are_those_of_one_table():
    """Symbols of observables."""
    assert observable_label("rho[0,2]") == r"$\rho_{0,2}$"
    assert observable_label("log V[1,1]", ["a", "b"]) == r"$\log V_{1,1}$   (“b”)"
    for name in observable_names(3):
        # Every name has a symbol, except where words say it.
        assert "$" in observable_label(name), name
