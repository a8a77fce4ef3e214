"""The core runs where the libraries of the extras are missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from shaped_attention.libraries import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
BLOCKED = sorted({library for libraries in EXTRAS.values() for library in libraries})


CORE = f"""
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
import shaped_attention as sa
from shaped_attention.commands.main import main
layer, v0 = [sa.ShapedAttention(0.35, 1.0), sa.ShapedMLP(0.35)], sa.equicorrelated(4, 0.2)
chain = sa.simulate_chain(layer, v0, width=16, depth=8, samples=40)
network = sa.simulate_network(layer, v0, width=16, depth=8, samples=40)
limit = sa.integrate_sde(layer, v0, horizon=0.5, step=0.25, samples=40)
assert sa.format_comparison(sa.compare(chain, limit, permutations=99))
model = dict(model_type="llama", hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=8, vocab_size=9)
assert sa.simulate_model(model, 3, samples=4).sizes["position"] == 3
assert sa.rerun(chain).identical(chain) and sa.layer_of(chain) == layer
assert sa.explosion_law(sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2)).probability() > 0.0
import symbolic
calls = dict(
    figures=lambda: sa.plots, files=lambda: sa.save(chain, "a.nc"),
    load=lambda: sa.load(sys.executable),
    sweep=lambda: sa.run_sweep,
)
for name, call in calls.items():
    try:
        call()
    except ModuleNotFoundError as error:
        print(name, error, sep=": ")
main(["sweep", "run", "none.toml", "none"])
"""


def test_the_core_runs_without_the_extras(tmp_path):
    """Chain, network, SDE, comparison, models and reruns; the rest names what it lacks."""
    done = subprocess.run(
        [sys.executable, "-c", CORE], cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert list(lines) == ["figures", "files", "load", "sweep"], done.stderr
    wanted = {"figures": "figures", "files": "files", "load": "files", "sweep": "sweep"}
    for name, extra in wanted.items():
        sentence = rf"^\w+ is not installed; .*pip install \"shaped-attention\[{extra}\]\".*\[all\]"
        assert re.match(sentence, lines[name]), lines[name]
    assert done.returncode == 1
    assert re.match(r"Error: \w+ is not installed; the extra `sweep`", done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == []
