"""Figures show what results hold, in new Figures or in Axes that are given."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import shaped_attention as sa
from shaped_attention import plots
from shaped_attention.commands.study import common_times, most_correlated_pair
from shaped_attention.figures.labels import observable_label
from shaped_attention.statistics.density import observable_names
from tests.public_calls import CONFIG

V0, BLOCK = sa.equicorrelated(3, 0.2), sa.ShapedAttention(0.6, 0.5)


@pytest.fixture(scope="module")
def results():
    return {
        "chain": sa.simulate_chain(BLOCK, V0, width=20, depth=10, samples=40, save_every=2),
        "SDE": sa.integrate_sde(BLOCK, V0, horizon=0.5, step=0.1, samples=50, save_every=1),
    }


@pytest.mark.parametrize(
    ("width", "depth", "step"), [(200, 150, 0.01), (512, 512, 0.125), (7, 7, 1 / 7)]
)
def test_common_times_lie_on_both_grids(width, depth, step):
    times = np.array(common_times(width, depth, step))
    assert times[0] == 0.0
    assert times[-1] == pytest.approx(depth / width)
    assert 2 < len(times) <= 31
    for grid in (1 / width, step):
        np.testing.assert_allclose(times / grid, np.rint(times / grid), atol=1e-6)
    assert common_times(100, 77, 0.77) == [0.0, 0.77]


def test_most_correlated_pair():
    v = np.array([[1.0, 0.1, -0.9], [0.1, 1.0, 0.2], [-0.9, 0.2, 4.0]])
    v[0, 1] = v[1, 0] = -0.95
    assert most_correlated_pair(v) == (0, 1)
    assert most_correlated_pair(np.ones((1, 1))) == (0, 0)


@pytest.mark.parametrize("function", [plots.trajectories, plots.densities])
def test_figures_say_what_they_show(function, results):
    figure = function(results, pair=(1, 2), labels=["a", "b", "c"], title="a title")
    labels = [axis.get_xlabel() + axis.get_ylabel() for axis in figure.axes]
    assert len(labels) == 3
    assert "log V_{1,1}" in labels[0]
    assert "“b”" in labels[0]
    assert "rho_{1,2}" in labels[1]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "chain (40 samples)", "SDE (50 samples)"
    ]  # fmt: skip
    assert "a title" in figure.get_suptitle()


def test_band_edges_are_quantiles(results):
    axis = plots.trajectories(results, pair=(0, 1)).axes[0]
    values = np.log(results["chain"].V.values[:, :, 0, 0])
    lines = [line.get_ydata() for line in axis.lines[:3]]
    expected = [np.quantile(values, q, axis=1) for q in (0.5, 0.05, 0.95)]
    np.testing.assert_allclose(lines, expected, rtol=1e-12, atol=1e-12)


def test_densities_are_those_of_the_density_function(results):
    """Line and band, of a kernel estimate and a histogram, at the time that is asked for."""
    shown = {"observables": "rho[0,2]", "time": 0.3}
    (axis,) = plots.densities(results, confidence=0.9, bandwidth=0.2, **shown).axes
    window = axis.get_xlim()
    for line, band, result in zip(axis.lines, axis.collections, results.values(), strict=True):
        known = sa.density(
            result, "rho[0,2]", time=0.3, confidence=0.9, bandwidth=0.2, window=window
        )
        np.testing.assert_allclose(line.get_data(), [known["value"], known["density"]], rtol=1e-9)
        edge = band.get_paths()[0].vertices[:, 1]
        assert edge.max() == pytest.approx(float(known["upper"].max()))
    last = sa.density(result, "rho[0,2]", confidence=0.9, bandwidth=0.2, window=window)
    assert not np.allclose(line.get_ydata(), last["density"])
    (axis,) = plots.densities(results, bins=[-1.0, 0.0, 0.5, 1.0], **shown).axes
    drawn = [patch.get_data() for patch in axis.patches[1::2]]
    for steps, result in zip(drawn, results.values(), strict=True):
        known = sa.density(result, "rho[0,2]", time=0.3, bins=[-1.0, 0.0, 0.5, 1.0])
        np.testing.assert_array_equal(steps.values, known["density"])


def test_equal_values_are_a_line(results):
    """At time 0 no observable has a density."""
    (axis,) = plots.densities(results, observables="rho[0,1]", time=0.0).axes
    assert [list(line.get_xdata()) for line in axis.lines] == [pytest.approx([0.2, 0.2])] * 2


TABLE = {
    "trajectories": lambda results: results,
    "densities": lambda results: results,
    "model_layers": lambda _: sa.simulate_model(CONFIG, 3, samples=4),
    "coordinates": lambda _: sa.coordinate_check(CONFIG, 2, widths=[16, 32, 48], steps=1,
                                                 samples=2),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_a_figure_is_drawn_into_given_axes(name, results):
    """As many as it has panels: all hold data, and the rest of the figure is left alone."""
    assert {*TABLE} == {*plots.__all__} - {"COLORS", "LINES", "styled"}
    draw, data = getattr(plots, name), TABLE[name](results)
    new = draw(data, title="new")
    assert isinstance(new, Figure)
    panels = [a for a in new.axes if a.get_visible() and a.get_label() != "<colorbar>"]
    given = Figure().subplots(1, len(panels), squeeze=False)
    ax = given[0, 0] if len(panels) == 1 else given
    with mpl.rc_context():
        before = dict(mpl.rcParams)
        assert draw(data, title="given", ax=ax) is ax
        assert dict(mpl.rcParams) == before
    assert given[0, 0].figure.legends == []
    assert given[0, 0].get_title().startswith("given")
    for axis, known in zip(given.ravel(), panels, strict=True):
        assert axis.has_data()
        assert len(axis.lines) == len(known.lines)
    too_many = list(Figure().subplots(1, len(panels) + 1))
    with pytest.raises(ValueError, match=rf"^ax must have one Axes .*; got {len(panels) + 1}$"):
        draw(data, ax=too_many)


def test_every_observable_has_a_symbol():
    assert observable_label("log V[1,1]", ["a", "b"]) == r"$\log V_{1,1}$   (“b”)"
    for name in observable_names(3):
        assert "$" in observable_label(name), name


def test_bad_arguments(results):
    with pytest.raises(ValueError, match=r"^pair must be two tokens in \[0, 2\]; got \(0, 3\)"):
        plots.densities(results, pair=(0, 3))
    with pytest.raises(ValueError, match=r"^results must be a result, a list of results"):
        plots.trajectories([])
