"""Errors in the other blocks, and in the Gaussian branch that all share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BRANCH = "shaped_attention/blocks/branch.py"
_MLP = "shaped_attention/blocks/mlp.py"
_NORMALISED = "shaped_attention/blocks/normalised.py"
_DRAWS = "shaped_attention/draws.py"
_KERNELS_MLP = "shaped_attention/kernels/mlp.py"
_KERNELS_WISHART = "shaped_attention/kernels/wishart.py"

_CHAIN_PATHS = ("test_compiled.py::test_chain",)
_NORMALISED_LAWS = ("test_normalised.py",)
_SDE_PATHS = ("test_compiled.py::test_sde",)
_COUPLED_MLP_TESTS = ("test_coupling.py::test_the_sde_of_a_pair_has_the_law_of_the_sde[MLP]",)
_MLP_FLOW_TESTS = ("test_limit.py::test_flow_of_the_mlp_has_its_drift",)

BLOCKS = [
    Mutant(
        "branch-wishart-dof-width",
        _BRANCH,
        "draws.wishart_factor(columns, width - m)",
        "draws.wishart_factor(columns, width)",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "branch-skip-squared",
        _BRANCH,
        "along = math.sqrt(1.0 - gamma**2) * factor",
        "along = (1.0 - gamma**2) * factor",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "branch-kernel-wishart-dof-width",
        _KERNELS_WISHART,
        "fill_wishart(B, buffer, width - m, key, first, step, slot + 1)",
        "fill_wishart(B, buffer, width, key, first, step, slot + 1)",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "mlp-root-divides-by-width-less-one",
        _MLP,
        "(self._normalisation(width) / width))",
        "(self._normalisation(width) / (width - 1)))",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "mlp-branch-not-normalised",
        _MLP,
        "math.sqrt(self._normalisation(n) / n)",
        "math.sqrt(1.0 / n)",
        ("test_real_weights.py::test_mlp",),
        blind=True,
    ),
    Mutant(
        "mlp-normalisation-of-mean-slope",
        _MLP,
        "return 2.0 / (plus**2 + minus**2)",
        "return 4.0 / (plus + minus) ** 2",
        ("test_limit.py::test_finite_width_kernel_of_the_mlp",),
        blind=True,
    ),
    Mutant(
        "mlp-kappa-twice",
        _MLP,
        "(self.c_plus - self.c_minus) ** 2 / (2.0 * math.pi)",
        "(self.c_plus - self.c_minus) ** 2 / math.pi",
        ("test_limit.py::test_mlp_drift_is_zero_on_the_diagonal_and_known_at_zero_correlation",),
        blind=True,
    ),
    Mutant(
        "mlp-drift-sign-of-angle",
        _MLP,
        ".sqrt() - safe * torch.arccos(safe)",
        ".sqrt() + safe * torch.arccos(safe)",
        ("test_limit.py::test_mlp_drift_is_the_limit_of_the_exact_kernel",),
        blind=True,
    ),
    Mutant(
        "mlp-flow-angle",
        _MLP,
        "+ r * (math.pi - torch.arccos(r))",
        "+ r * torch.arccos(r)",
        _MLP_FLOW_TESTS,
        blind=True,
    ),
    Mutant(
        "mlp-coupling-dof",
        _MLP,
        "semidefinite_cholesky(numbers[0]), width), None",
        "semidefinite_cholesky(numbers[0]), width - 1), None",
        _COUPLED_MLP_TESTS,
        blind=True,
    ),
    Mutant(
        "mlp-kernel-slopes-swapped",
        _KERNELS_MLP,
        "(plus if hidden[i, p] > 0.0 else minus)",
        "(minus if hidden[i, p] > 0.0 else plus)",
        _CHAIN_PATHS,
        blind=True,
    ),
    Mutant(
        "mlp-kernel-flow-normalisation",
        _KERNELS_MLP,
        "(1.0 - decay) / math.pi * scale",
        "(1.0 - decay) / 3.0 * scale",
        _SDE_PATHS,
        blind=True,
    ),
    Mutant(
        "normalised-after-branch-sees-normalised",
        _NORMALISED,
        'seen = self._normalised(tokens) if self.place == "before" else tokens',
        "seen = self._normalised(tokens)",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-rms-over-width-less-one",
        _NORMALISED,
        "tokens.shape[-1] ** 0.5",
        "(tokens.shape[-1] - 1) ** 0.5",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-root-by-square",
        _NORMALISED,
        "seen = factor / _lengths(factor) if",
        "seen = factor / _lengths(factor) ** 2 if",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-groups-by-own-length",
        _NORMALISED,
        "_lengths(total_factor(new))[:, None]",
        "_lengths(new)",
        _NORMALISED_LAWS,
        blind=True,
    ),
    Mutant(
        "normalised-layer-mean-over-tokens",
        _NORMALISED,
        "tokens.mean(-1, keepdim=True)",
        "tokens.mean(-2, keepdim=True)",
        _NORMALISED_LAWS,
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
        "mlp-kernel-columns-reused",
        _KERNELS_MLP,
        "key, sample, step, slot, start * m // 2)",
        "key, sample, step, slot, 0)",
        ("test_compiled.py::test_chain_with_more_hidden_units_than_are_drawn_at_once",),
    ),
    Mutant(
        "mlp-kernel-branch-reuses-hidden-numbers",
        _KERNELS_MLP,
        "key, sample, step, slot + 1,",
        "key, sample, step, slot,",
        _CHAIN_PATHS,
    ),
    Mutant(
        "mlp-kernel-flow-rate",
        _MLP,
        "math.exp(-self._kappa * math.pi * step))\n",
        "math.exp(-self._kappa * step))\n",
        _SDE_PATHS,
    ),
    Mutant(
        "mlp-flow-normalisation",
        _MLP,
        "(1.0 - decay) / math.pi * kernel_matrix",
        "(1.0 - decay) / 3.0 * kernel_matrix",
        _MLP_FLOW_TESTS,
    ),
    Mutant(
        "mlp-coupling-gamma",
        _MLP,
        "return self.gamma**2 * wishart_noise",
        "return self.gamma * wishart_noise",
        _COUPLED_MLP_TESTS,
    ),
]
