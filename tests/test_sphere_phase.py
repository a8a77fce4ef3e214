"""Phase diagrams of clustering from uniform starts."""

from __future__ import annotations

import math

import click
import numpy as np
import pytest
from click.testing import CliRunner

from shaped_attention.commands.figures import sphere_command
from shaped_attention.commands.main import main
from shaped_attention.sphere import (
    meeting_time,
    phase_diagram,
)


def test_options_of_figures_say_what_each_is():
    """No two options of a command have the same help, and each has one."""
    for command in sphere_command.commands.values():
        texts = [option.help for option in command.params if isinstance(option, click.Option)]
        assert texts
        assert all(texts)
        assert len(set(texts)) == len(texts), command.name


def test_phase_diagram_is_a_step_at_the_curve_in_high_dimension(tmp_path):
    """d = 10^5, N = 8: no pair has met at 0.8 of the curve's time and all have at 1.2 of it.

    In d = 2 neither holds: there tokens start close, and meet late.
    """
    betas = [0.0, 2.0]
    curve = [meeting_time(1e-3, 8, beta) for beta in betas]
    # At beta = 0 log(((N - 1) g + 1) / (1 - g)) grows at the rate 2.
    assert curve[0] == pytest.approx(0.5 * math.log((7 * 0.999 + 1) / 1e-3), rel=1e-10)
    for beta, time in zip(betas, curve, strict=True):
        data = phase_diagram([2, 100_000], [beta], [0.8 * time, 1.2 * time], tokens=8, samples=100)
        high, flat = data["probability"].sel(dimension=[100_000, 2]).values[:, 0]
        assert high[0] < 0.01
        assert high[1] > 0.99
        assert flat[0] > 0.1
    result = CliRunner().invoke(
        main,
        ["sphere", "phase", "--samples", "10", "--tokens", "3", "--dimensions", "2,9",
         "--figures", str(tmp_path), "--results", str(tmp_path)],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert (tmp_path / "sphere-phase.svg").exists()
    result = CliRunner().invoke(
        main, ["sphere", "phase", "--delta", "2", "--figures", str(tmp_path)]
    )
    assert "delta must be in (0, 1); got 2.0" in result.output


def test_the_curve_of_a_phase_diagram_is_that_of_its_attention():
    """Meeting times of equiangular tokens under USA, which are not those under SA."""
    options = {"tokens": 4, "samples": 2, "delta": 0.1}
    for normalised in (True, False):
        data = phase_diagram([3], [0.0, 2.0], [0.1], normalised=normalised, **options)
        known = [meeting_time(0.1, 4, beta, 0.0, normalised) for beta in (0.0, 2.0)]
        np.testing.assert_allclose(data["curve"], known, rtol=1e-12)
    assert meeting_time(0.1, 4, 2.0) > 1.1 * known[1]
