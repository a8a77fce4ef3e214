"""The correlation of tokens grows with gamma, and hardly depends on the temperature tau_0.

A sweep over gamma and tau_0: E mean |rho| of four tokens at t = 1, with 95 % intervals. Chains of
width 300 and their SDE agree to within 0.02.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import shaped_attention as sa

SMALL = bool(os.environ.get("SMALL"))
WIDTH, SAMPLES = (20, 64) if SMALL else (300, 2048)
GAMMAS, TAU0S = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.5, 1.0, 2.0]

sweep = sa.Sweep(
    samplers=["chain", "sde"], samples=SAMPLES,
    fixed={"layer": "attention", "tokens": 4, "rho": 0.2, "width": WIDTH, "depth": WIDTH,
           "step": 0.05 if SMALL else 0.01},
    axes={"gamma": GAMMAS, "tau0": TAU0S},
)  # fmt: skip
with tempfile.TemporaryDirectory() as folder:
    sa.run_sweep(sweep, Path(folder) / "curves.sweep")
    summary = sa.sweep_summary(sa.open_sweep(Path(folder) / "curves.sweep"))
ends = summary.sel(observable="mean |rho|").isel(fraction=-1)

fig, ax = plt.subplots(figsize=(6.0, 4.2), layout="constrained")
for j, sampler in enumerate(("chain", "sde")):
    for k, tau0 in enumerate(TAU0S):
        one = ends.sel(sampler=sampler, tau0=tau0)
        bars = [one["mean"] - one["lower"], one["upper"] - one["mean"]]
        name = rf"{'SDE' if j else f'chain, $n$ = {WIDTH}'}, $\tau_0$ = {tau0:g}"
        look = {"color": sa.plots.COLORS[k], "linestyle": "-:"[j], "marker": "os"[j]}
        ax.errorbar(GAMMAS, one["mean"], bars, markersize=4, capsize=2, label=name, **look)
ax.set(xlabel=r"$\gamma$", ylabel=r"$\mathbb{E}$ mean $|\rho|$ at $t$ = 1")
ax.grid(linestyle=":")
ax.legend(fontsize="small")
place = Path(os.environ.get("FIGURES", Path(__file__).parent))
fig.savefig(place / "sweep_curves.png", dpi=150)
