"""Errors in the other blocks, and in the Gaussian branch that all share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BASE = "shaped_attention/blocks/base.py"
_DRAWS = "shaped_attention/numerics/draws.py"
_MLP = "shaped_attention/blocks/mlp.py"
_NAMED_NUMBERS = "shaped_attention/numerics/named_numbers.py"
_NORMALISED = "shaped_attention/blocks/normalised.py"
_STARTS = "shaped_attention/samplers/starts.py"
_PARALLEL = "shaped_attention/blocks/parallel.py"
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
        "mlp-branch-not-normalised",
        _MLP,
        "sqrt(1.0 / self._mean_square(p, n) / units)",
        "math.sqrt(1.0 / units)",
        ("test_real_weights.py::test_mlp",),
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
        "arc-cosine-angle",
        "shaped_attention/numerics/operations/arc_cosine.py",
        "s * (math.pi - torch.arccos(s))",
        "s * torch.arccos(s)",
        ("test_limit.py::test_mlp_drift_is_the_limit_of_the_exact_kernel",),
    ),
    Mutant(
        "mlp-slopes-swapped",
        _MLP,
        "return leaky(x, *self.slopes(p, width))",
        "return leaky(x, *self.slopes(p, width)[::-1])",
        ("test_real_weights.py::test_mlp",),
    ),
    Mutant(
        "normalised-after-branch-sees-normalised",
        "shaped_attention/blocks/normalised.py",
        'before = self.place in ("before", "sandwich")',
        "before = True",
        ("test_normalised.py::test_a_branch_before_a_norm_sees_the_tokens_as_they_are",),
    ),
    Mutant(
        "normalised-rms-over-width-less-one",
        "shaped_attention/blocks/normalised.py",
        "    return by_mean_square(tokens, eps)",
        "    return by_mean_square(tokens, eps) * (1.0 - 1.0 / tokens.shape[-1]) ** 0.5",
        ("test_normalised.py::test_norms_are_those_of_torch[rms-before-0.0-1.0]",),
    ),
    Mutant(
        "normalised-eps-outside-the-root",
        "shaped_attention/numerics/operations/sums.py",
        "rows / sqrt(row_squares(rows) + eps)",
        "rows / (sqrt(row_squares(rows)) + eps)",
        ("test_normalised.py::test_eps_is_added_to_the_mean_square[simulate_chain-inner1]",),
    ),
    Mutant(
        "layer-norm-keeps-the-means",
        "shaped_attention/blocks/normalised.py",
        "tokens = tokens - tokens.mean(-1, keepdim=True)",
        "tokens = tokens - 0.0 * tokens.mean(-1, keepdim=True)",
        ("test_normalised.py::test_norms_are_those_of_torch[layer-after-0.0-1.0]",),
    ),
    Mutant(
        "layer-norm-factor-loses-its-means",
        "shaped_attention/rows/step.py",
        "first, body = columns(rows, 0, 1)",
        "first, body = 0.0 * columns(rows, 0, 1)",
        ("test_layer_norm.py::test_the_chain_has_the_law_of_networks[before]",),
    ),
    Mutant(
        "layer-norm-starts-without-means",
        _STARTS,
        "reflection[:, :, 0] = unit",
        "reflection[:, :, 0] = 0.0",
        ("test_layer_norm_start.py::test_tokens_start_with_uniformly_distributed_directions[2-2]",),
    ),
    Mutant(
        "layer-norm-start-in-the-span-of-the-tokens",
        _STARTS,
        '"means of the start, orthogonal", 1, width - c, g',
        '"means of the start, orthogonal", 1, 1, g',
        ("test_layer_norm_start.py::test_tokens_start_with_uniformly_distributed_directions[2-4]",),
    ),
    Mutant(
        "normalised-layer-mean-over-tokens",
        _NORMALISED,
        "tokens.mean(-1, keepdim=True)",
        "tokens.mean(-2, keepdim=True)",
        ("test_normalised.py::test_norms_are_those_of_torch[layer-before-0.0-1.0]",),
    ),
    Mutant(
        "mlp-root-columns-reused",
        _DRAWS,
        "self.normals_at(slot, start * rows, here * rows)",
        "self.normals_at(slot, 0, here * rows)",
        ("test_numbers.py::test_normals_may_be_asked_for_in_pieces",),
    ),
    Mutant(
        "numbers-of-all-names-alike",
        _NAMED_NUMBERS,
        "hashlib.sha256(name.encode()).digest()",
        'hashlib.sha256(b"").digest()',
        ("test_chain_law.py::test_chain_has_the_law_of_networks[mlp-2]",),
    ),
    Mutant(
        "flow-decays-twice-as-fast",
        _STEPS,
        "return exp(-step * decay), mean_decay",
        "return exp(-2.0 * step * decay), mean_decay",
        ("test_limit.py::test_a_step_of_the_flow_keeps_v_positive_and_has_its_drift[layer0]",),
    ),
    Mutant(
        "flow-grows-for-two-steps",
        _STEPS,
        "exp(-step * decay), mean_decay(decay, step)",
        "exp(-step * decay), mean_decay(decay, 2.0 * step)",
        ("test_limit.py::test_a_step_of_the_flow_keeps_v_positive_and_has_its_drift[layer0]",),
    ),
    Mutant(
        "mlp-gate-without-bias",
        "shaped_attention/blocks/activations.py",
        "of_entries(function, inner if bias == 0.0 else inner + bias)",
        "of_entries(function, inner)",
        ("test_gates.py::test_the_drift_is_the_limit_of_the_exact_kernel[silu-1.0]",),
    ),
    Mutant(
        "numbers-of-all-blocks-alike",
        _NAMED_NUMBERS,
        "2**16 + len(place), *place, *words",
        "2**16 + len(place), *words",
        ("test_chain_law.py::test_chain_has_the_law_of_networks[both-2]",),
    ),
    Mutant(
        "parallel-skip-squared",
        _PARALLEL,
        "return sqrt(1.0 - sum(q.gamma**2 for q in p.blocks))",
        "return 1.0 - sum(q.gamma**2 for q in p.blocks)",
        ("test_starts.py::test_parallel_branches_add_up_by_their_weights",),
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
    Mutant(
        "pattern-noise-by-share",
        _STEPS,
        "math.sqrt(self.share) * part",
        "self.share * part",
        ("test_sde.py::test_a_step_of_a_pattern_has_its_drift_and_diffusion",),
    ),
    Mutant(
        "pattern-drift-of-all-layers",
        _STEPS,
        "drift + self.share * part",
        "drift + part",
        ("test_sde.py::test_a_step_of_a_pattern_has_its_drift_and_diffusion",),
    ),
    Mutant(
        "step-correction-of-v",
        _STEPS,
        "(root.shape[-1] + 1) / 8.0",
        "(root.shape[-1] + 1) / 4.0",
        ("test_sde.py::test_a_step_of_a_pattern_has_its_drift_and_diffusion",),
    ),
    Mutant(
        "alibi-slopes-of-further-heads",
        "shaped_attention/blocks/positions.py",
        "2.0 ** (-4.0 * k / power) for k in range(1, 2 * (heads",
        "2.0 ** (-8.0 * k / power) for k in range(1, 2 * (heads",
        ("test_alibi.py",),
    ),
]
