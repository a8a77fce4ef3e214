"""Errors in the other blocks, and in the Gaussian branch that all share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BASE = "shaped_attention/blocks/base.py"
_MLP = "shaped_attention/blocks/mlp.py"
_NAMED_NUMBERS = "shaped_attention/numerics/named_numbers.py"
_STARTS = "shaped_attention/samplers/starts.py"
_STEPS = "shaped_attention/samplers/steps.py"


BLOCKS = [
    Mutant(
        "branch-wishart-dof-width",
        "shaped_attention/rows/undrawn.py",
        "rest = frame.n - frame.size if whole else 0",
        "rest = frame.n if whole else 0",
        ("test_chain_law.py::test_members_and_edges_of_the_family[width m + 2]",),
    ),
    Mutant(
        "skip-squared",
        _BASE,
        "return sqrt(1.0 - p.gamma**2)",
        "return 1.0 - p.gamma**2",
        ("test_real_weights.py::test_attention[block0-formula0]",),
    ),
    Mutant(
        "mlp-normalisation-of-mean-slope",
        _MLP,
        "return (plus**2 + minus**2) / 2.0",
        "return (plus + minus) ** 2 / 4.0",
        ("test_limit.py::test_finite_width_kernel_of_the_mlp[-0.7]",),
    ),
    Mutant(
        "arc-cosine-sign-of-angle",
        "shaped_attention/numerics/operations/arc_cosine.py",
        "s * (math.pi - torch.arccos(s))",
        "s * (math.pi + torch.arccos(s))",
        ("test_limit.py::test_mlp_drift_is_the_limit_of_the_exact_kernel",),
    ),
    Mutant(
        "layer-norm-factor-loses-its-means",
        "shaped_attention/rows/step.py",
        "first, body = columns(rows, 0, 1)",
        "first, body = 0.0 * columns(rows, 0, 1)",
        ("test_normalised.py::test_the_chain_has_the_law_of_networks[before]",),
    ),
    Mutant(
        "layer-norm-start-in-the-span-of-the-tokens",
        _STARTS,
        '"means of the start, orthogonal", 1, width - c, g',
        '"means of the start, orthogonal", 1, 1, g',
        ("test_layer_norm_start.py::test_tokens_start_with_uniformly_distributed_directions[2-4]",),
    ),
    Mutant(
        "flow-decays-twice-as-fast",
        _STEPS,
        "return exp(-step * decay), mean_decay",
        "return exp(-2.0 * step * decay), mean_decay",
        ("test_limit.py::test_a_step_of_the_flow_keeps_v_positive_and_has_its_drift[layer0]",),
    ),
    Mutant(
        "numbers-of-all-blocks-alike",
        _NAMED_NUMBERS,
        "2**16 + len(place), *place, *words",
        "2**16 + len(place), *words",
        ("test_chain_law.py::test_chain_has_the_law_of_networks[both-2]",),
    ),
    Mutant(
        "parallel-branch-weight-squared",
        "shaped_attention/blocks/parallel.py",
        "q.gamma * block.applied(",
        "q.gamma**2 * block.applied(",
        ("test_starts.py::test_parallel_branches_add_up_by_their_weights",),
    ),
    Mutant(
        "pattern-rate-of-all-layers",
        _STEPS,
        "self.rate = self.share * sum(",
        "self.rate = sum(",
        ("test_sde.py::test_a_step_of_a_pattern_has_its_drift_and_diffusion",),
    ),
]
