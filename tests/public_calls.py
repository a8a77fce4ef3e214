"""One call of every public function and command, as small as it can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import shaped_attention as sa
from shaped_attention import sphere
from tests.example_modules import build

V0 = np.array([[1.0, 0.2], [0.2, 1.0]])
LAYER = sa.ShapedAttention(0.5)
CONFIG = {
    "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 8, "vocab_size": 9,
}  # fmt: skip
RUN: dict[str, Any] = {"layer": LAYER, "v0": V0, "width": 8, "depth": 2, "samples": 20}
START = sphere.uniform_start(3, 2, 2, 0)
GRAM = START @ START.mT
FLAT = np.full(16, 0.5 / np.pi)
TWO = {"step": 0.1, "layers": 2}
SA = sphere.SphereAttention(1.0)
SPACE = sa.lazy.Space(10)
X = SPACE.normal(2)


NOT_CALLED = {
    "Block": "a base class", "Limit": "a base class",
    "__version__": "text", "plots": "a module", "scores": "a module", "stopping": "a module",
    "lazy": "a module", "sphere": "a module", "sweep": "a module",
}  # fmt: skip
"""Public names that users do not call."""

SWEEP = """
samplers = ["chain"]
samples = 8
[fixed]
layer = "attention"
tokens = 2
width = 8
depth = 2
[axes]
gamma = [0.3, 0.5]
"""


def command_lines(folder: Path) -> dict[str, list[list[str]]]:
    """Command lines by the command that they show; all but the last prepare it."""
    (folder / "grid.toml").write_text(SWEEP)
    sa.save(sa.simulate_chain(**RUN), folder / "chain.nc")
    store, figures = str(folder / "grid.sweep"), ["--figures", str(folder / "figures")]
    sizes = ["--width", "40", "--depth", "30", "--samples", "64", "--network-samples", "16"]
    short = ["--widths", "64,128,192", "--samples", "2", "--steps", "1", "--tokens", "2"]
    run = ["sweep", "run", str(folder / "grid.toml"), store]
    return {
        "check": [["check", "tests.example_modules:build", "--samples", "8"]],
        "compare": [["compare", *sizes, *figures, "--results", str(folder / "results")]],
        "coordinates": [["coordinates", "gpt2", *short, "--set", "n_layer=1", "--init", "mup"]],
        "model": [["model", "gpt2", "--tokens", "4", "--samples", "2", "--set", "n_layer=2"]],
        "show": [["show", str(folder / "chain.nc")]],
        "sweep run": [run],
        "sweep status": [run, ["sweep", "status", store]],
        "sweep export": [run, ["sweep", "export", store, str(folder / "grid.nc")]],
    }


SYMBOLIC_COMMANDS = {
    "claims": ["claims", "--only", "softmax"],
    "derive": ["derive", "--block", "mlp", "--tokens", "2"],
    "expand": ["expand", "--order", "2"],
}
"""Command lines of `python -m symbolic`, by the command."""


def calls(folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Functions by name, each with arguments that it takes; a test sees that none is missing."""
    chain = sa.simulate_chain(**RUN, save_every=1, radius=1e5)
    second = sa.simulate_chain(**RUN, seed=1, save_every=1)
    table = sa.compare(chain, second)
    sa.save(chain, folder / "chain.nc")
    np.save(folder / "v.npy", V0)
    np.save(folder / "h.npy", np.ones((2, 3, 2)))
    model = sa.ShapedTransformer(LAYER, width=8, depth=2)
    inputs = torch.ones(1, 2, 8)

    sweep = sa.Sweep(
        {"tokens": 2, "width": 8, "depth": 2, "step": 0.125, "gamma": 0.5}, {"tau0": [1.0]},
        samplers=("chain", "sde"), samples=8,
    )  # fmt: skip
    (folder / "sweep.toml").write_text(
        "samplers = ['chain']\n[fixed]\nlayer = 'mlp'\ngamma = 0.5\ntokens = 2\n"
        "width = 8\ndepth = 2\n"
    )
    exploding = sa.integrate_sde(
        sa.ShapedAttention(0.6, 0.5), sa.equicorrelated(2, 0.2), horizon=0.75, step=0.05,
        samples=2000, radius=1e13,
    )  # fmt: skip
    half = torch.tensor(0.5)
    of_model = sa.simulate_model(CONFIG, 2, samples=4, progress=False)
    omega = sa.scores.score_form(np.eye(2), np.eye(2))
    store = folder / "store.sweep"
    sa.run_sweep(sweep, store, progress=False)
    data = sa.open_sweep(store)
    start = {"start": START}
    return {
        "alibi": (sa.alibi, {"tokens": 2, "slope": 0.5}),
        "bounded": (sa.bounded, {"low": 0.0, "high": 1.0}),
        "check_block": (sa.check_block, {"block": LAYER, "v0": V0, "samples": 100}),
        "check_model": (sa.check_model, {"module": build(), "ids": [1, 2], "samples": 8}),
        "compare": (sa.compare, {"first": chain, "second": second}),
        "correlations": (sa.correlations, {"v": V0}),
        "covariance_of": (sa.covariance_of, {"tokens": V0}),
        "density": (sa.density, {"result": chain, "observable": "rho[0,1]", "bins": 5}),
        "diffusion": (sa.diffusion, {"layer": LAYER, "v": V0}),
        "distances_by_width": (
            sa.distances_by_width, {"layer": LAYER, "v0": V0, "widths": [8, 16], "samples": 20},
        ),
        "drift": (sa.drift, {"layer": LAYER, "v": V0}),
        "eager": (sa.eager, {}),
        "Embedding": (sa.Embedding, {"vocabulary": 9, "std": 0.02}),
        "Model": (
            sa.Model,
            {"family": "own", "width": 8, "depth": 2, "layer": LAYER,
             "embedding": sa.Embedding(9, 0.02)},
        ),
        "Norm": (sa.Norm, {"kind": "rms", "eps": 1e-6}),
        "describe": (sa.describe, {"model": CONFIG}),
        "model_summary": (sa.model_summary, {"result": of_model}),
        "verdict": (sa.verdict, {"summary": sa.model_summary(of_model)}),
        "shipped_configurations": (sa.shipped_configurations, {}),
        "model_from_config": (sa.model_from_config, {"config": CONFIG}),
        "coordinate_check": (
            sa.coordinate_check,
            {"model": CONFIG, "tokens": 2, "widths": [16, 32, 48], "steps": 1, "samples": 2},
        ),
        "with_mup_rates": (
            sa.with_mup_rates,
            {"optimizer": sa.SGD(0.1), "model": sa.model_from_config(CONFIG), "base": 8},
        ),
        "simulate_model": (
            sa.simulate_model, {"model": CONFIG, "tokens": 2, "samples": 4, "targets": "next"},
        ),
        "sliding_window": (sa.sliding_window, {"tokens": 2, "window": 1}),
        "equicorrelated": (sa.equicorrelated, {"tokens": 2, "rho": 0.2}),
        "example_tokens": (sa.example_tokens, {}),
        "stopping.exit_times": (sa.stopping.exit_times, {"result": chain}),
        "explain": (sa.explain, {"layer": LAYER}),
        "stopping.explosion_curve": (sa.stopping.explosion_curve, {"result": chain}),
        "stopping.explosion_probability": (
            sa.stopping.explosion_probability, {"result": exploding},
        ),
        "stopping.explosion_table": (
            sa.stopping.explosion_table, {"layer": LAYER, "v0": V0, "widths": [8], "samples": 4},
        ),
        "limit_formulas": (sa.limit_formulas, {"block": LAYER, "tokens": 2}),
        "explosion_law": (sa.explosion_law, {"layer": LAYER, "v0": V0}),
        "scores.initial_spectrum": (sa.scores.initial_spectrum, {"x": [0.1], "ratio": 0.5}),
        "scores.leading_directions": (sa.scores.leading_directions, {"omega": omega, "rank": 1}),
        "scores.scores": (sa.scores.scores, {"omega": omega, "tokens": np.eye(2)}),
        "scores.score_form": (sa.scores.score_form, {"query": np.eye(2), "key": np.eye(2)}),
        "scores.truncation_cost": (
            sa.scores.truncation_cost, {"omega": omega, "tokens": np.eye(2), "ranks": [1]},
        ),
        "Sweep": (sa.Sweep, {"fixed": sweep.fixed, "axes": sweep.axes}),
        "format_comparison": (sa.format_comparison, {"table": table}),
        "vech": (sa.vech, {"v": V0}),
        "gradient_norms": (sa.gradient_norms, RUN),
        "lazy.Factors": (
            sa.lazy.Factors, {"left": SPACE.normal(1), "right": SPACE.normal(1)},
        ),
        "lazy.Layers": (sa.lazy.Layers, {"layer": LAYER, "depth": 2}),
        "lazy.vjp": (sa.lazy.vjp, {"function": lambda x: 2 * x, "x": X}),
        "lazy.Matrix": (sa.lazy.Matrix, {"a": SPACE, "b": SPACE, "std": 1.0}),
        "lazy.Rows": (
            sa.lazy.Rows, {"space": SPACE, "parts": (torch.zeros(1, 2, 3, dtype=torch.float64),)},
        ),
        "lazy.Space": (sa.lazy.Space, {"n": 10, "samples": 2}),
        "lazy.Sum": (sa.lazy.Sum, {"parts": [SPACE, SPACE]}),
        "lazy.Tape": (sa.lazy.Tape, {}),
        "lyapunov": (sa.lyapunov, RUN),
        "neural_tangent_kernel": (sa.neural_tangent_kernel, RUN),
        "AdamW": (sa.AdamW, {"lr": 0.1}),
        "Lion": (sa.Lion, {"lr": 0.1}),
        "Muon": (sa.Muon, {"lr": 0.1}),
        "SGD": (sa.SGD, {"lr": 0.1}),
        "simulate_training": (
            sa.simulate_training,
            {"layer": LAYER, "tokens": V0, "targets": [0, 1], "width": 8, "depth": 1, "samples": 2,
             "steps": 1},
        ),
        "integrate_sde": (
            sa.integrate_sde,
            {"layer": LAYER, "v0": V0, "horizon": 0.5, "step": 0.25, "samples": 4},
        ),
        "layer_of": (sa.layer_of, {"result": chain}),
        "load": (sa.load, {"path": folder / "chain.nc"}),
        "observables": (sa.observables, {"V": V0[None]}),
        "open_sweep": (sa.open_sweep, {"path": store}),
        "pathwise": (sa.pathwise, RUN | {"v0": torch.tensor(V0), "parameters": {"gamma": half}}),
        "read_covariance": (sa.read_covariance, {"path": folder / "v.npy"}),
        "read_sweep": (sa.read_sweep, {"path": folder / "sweep.toml"}),
        "read_tokens": (sa.read_tokens, {"path": folder / "v.npy"}),
        "record_covariances": (sa.record_covariances, {"model": model, "inputs": inputs}),
        "rerun": (lambda result: sa.rerun(result), {"result": chain}),
        "run_sweep": (sa.run_sweep, {"sweep": sweep, "path": store, "progress": False}),
        "save": (sa.save, {"result": chain, "path": folder / "again.nc"}),
        "simulate_chain": (sa.simulate_chain, RUN),
        "simulate_network": (sa.simulate_network, RUN),
        "specification": (sa.specification, {"result": chain}),
        "stopping.stopping_map": (
            sa.stopping.stopping_map,
            {"v0": V0, "gammas": [0.5], "tau0s": [1.0], "width": 8, "step": 0.125, "samples": 2},
        ),
        "sweep_status": (sa.sweep_status, {"path": store}),
        "sweep_distances": (sa.sweep_distances, {"data": data}),
        "sweep_summary": (sa.sweep_summary, {"data": data}),
        "ShapedAttention": (sa.ShapedAttention, {"gamma": 0.5}),
        "ShapedMLP": (sa.ShapedMLP, {"gamma": 0.5}),
        "ShapedTransformer": (sa.ShapedTransformer, {"layer": LAYER, "width": 8, "depth": 2}),
        "Normalised": (sa.Normalised, {"inner": LAYER}),
        "Parallel": (sa.Parallel, {"blocks": [LAYER, sa.ShapedMLP(0.5)]}),
        "Pattern": (sa.Pattern, {"layers": [[LAYER]]}),
        "QKNorm": (sa.QKNorm, {"over": "head"}),
        "Rope": (sa.Rope, {"base": 100.0}),
        "Schedule": (sa.Schedule, {"knots": [(0.0, 0.5), (1.0, 0.2)]}),
        "sphere.SphereAttention": (sphere.SphereAttention, {"beta": 1.0}),
        "sphere.TokenAttention": (sphere.TokenAttention, {"beta": 1.0}),
        "sphere.close_pairs": (sphere.close_pairs, {"gram": GRAM, "delta": 0.1}),
        "sphere.cluster_count": (sphere.cluster_count, {"gram": GRAM, "delta": 0.1}),
        "sphere.cluster_masses": (sphere.cluster_masses, {"gram": GRAM, "delta": 0.1}),
        "sphere.theory.equiangular_cosine": (
            sphere.theory.equiangular_cosine,
            {"times": [0.1], "start": 0.1, "tokens": 3, "beta": 1.0},
        ),
        "sphere.theory.equiangular_field": (
            sphere.theory.equiangular_field, {"cosine": 0.1, "tokens": 3, "beta": 1.0},
        ),
        "sphere.equiangular_start": (sphere.equiangular_start, {"tokens": 3, "cosine": 0.1}),
        "sphere.theory.final_rate": (sphere.theory.final_rate, {"tokens": 3, "beta": 1.0}),
        "sphere.theory.mode_growth": (sphere.theory.mode_growth, {"mode": 2, "beta": 1.0}),
        "sphere.given_start": (sphere.given_start, {"tokens": np.eye(2)}),
        "sphere.mean_field": (
            sphere.mean_field, {"beta": 1.0, "density": FLAT, "times": [0.1]},
        ),
        "sphere.theory.meeting_time": (
            sphere.theory.meeting_time, {"delta": 0.1, "tokens": 3, "beta": 1.0},
        ),
        "sphere.noisy_chain": (
            sphere.noisy_chain,
            {"attention": SA, **start, "dimension": 3, "sigma": 0.5, **TWO},
        ),
        "sphere.sphere_flow": (sphere.sphere_flow, {"attention": SA, **start, "times": [0.1]}),
        "sphere.sphere_network": (
            sphere.sphere_network, {"attention": SA, **start, **TWO},
        ),
        "sphere.theory.two_tokens": (
            sphere.theory.two_tokens,
            {"attention": SA, "dimension": 3, "sigma": 1.0, "cosine": [0.1]},
        ),
        "sphere.uniform_start": (
            sphere.uniform_start, {"tokens": 3, "dimension": 2, "samples": 2, "seed": 0},
        ),
    }  # fmt: skip
