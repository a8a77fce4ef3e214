"""Errors in the samplers, in what they share, and in the random numbers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHAIN = "shaped_attention/chain.py"
_DRAWS = "shaped_attention/draws.py"
_ENSEMBLE = "shaped_attention/ensemble.py"
_EULER = "shaped_attention/euler.py"
_KERNELS_LANES = "shaped_attention/kernels/lanes.py"
_KERNELS_SDE = "shaped_attention/kernels/sde.py"
_KERNELS_THREEFRY = "shaped_attention/kernels/threefry.py"
_KERNELS_WISHART = "shaped_attention/kernels/wishart.py"
_NETWORK = "shaped_attention/network.py"
_RATES = "shaped_attention/rates.py"
_SDE = "shaped_attention/sde.py"
_SPHERE_CHAOS = "shaped_attention/sphere/chaos.py"
_SPHERE_ENSEMBLES = "shaped_attention/sphere/ensembles.py"
_SWEEP_UNITS = "shaped_attention/sweep/units.py"

_NUMBERS = ("test_numbers.py",)
_SDE_PATHS = ("test_compiled.py::test_sde",)
_COMPILED_STOPPING_TESTS = ("test_compiled.py::test_stopping",)
_SAVE_TIMES_TESTS = ("test_samplers.py::test_save_times_do_not_change_a_path",)

SAMPLERS = [
    Mutant(
        "sde-diagonal-noise-too-small",
        _EULER,
        "mul_(math.sqrt(0.5))",
        "mul_(0.5)",
        _SDE_PATHS,
        blind=True,
    ),
    Mutant(
        "sde-correction-without-one",
        _EULER,
        "h * k * (m + 1) / 8.0",
        "h * k * m / 8.0",
        _SDE_PATHS,
        blind=True,
    ),
    Mutant(
        "sde-noise-before-flow",
        _EULER,
        "0.5 * math.sqrt(k) * (R @ symmetric(lower))",
        "0.5 * math.sqrt(k) * (F @ symmetric(lower))",
        _SDE_PATHS,
        blind=True,
    ),
    Mutant(
        "sde-kernel-correction-without-one",
        _KERNELS_SDE,
        "correction = step * rate * (m + 1) / 8.0",
        "correction = step * rate * m / 8.0",
        _SDE_PATHS,
        blind=True,
    ),
    Mutant(
        "save-every-without-last",
        _ENSEMBLE,
        "{*range(0, steps + 1, save_every), steps}",
        "{*range(0, steps + 1, save_every)}",
        _SAVE_TIMES_TESTS,
        blind=True,
    ),
    Mutant(
        "saved-times-in-steps-minus-one",
        _SDE,
        "keep = [wanted.index(i) for i in request.saved]",
        "keep = [max(wanted.index(i) - 1, 0) for i in request.saved]",
        _SAVE_TIMES_TESTS,
        blind=True,
    ),
    Mutant(
        "stop-one-layer-early",
        _CHAIN,
        "torch.where(stops, (step + 1) * request.dt, stopped_at)",
        "torch.where(stops, step * request.dt, stopped_at)",
        _COMPILED_STOPPING_TESTS,
        blind=True,
    ),
    Mutant(
        "stop-norm-without-mirror-entries",
        _KERNELS_LANES,
        "total += 2.0 * V[i, j, p] * V[i, j, p]",
        "total += V[i, j, p] * V[i, j, p]",
        _COMPILED_STOPPING_TESTS,
        blind=True,
    ),
    Mutant(
        "network-same-weights-in-every-layer",
        _NETWORK,
        "Draws(key, samples_here, step, i * SLOTS_PER_BLOCK, request.dtype)",
        "Draws(key, samples_here, 0, i * SLOTS_PER_BLOCK, request.dtype)",
        ("test_oracles.py::test_network_of_one_token_has_its_finite_law",),
        blind=True,
    ),
    Mutant(
        "chain-blocks-share-numbers",
        _CHAIN,
        "Draws(key, samples, step, i * SLOTS_PER_BLOCK, request.dtype)",
        "Draws(key, samples, step, 0, request.dtype)",
        ("test_compiled.py::test_chain",),
        blind=True,
    ),
    Mutant(
        "sweep-seed-ignored",
        _SWEEP_UNITS,
        "derived_seed(sweep.seed, values, unit.block)",
        "derived_seed(0, values, unit.block)",
        ("test_sweep.py::test_a_unit_is_a_pure_function",),
        blind=True,
    ),
    Mutant(
        "network-in-chain-stream",
        _NETWORK,
        'stream_key(request.seed, "network")',
        'stream_key(request.seed, "chain")',
        ("test_samplers.py::test_each_sampler_has_a_stream_of_its_own",),
        blind=True,
    ),
    Mutant(
        "stream-parts-ignored",
        _DRAWS,
        "spawn_key=(STREAMS[stream], *integers)",
        "spawn_key=(STREAMS[stream],)",
        ("test_multilevel.py::test_levels_have_numbers_of_their_own",),
        blind=True,
    ),
    Mutant(
        "bartlett-dof-one-more",
        _DRAWS,
        "self.chi([dof - i for i in range(m)])",
        "self.chi([dof - i + 1 for i in range(m)])",
        _NUMBERS,
        blind=True,
    ),
    Mutant(
        "bartlett-kernel-dof-constant",
        _KERNELS_WISHART,
        "degrees[i] = dof - i",
        "degrees[i] = dof",
        _NUMBERS,
        blind=True,
    ),
    Mutant("chi-shape", _DRAWS, "0.5 * degrees - 1.0 / 3.0", "0.5 * degrees", _NUMBERS, blind=True),
    Mutant(
        "chi-kernel-acceptance",
        _KERNELS_THREEFRY,
        "< 0.5 * normal * normal + d",
        "< normal * normal + d",
        _NUMBERS,
        blind=True,
    ),
    Mutant(
        "box-muller-half-circle",
        _DRAWS,
        "angle = 2.0 * math.pi",
        "angle = math.pi",
        _NUMBERS,
        blind=True,
    ),
    Mutant(
        "box-muller-kernel-no-sine",
        _KERNELS_THREEFRY,
        "return radius * cosine, radius * sine",
        "return radius * cosine, radius * cosine",
        _NUMBERS,
        blind=True,
    ),
    Mutant(
        "threefry-parity",
        _KERNELS_THREEFRY,
        "0x1BD11BDAA9FC1A22",
        "0x1BD11BDAA9FC1A23",
        _NUMBERS,
        blind=True,
    ),
    Mutant(
        "threefry-rotation",
        _KERNELS_THREEFRY,
        "x0 + k2, x1 + k0 + _U64(2), _U64(16), _U64(42), _U64(12)",
        "x0 + k2, x1 + k0 + _U64(2), _U64(16), _U64(42), _U64(13)",
        _NUMBERS,
        blind=True,
    ),
    Mutant(
        "sde-kernel-diagonal-noise",
        _KERNELS_SDE,
        "weight = scale * math.sqrt(2.0) if i == j else scale",
        "weight = scale",
        _SDE_PATHS,
    ),
    Mutant(
        "sde-chunks-share-numbers",
        _EULER,
        "scale, self.key, self.first, step)",
        "scale, self.key, 0, step)",
        ("test_samplers.py::test_chunks_and_threads_do_not_change_a_result",),
    ),
    Mutant(
        "stop-network-one-layer-early",
        _NETWORK,
        "(step + 1) * request.dt, stopped_at)",
        "step * request.dt, stopped_at)",
        ("test_samplers.py::test_stopped_paths_keep_their_value",),
    ),
    Mutant(
        "rates-one-seed",
        _RATES,
        '"distances_by_width", "width": width',
        '"distances_by_width"',
        ("test_seeds.py::test_no_two_runs_of_a_sampler_have_one_seed[distances]",),
    ),
    Mutant(
        "chaos-sizes-share-numbers",
        _SPHERE_CHAOS,
        "SpherePart.PARTICLES, tokens)",
        "SpherePart.PARTICLES)",
        ("test_sphere_mean_field.py::test_starts_of_other_numbers_of_tokens_are_independent",),
    ),
    Mutant(
        "ensembles-in-the-stream-of-tokens",
        _SPHERE_ENSEMBLES,
        '"sphere", SpherePart.MATRICES)',
        '"sphere", SpherePart.TOKENS)',
        (
            "test_sphere_ensembles.py::test_matrices_are_independent_of_the_tokens_with_the_same_seed",
        ),
    ),
]
