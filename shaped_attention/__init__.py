"""Token covariances of very deep, very wide random transformers.

Finite networks with real weights (`simulate_network`), the exact chain of their covariances
(`simulate_chain`), the stochastic differential equation they converge to (`integrate_sde`), and
how far apart their laws are (`compare`).
"""

from shaped_attention.blocks import (
    Block,
    Limit,
    Normalised,
    Parallel,
    Pattern,
    Schedule,
    ShapedAttention,
    ShapedMLP,
)
from shaped_attention.chain import simulate_chain
from shaped_attention.compare import compare, format_comparison
from shaped_attention.continuation import continue_run
from shaped_attention.convergence import convergence
from shaped_attention.covariance import correlations, covariance_of, equicorrelated, half_vectorise
from shaped_attention.eager import eager
from shaped_attention.explain import Explanation, explain
from shaped_attention.inputs import example_tokens, read_covariance, read_tokens
from shaped_attention.limit import diffusion, drift
from shaped_attention.module import ShapedTransformer, record_covariances
from shaped_attention.multilevel import expectation
from shaped_attention.network import simulate_network
from shaped_attention.observables import observables
from shaped_attention.pathwise import pathwise
from shaped_attention.rates import distances_by_width
from shaped_attention.rerun import rerun
from shaped_attention.results import layer_of, load, save, specification
from shaped_attention.scores import (
    initial_spectrum,
    leading_directions,
    score_form,
    truncation_cost,
)
from shaped_attention.sde import integrate_sde
from shaped_attention.stopping import exit_times, explosion_curve, explosion_curves, stopping_map
from shaped_attention.sweep import (
    Sweep,
    open_sweep,
    plan_sweep,
    read_sweep,
    resume_sweep,
    run_sweep,
    sweep_distances,
    sweep_summary,
)
from shaped_attention.version import __version__

__all__ = [
    "Block",
    "Explanation",
    "Limit",
    "Normalised",
    "Parallel",
    "Pattern",
    "Schedule",
    "ShapedAttention",
    "ShapedMLP",
    "ShapedTransformer",
    "Sweep",
    "__version__",
    "compare",
    "continue_run",
    "convergence",
    "correlations",
    "covariance_of",
    "diffusion",
    "distances_by_width",
    "drift",
    "eager",
    "equicorrelated",
    "example_tokens",
    "exit_times",
    "expectation",
    "explain",
    "explosion_curve",
    "explosion_curves",
    "format_comparison",
    "half_vectorise",
    "initial_spectrum",
    "integrate_sde",
    "layer_of",
    "leading_directions",
    "load",
    "observables",
    "open_sweep",
    "pathwise",
    "plan_sweep",
    "read_covariance",
    "read_sweep",
    "read_tokens",
    "record_covariances",
    "rerun",
    "resume_sweep",
    "run_sweep",
    "save",
    "score_form",
    "simulate_chain",
    "simulate_network",
    "specification",
    "stopping_map",
    "sweep_distances",
    "sweep_summary",
    "truncation_cost",
]
