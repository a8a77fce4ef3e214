"""The loop of the samplers: the bar shows the steps that are taken."""

from __future__ import annotations

import re

import pytest

import shaped_attention as sa

V0 = sa.equicorrelated(3, 0.2)
LAYER = sa.ShapedAttention(0.5)


@pytest.mark.parametrize("sampler", ["network", "chain"])
def test_the_bar_of_a_run_that_goes_on_ends_at_100_percent(
    sampler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts the steps from where the first run ended: 7 samples of 6 layers."""
    simulate = {"network": sa.simulate_network, "chain": sa.simulate_chain}[sampler]
    run = {"width": 8, "samples": 7}
    first = simulate(LAYER, V0, depth=4, keep_state=True, progress=False, **run)
    sa.continue_run(first, depth=10, progress=True)
    last = re.findall(r"(\d+)%\|.*?(\S+)/(\S+) \[", capsys.readouterr().err)[-1]
    assert last == ("100", "42.0", "42.0")
