"""The table of a comparison, laid out for a terminal."""

from __future__ import annotations

import pytest

from shaped_attention.statistics.comparison_text import format_comparison, verdict
from tests.test_compare import made, quick


@pytest.mark.parametrize(("tokens", "samples"), [(1, 8), (3, 300), (8, 50), (40, 45)])
def test_format_is_readable(tokens: int, samples: int) -> None:
    table = quick(made(1, samples, tokens), made(2, samples, tokens, scale=1e4, stopped=0.2))
    lines = format_comparison(table).splitlines()
    assert max(map(len, lines)) <= 110
    assert len(lines) < 45
    assert sum(line.endswith(" *") for line in lines) > 0 or samples < 10
    text = "\n".join(lines)
    assert " ".join(text.split()).endswith(table.attrs["verdict"])
    assert "log largest eig." in text
    assert f"p = {float(table['joint_p_value']):.3g}" in text
    if tokens == 8:
        shown = [line.split()[0] for line in lines if line.startswith("rho[")]
        pairs = table.isel(observable=table["observable"].str.startswith("rho"))
        hidden = pairs.drop_sel(observable=shown)
        assert len(shown) == 8
        assert float(pairs.sel(observable=shown)["ks"].min()) >= float(hidden["ks"].max())
        assert "and 20 more rho: KS at most" in text


def test_a_difference_that_only_the_joint_test_sees_is_put_into_proportion() -> None:
    """Of equal laws one comparison in twenty looks like this."""
    table = quick(made(1), made(2))
    assert not table["resolved"].any()
    assert "end like this by chance" not in verdict(table)
    text = verdict(table.assign(joint_p_value=0.01))
    assert text.startswith("Different, in the joint law: ")
    assert "0.05 of all comparisons end like this by chance" in text


def test_format_shows_the_numbers_of_the_table() -> None:
    table = quick(made(1), made(2, scale=2.0))
    row = table.sel(observable="log trace V")
    line = next(s for s in format_comparison(table).splitlines() if s.startswith("log trace V"))
    ks, low, high = (float(row[k]) for k in ("ks", "ks_low", "ks_high"))
    assert f" {ks:.3f} [{low:.3f},{high:.3f}] " in line
    w, low, high = (float(row[f"wasserstein{k}"]) for k in ("", "_low", "_high"))
    assert f" {w:.3f} [{low:.3f},{high:.3f}] " in line
    assert f"{float(row['median_second']):6.3f} [" in line
    assert line.endswith(f"{float(row['energy']):.3f}  *")
