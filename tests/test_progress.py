"""Progress bars: one for each run, on the error stream, and none unless they are asked for."""

from __future__ import annotations

import sys

import pytest

import shaped_attention as sa

V0 = sa.equicorrelated(2, 0.2)
LAYER = [sa.ShapedAttention(0.5), sa.ShapedMLP(0.5)]

NETWORKS = {"width": 8, "depth": 2, "samples": 3}
CALLS = {
    "distances_by_width": lambda **p: sa.distances_by_width(LAYER, V0, [8, 16], samples=10, **p),
    "stopping_map": lambda **p: sa.stopping.stopping_map(
        V0, [0.5], [1.0, 2.0], width=8, step=0.125, samples=2, **p
    ),
    "simulate_chain": lambda **p: sa.simulate_chain(LAYER, V0, width=8, depth=2, samples=2, **p),
    "gradient_norms": lambda **p: sa.gradient_norms(LAYER, V0, **NETWORKS, **p),
    "simulate_training": lambda **p: sa.simulate_training(LAYER, V0, [0, 1], **NETWORKS, **p),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_bar_is_shown_if_asked_for(name, capsys, monkeypatch):
    """One label, that is one bar, which reaches its end; and none on a terminal if not wanted.

    A part that is not told whether to show one would show it there.
    """
    CALLS[name](progress=True)
    shown = capsys.readouterr().err
    assert (
        len({line.partition(":")[0] for line in shown.replace("\r", "\n").split("\n") if line}) == 1
    )
    assert "100%" in shown
    with monkeypatch.context() as patch:
        patch.setattr(type(sys.stderr), "isatty", lambda stream: True, raising=False)
        CALLS[name](progress=False)
    assert capsys.readouterr().err == ""


def test_none_shows_a_bar_on_a_terminal_only(capsys, monkeypatch):
    CALLS["simulate_chain"](progress=None)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda stream: True, raising=False)
    CALLS["simulate_chain"](progress=None)
    assert "100%" in capsys.readouterr().err
