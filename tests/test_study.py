"""Times that two grids share, the pair that is drawn, and the figures."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import rcParams

from shaped_attention import (
    ShapedAttention,
    density,
    equicorrelated,
    integrate_sde,
    observables,
    plots,
    simulate_chain,
)
from shaped_attention.commands.options import save_png
from shaped_attention.commands.study import common_times, most_correlated_pair


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


def test_grids_that_never_meet_share_the_ends():
    assert common_times(100, 77, 0.77) == [0.0, 0.77]
    assert common_times(7, 3, 0.3 / 7) == pytest.approx([0.0, 3 / 7])


def test_most_correlated_pair():
    v = np.array([[1.0, 0.1, -0.9], [0.1, 1.0, 0.2], [-0.9, 0.2, 4.0]])
    assert most_correlated_pair(v) == (0, 1) or most_correlated_pair(v) == (0, 2)
    v[0, 1] = v[1, 0] = -0.95
    assert most_correlated_pair(v) == (0, 1)
    assert most_correlated_pair(np.ones((1, 1))) == (0, 0)


@pytest.fixture(scope="module")
def results():
    v0, block = equicorrelated(3, 0.2), ShapedAttention(0.6, 0.5)
    return {
        "chain": simulate_chain(block, v0, width=20, depth=10, samples=40, save_every=2),
        "SDE": integrate_sde(block, v0, horizon=0.5, step=0.1, samples=50, save_every=1),
    }


@pytest.mark.parametrize("function", [plots.trajectories, plots.densities])
def test_figures_say_what_they_show(function, results):
    before = {key: value for key, value in rcParams.items() if key != "backend"}
    figure = function(results, pair=(1, 2), labels=["a", "b", "c"], title="a title")
    assert {key: rcParams[key] for key in before} == before
    labels = [axis.get_xlabel() + axis.get_ylabel() for axis in figure.axes]
    assert len(labels) == 3
    assert "log V_{1,1}" in labels[0]
    assert "“b”" in labels[0]
    assert "rho_{1,2}" in labels[1]
    assert "det" in labels[2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "chain (40 samples)", "SDE (50 samples)"
    ]  # fmt: skip
    assert "a title" in figure.get_suptitle()


def test_band_edges_are_quantiles(results):
    figure = plots.trajectories(results, pair=(0, 1))
    axis = figure.axes[0]
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
        known = density(result, "rho[0,2]", time=0.3, confidence=0.9, bandwidth=0.2, window=window)
        np.testing.assert_allclose(line.get_data(), [known["value"], known["density"]], rtol=1e-9)
        edge = band.get_paths()[0].vertices[:, 1]
        assert edge.max() == pytest.approx(float(known["upper"].max()))
    last = density(result, "rho[0,2]", confidence=0.9, bandwidth=0.2, window=window)
    assert not np.allclose(line.get_ydata(), last["density"])
    (axis,) = plots.densities(results, bins=[-1.0, 0.0, 0.5, 1.0], **shown).axes
    drawn = [patch.get_data() for patch in axis.patches[1::2]]
    for steps, result in zip(drawn, results.values(), strict=True):
        known = density(result, "rho[0,2]", time=0.3, bins=[-1.0, 0.0, 0.5, 1.0])
        np.testing.assert_array_equal(steps.values, known["density"])
    assert "at $t$ = 0.3; bands: pointwise 95 %" in axis.figure.get_suptitle()


def test_results_may_have_no_names_and_observables_any(results):
    """One panel for each name; lists are named after their samplers."""
    figure = plots.trajectories(results["SDE"], observables=["mean |rho|", "effective rank"])
    assert [axis.get_ylabel() for axis in figure.axes] == [
        r"mean $|\rho|$",
        "effective rank of $V$",
    ]
    medians = np.median(observables(results["SDE"].V.values[-1])["effective rank"])
    assert figure.axes[1].lines[0].get_ydata()[-1] == medians
    both = plots.densities([results["chain"], results["chain"]], observables="log trace V")
    names = [text.get_text() for text in both.legends[0].get_texts()]
    assert names == ["chain (40 samples)", "chain 1 (40 samples)"]
    assert both.axes[0].get_xlim()[0] < 0.0


def test_equal_values_are_a_line(results):
    """At time 0 no observable has a density."""
    (axis,) = plots.densities(results, observables="rho[0,1]", time=0.0).axes
    assert [list(line.get_xdata()) for line in axis.lines] == [pytest.approx([0.2, 0.2])] * 2


def test_different_last_times_are_in_the_legend(results):
    shorter = results["SDE"].isel(time=slice(0, 3))
    figure = plots.densities({"a": results["SDE"], "b": shorter}, observables="log det V")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["a (50 samples, t = 0.5)", "b (50 samples, t = 0.2)"]


def test_bad_arguments(results):
    with pytest.raises(ValueError, match=r"^pair must be two tokens in \[0, 2\]; got \(0, 3\)"):
        plots.densities(results, pair=(0, 3))
    for empty in ({}, [], 3):
        with pytest.raises(ValueError, match=r"^results must be a result, a list of results"):
            plots.trajectories(empty)
    with pytest.raises(
        ValueError, match=r"^results\[1\] must be an xarray.Dataset from a sampler; got 1"
    ):
        plots.trajectories([results["SDE"], 1])
    for function in (plots.trajectories, plots.densities):
        with pytest.raises(
            ValueError, match=r"^observables must be one of .*; got 'rho\[0,3\]' .* you mean 'rho"
        ):
            function(results, observables="rho[0,3]")
        with pytest.raises(ValueError, match=r"^observables must be at least one name; got \[\]"):
            function(results, observables=[])
    with pytest.raises(
        ValueError, match=r"^time must be one of those saved in results\['chain'\].*; got 0.15"
    ):
        plots.densities(results, time=0.15)


def test_figures_are_written_whole_or_not_at_all(results, tmp_path, monkeypatch):
    path = save_png(plots.densities(results), tmp_path / "new" / "one.png")
    first = path.read_bytes()
    assert first.startswith(b"\x89PNG")
    figure = plots.densities(results)
    save_png(figure, path)
    assert path.read_bytes() == first

    def broken(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(figure), "savefig", broken)
    with pytest.raises(ValueError, match="No space left"):
        save_png(figure, tmp_path / "other.png")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
