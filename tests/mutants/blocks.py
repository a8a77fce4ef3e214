"""Errors in the other blocks, and in the Gaussian branch that all share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BASE = "shaped_attention/blocks/base.py"
_BRANCH = "shaped_attention/blocks/branch.py"
_DRAWS = "shaped_attention/numerics/draws.py"
_LIMIT = "shaped_attention/blocks/limit.py"
_MLP = "shaped_attention/blocks/mlp.py"
_MLP_LIMIT = "shaped_attention/blocks/mlp_limit.py"
_NAMED_NUMBERS = "shaped_attention/numerics/named_numbers.py"
_NORMALISED = "shaped_attention/blocks/normalised.py"
_NORMS = "shaped_attention/blocks/norms.py"
_STARTS = "shaped_attention/samplers/start_states.py"
_PARALLEL = "shaped_attention/blocks/parallel.py"
_PRIMITIVES = "shaped_attention/numerics/primitives.py"
_STEPS = "shaped_attention/samplers/steps.py"

_COUPLED_MLP_TESTS = ("test_coupling.py::test_the_sde_of_a_pair_has_the_law_of_the_sde[MLP]",)
_DRIFT_OF_SMOOTH = ("test_activations.py::test_the_drift_is_the_limit_of_the_exact_kernel",)
_FLOW_TESTS = ("test_limit.py::test_a_step_of_the_flow_keeps_v_positive_and_has_its_drift",)
_LAW_OF_FEW_COLUMNS = ("test_chain_law.py::test_members_and_edges_of_the_family[width m + 2]",)
_LAW_OF_MLPS = ("test_chain_law.py::test_chain_has_the_law_of_networks[mlp-2]",)
_LAW_OF_BOTH = ("test_chain_law.py::test_chain_has_the_law_of_networks[both-2]",)
_LIMIT_OF_PARALLEL = ("test_continuation.py::test_the_limit_of_parallel_branches",)
_LAW_OF_PARALLEL = ("test_continuation.py::test_parallel_branches_have_the_law_of_networks",)
_NORMALISED_LAWS = ("test_normalised.py::test_the_chain_has_the_law_of_networks",)
_LAYER_NORM_LAWS = ("test_layer_norm.py::test_the_chain_has_the_law_of_networks",)
_STEP_OF_A_PATTERN = ("test_sde.py::test_a_step_of_a_pattern_has_its_drift_and_diffusion",)

BLOCKS = [
    Mutant(
        "branch-wishart-dof-width",
        _BRANCH,
        'numbers.wishart("branch, orthogonal", inner, width - own, group)',
        'numbers.wishart("branch, orthogonal", inner, width, group)',
        _LAW_OF_FEW_COLUMNS,
        blind=True,
    ),
    Mutant(
        "skip-squared",
        _BASE,
        "return sqrt(1.0 - p.gamma**2)",
        "return 1.0 - p.gamma**2",
        ("test_real_weights.py::test_attention",),
        blind=True,
    ),
    Mutant(
        "branch-scaled-by-the-orthogonal-part",
        _BRANCH,
        "scale = weight / width**0.5",
        "scale = weight / (width - own) ** 0.5",
        _LAW_OF_FEW_COLUMNS,
        blind=True,
    ),
    Mutant(
        "mlp-root-divides-by-width-less-one",
        _MLP,
        "weight = self._normalisation(p, width) / units",
        "weight = self._normalisation(p, width) / (units - 1)",
        _LAW_OF_MLPS,
        blind=True,
    ),
    Mutant(
        "mlp-branch-not-normalised",
        _MLP,
        "sqrt(self._normalisation(p, n) / units)",
        "math.sqrt(1.0 / units)",
        ("test_real_weights.py::test_mlp",),
        blind=True,
    ),
    Mutant(
        "mlp-normalisation-of-mean-slope",
        _MLP,
        "return (plus**2 + minus**2) / 2.0",
        "return (plus + minus) ** 2 / 4.0",
        ("test_limit.py::test_finite_width_kernel_of_the_mlp",),
        blind=True,
    ),
    Mutant(
        "mlp-kappa-twice",
        _MLP_LIMIT,
        "return p.gamma**2 * (p.c_plus - p.c_minus) ** 2 / (2.0 * math.pi)",
        "return p.gamma**2 * (p.c_plus - p.c_minus) ** 2 / math.pi",
        ("test_limit.py::test_mlp_drift_is_zero_on_the_diagonal_and_known_at_zero_correlation",),
        blind=True,
    ),
    Mutant(
        "arc-cosine-sign-of-angle",
        _PRIMITIVES,
        "s * (math.pi - torch.arccos(s))",
        "s * (math.pi + torch.arccos(s))",
        ("test_limit.py::test_mlp_drift_is_the_limit_of_the_exact_kernel",),
        blind=True,
    ),
    Mutant(
        "arc-cosine-angle",
        _PRIMITIVES,
        "s * (math.pi - torch.arccos(s))",
        "s * torch.arccos(s)",
        ("test_limit.py::test_mlp_drift_is_the_limit_of_the_exact_kernel",),
        blind=True,
    ),
    Mutant(
        "mlp-coupling-dof",
        _MLP,
        "semidefinite_cholesky(gram), units)",
        "semidefinite_cholesky(gram), units - 1)",
        _COUPLED_MLP_TESTS,
        blind=True,
    ),
    Mutant(
        "mlp-slopes-swapped",
        _MLP,
        "return leaky(x, *self.slopes(p, width))",
        "return leaky(x, *self.slopes(p, width)[::-1])",
        ("test_real_weights.py::test_mlp",),
        blind=True,
    ),
    Mutant(
        "mlp-decay-by-three",
        _MLP_LIMIT,
        "return math.pi * _kappa(p)",
        "return 3.0 * _kappa(p)",
        ("test_limit.py::test_mlp_drift_is_zero_on_the_diagonal_and_known_at_zero_correlation",),
        blind=True,
    ),
    Mutant(
        "normalised-after-branch-sees-normalised",
        _NORMALISED,
        "seen = self._normalised(p, tokens, self.eps) if self._sees_normalised else tokens",
        "seen = self._normalised(p, tokens, self.eps)",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-rms-over-width-less-one",
        _NORMALISED,
        "p.gain * by_mean_square(tokens, eps)",
        "p.gain * by_mean_square(tokens, eps) * (1.0 - 1.0 / tokens.shape[-1]) ** 0.5",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-after-root-sees-normalised",
        _NORMALISED,
        "if not self._sees_normalised:\n            return factor",
        "if False:\n            return factor",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-groups-by-own-length",
        _NORMS,
        "unit_rows(concatenate(flat))",
        "concatenate([unit_rows(x) for x in flat]) / len(flat) ** 0.5",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-branch-after-its-weight",
        _NORMALISED,
        "branches(state, root, 1.0, width, numbers)",
        "branches(state, root, gamma, width, numbers)",
        ("test_normalised.py::test_eps_of_the_output_of_a_branch",),
    ),
    Mutant(
        "normalised-eps-outside-the-root",
        _NORMS,
        "sum(squares[1:], squares[0]) + eps)",
        "sum(squares[1:], squares[0])) + eps",
        ("test_normalised.py::test_eps_is_added_to_the_mean_square",),
    ),
    Mutant(
        "layer-norm-keeps-the-means",
        _NORMS,
        "first - mean",
        "first",
        _LAYER_NORM_LAWS,
    ),
    Mutant(
        "layer-norm-factor-loses-its-means",
        _BRANCH,
        "first, body = columns(along, 0, 1)",
        "first, body = 0.0 * columns(along, 0, 1)",
        _LAYER_NORM_LAWS,
    ),
    Mutant(
        "layer-norm-starts-without-means",
        _STARTS,
        "reflection[:, :, 0] = unit",
        "reflection[:, :, 0] = 0.0",
        ("test_layer_norm_start.py::test_tokens_start_with_uniformly_distributed_directions",),
    ),
    Mutant(
        "layer-norm-start-in-the-span-of-the-tokens",
        _STARTS,
        '"means of the start, orthogonal", 1, width - c, g',
        '"means of the start, orthogonal", 1, 1, g',
        ("test_layer_norm_start.py::test_tokens_start_with_uniformly_distributed_directions",),
    ),
    Mutant(
        "normalised-layer-mean-over-tokens",
        _NORMALISED,
        "tokens.mean(-1, keepdim=True)",
        "tokens.mean(-2, keepdim=True)",
        ("test_normalised.py::test_norms_are_those_of_torch",),
        blind=True,
    ),
    Mutant(
        "mlp-root-columns-reused",
        _DRAWS,
        "self.normals_at(slot, start * rows, here * rows)",
        "self.normals_at(slot, 0, here * rows)",
        ("test_numbers.py",),
    ),
    Mutant(
        "numbers-of-all-names-alike",
        _NAMED_NUMBERS,
        "hashlib.sha256(name.encode()).digest()",
        'hashlib.sha256(b"").digest()',
        _LAW_OF_MLPS,
    ),
    Mutant(
        "flow-decays-twice-as-fast",
        _STEPS,
        "return exponential(-step * decay), mean_decay",
        "return exponential(-2.0 * step * decay), mean_decay",
        _FLOW_TESTS,
    ),
    Mutant(
        "flow-grows-for-two-steps",
        _STEPS,
        "exponential(-step * decay), mean_decay(decay, step)",
        "exponential(-step * decay), mean_decay(decay, 2.0 * step)",
        _FLOW_TESTS,
    ),
    Mutant(
        "mlp-smooth-rows-without-one",
        _MLP_LIMIT,
        "(row_squares(factor) - 1.0) * factor",
        "row_squares(factor) * factor",
        _DRIFT_OF_SMOOTH,
    ),
    Mutant(
        "mlp-smooth-decay-of-one-part",
        _MLP_LIMIT,
        "both = self.outer + self.square",
        "both = self.square",
        _DRIFT_OF_SMOOTH,
    ),
    Mutant(
        "mlp-rate-of-the-inverse-ratio",
        _MLP_LIMIT,
        "return 1.0 / self.hidden_ratio - 1.0",
        "return self.hidden_ratio - 1.0",
        ("test_activations.py::test_the_linear_rate_of_any_ratio_of_hidden_units",),
    ),
    Mutant(
        "mlp-gate-without-bias",
        "shaped_attention/blocks/activations.py",
        "moved = function(inner if bias == 0.0 else inner + bias)",
        "moved = function(inner)",
        ("test_gates.py::test_gated_networks_can_be_trained",),
    ),
    Mutant(
        "mlp-coupling-of-the-gate",
        _MLP,
        "gram = gram[..., m:, m:]",
        "gram = gram[..., m:, :m]",
        ("test_gates.py::test_what_couples_chain_and_limit_is_a_brownian_motion",),
    ),
    Mutant(
        "mlp-coupling-gamma",
        _MLP,
        "noise = p.gamma**2 * wishart_noise",
        "noise = p.gamma * wishart_noise",
        _COUPLED_MLP_TESTS,
    ),
    Mutant(
        "branch-orthogonal-part-without-root",
        _BRANCH,
        "scale * (root @ rest)",
        "scale * rest",
        _LAW_OF_FEW_COLUMNS,
    ),
    Mutant(
        "branch-heads-share-a-root",
        _BRANCH,
        "factor, heads[g // share]",
        "factor, heads[0]",
        ("test_chain_law.py::test_members_and_edges_of_the_family[heads of width m]",),
    ),
    Mutant(
        "limit-default-rate-of-one-matrix",
        _LIMIT,
        "return 2.0 * p.gamma**2",
        "return p.gamma**2 * (2.0 - p.gamma**2)",
        ("test_symbolic_against_package.py::test_drift_and_diffusion[ours4-derived4-values4-2]",),
    ),
    Mutant(
        "numbers-of-all-blocks-alike",
        _NAMED_NUMBERS,
        "2**16 + len(place), *place, *words",
        "2**16 + len(place), *words",
        _LAW_OF_BOTH,
    ),
    Mutant(
        "parallel-square-of-the-sum-added",
        _PARALLEL,
        "2.0 * total - total**2 + beyond",
        "2.0 * total + total**2 + beyond",
        _LIMIT_OF_PARALLEL,
    ),
    Mutant(
        "parallel-beyond-without-square",
        _PARALLEL,
        "- 2.0 * square + square**2",
        "- 2.0 * square",
        _LIMIT_OF_PARALLEL,
    ),
    Mutant(
        "parallel-skip-squared",
        _PARALLEL,
        "return sqrt(1.0 - sum(q.gamma**2 for q in p.blocks))",
        "return 1.0 - sum(q.gamma**2 for q in p.blocks)",
        ("test_continuation.py::test_the_limit_of_parallel_branches",),
    ),
    Mutant(
        "parallel-branch-weight-squared",
        _PARALLEL,
        "q.gamma * block.branch(",
        "q.gamma**2 * block.branch(",
        _LAW_OF_PARALLEL,
    ),
    Mutant(
        "pattern-rate-of-all-layers",
        _STEPS,
        "self.rate: Any = self.share * sum(",
        "self.rate: Any = sum(",
        _STEP_OF_A_PATTERN,
    ),
    Mutant(
        "pattern-noise-by-share",
        _STEPS,
        "math.sqrt(self.share) * part",
        "self.share * part",
        _STEP_OF_A_PATTERN,
    ),
    Mutant(
        "pattern-drift-of-all-layers",
        _STEPS,
        "drift + self.share * part",
        "drift + part",
        _STEP_OF_A_PATTERN,
    ),
    Mutant(
        "step-correction-of-v",
        _STEPS,
        "(root.shape[-1] + 1) / 8.0",
        "(root.shape[-1] + 1) / 4.0",
        _STEP_OF_A_PATTERN,
    ),
]
