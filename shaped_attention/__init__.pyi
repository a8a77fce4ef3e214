from . import lazy, sphere, sweep
from .architectures.configurations import shipped_configurations
from .architectures.describe import describe
from .architectures.layer_summary import model_summary
from .architectures.model import Embedding, Model, Norm
from .architectures.reading import model_from_config
from .architectures.verdict import verdict
from .audit.check_model import check_model
from .blocks import (
    Block,
    Normalised,
    Parallel,
    Pattern,
    Schedule,
    ShapedAttention,
    ShapedMLP,
)
from .blocks.attention_fields import QKNorm
from .blocks.limits.limit_formulas import limit_formulas
from .blocks.parameters import bounded
from .blocks.positions import alibi, sliding_window
from .blocks.rotations import Rope
from .figures import plots
from .io.inputs import example_tokens, read_covariance, read_tokens
from .lazy.entrywise import AdamW, Lion
from .lazy.gradient_norms import gradient_norms
from .lazy.lyapunov import lyapunov
from .lazy.optimizers import SGD, Muon
from .lazy.tangent_kernel import neural_tangent_kernel
from .lazy.training import simulate_training
from .libraries import __version__
from .models.coordinates import coordinate_check
from .models.mup import with_mup_rates
from .models.simulate import simulate_model
from .numerics.covariance import (
    correlations,
    covariance_of,
    equicorrelated,
    vech,
)
from .numerics.observables import observables
from .results.files import layer_of, load, save
from .results.provenance import rerun, specification
from .samplers.chain import simulate_chain
from .samplers.explain import explain
from .samplers.network import simulate_network
from .samplers.pathwise import pathwise
from .samplers.sde import integrate_sde
from .samplers.specification import eager
from .statistics import stopping
from .statistics.check_block import check_block
from .statistics.compare import compare
from .statistics.comparison_text import format_comparison
from .statistics.density import density
from .statistics.rates import distances_by_width
from .sweep import (
    Sweep,
    open_sweep,
    read_sweep,
    run_sweep,
    sweep_distances,
    sweep_status,
    sweep_summary,
)
from .theory.drift_diffusion import diffusion, drift
from .theory.explosion.law import explosion_law
from .torch_models import scores
from .torch_models.covariances import record_covariances
from .torch_models.transformer import ShapedTransformer

__all__ = [
    "SGD",
    "AdamW",
    "Block",
    "Embedding",
    "Lion",
    "Model",
    "Muon",
    "Norm",
    "Normalised",
    "Parallel",
    "Pattern",
    "QKNorm",
    "Rope",
    "Schedule",
    "ShapedAttention",
    "ShapedMLP",
    "ShapedTransformer",
    "Sweep",
    "__version__",
    "alibi",
    "bounded",
    "check_block",
    "check_model",
    "compare",
    "coordinate_check",
    "correlations",
    "covariance_of",
    "density",
    "describe",
    "diffusion",
    "distances_by_width",
    "drift",
    "eager",
    "equicorrelated",
    "example_tokens",
    "explain",
    "explosion_law",
    "format_comparison",
    "gradient_norms",
    "integrate_sde",
    "layer_of",
    "lazy",
    "limit_formulas",
    "load",
    "lyapunov",
    "model_from_config",
    "model_summary",
    "neural_tangent_kernel",
    "observables",
    "open_sweep",
    "pathwise",
    "plots",
    "read_covariance",
    "read_sweep",
    "read_tokens",
    "record_covariances",
    "rerun",
    "run_sweep",
    "save",
    "scores",
    "shipped_configurations",
    "simulate_chain",
    "simulate_model",
    "simulate_network",
    "simulate_training",
    "sliding_window",
    "specification",
    "sphere",
    "stopping",
    "sweep",
    "sweep_distances",
    "sweep_status",
    "sweep_summary",
    "vech",
    "verdict",
    "with_mup_rates",
]
