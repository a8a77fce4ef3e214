"""Errors in the samplers, in what they share, and in the random numbers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DRAWS = "shaped_attention/numerics/draws.py"
_NETWORK = "shaped_attention/samplers/network.py"
_PATHS = "shaped_attention/samplers/paths.py"
_TORCH = "shaped_attention/samplers/steppers/torch_descriptions.py"
_PROVENANCE = "shaped_attention/results/provenance.py"
_RATES = "shaped_attention/statistics/rates.py"
_ARGUMENTS = "shaped_attention/samplers/arguments.py"
_STEPS = "shaped_attention/samplers/steps.py"
_SPECIFICATION = "shaped_attention/samplers/specification.py"

SAMPLERS = [
    Mutant(
        "sde-diagonal-noise-too-small",
        "shaped_attention/numerics/operations/parts.py",
        "weight.fill_diagonal_(0.5**0.5)",
        "weight.fill_diagonal_(0.5)",
        ("test_sde.py::test_it_is_a_hand_written_euler_loop[False]",),
    ),
    Mutant(
        "sde-correction-without-one",
        _STEPS,
        "(-(root.shape[-1] + 1) / 8.0",
        "(-root.shape[-1] / 8.0",
        ("test_sde.py::test_it_is_a_hand_written_euler_loop[False]",),
    ),
    Mutant(
        "sde-noise-before-flow",
        _STEPS,
        "noise = parts.noise(root, numbers_at)",
        "noise = parts.noise(factor, numbers_at)",
        ("test_sde.py::test_the_noise_is_taken_after_the_flow",),
    ),
    Mutant(
        "save-every-without-last",
        _ARGUMENTS,
        "return tuple(sorted({*regular, steps}))",
        "return tuple(regular)",
        ("test_samplers.py::test_save_times_do_not_change_a_path[network]",),
    ),
    Mutant(
        "saved-times-overshot",
        "shaped_attention/samplers/steppers/compiled.py",
        "min(begin + budget, end), self.spec",
        "begin + budget, self.spec",
        ("test_samplers.py::test_save_times_do_not_change_a_path[chain]",),
    ),
    Mutant(
        "stop-one-layer-early",
        _PATHS,
        "np.where(arrived, self.grid * dt, now",
        "np.where(arrived, (self.grid - 1) * dt, now",
        ("test_compiled.py::test_stopping[chain]",),
    ),
    Mutant(
        "stop-torch-norm-without-mirror-entries",
        _TORCH,
        "norms = torch.linalg.matrix_norm(v)",
        "norms = torch.linalg.matrix_norm(v.tril())",
        ("test_compiled.py::test_stopping[sde]",),
    ),
    Mutant(
        "network-same-weights-in-every-layer",
        _NETWORK,
        "Draws(self._key, samples, layer, i * SLOTS_PER_BLOCK, self.dtype)",
        "Draws(self._key, samples, 0, i * SLOTS_PER_BLOCK, self.dtype)",
        ("test_oracles.py::test_network_of_one_token_has_its_finite_law",),
    ),
    Mutant(
        "torch-same-numbers-in-every-step",
        _TORCH,
        "keys, samples, step, dtype, place=place, increments=increments",
        "keys, samples, 0, dtype, place=place, increments=increments",
        ("test_sde.py::test_it_is_a_hand_written_euler_loop[False]",),
    ),
    Mutant(
        "network-in-chain-stream",
        _NETWORK,
        'stream_key(spec.seed, "network")',
        'stream_key(spec.seed, "chain")',
        ("test_samplers.py::test_each_sampler_has_a_stream_of_its_own[network]",),
    ),
    Mutant(
        "stream-parts-ignored",
        _DRAWS,
        "spawn_key=(STREAMS[stream], *integers)",
        "spawn_key=(STREAMS[stream],)",
        ("test_golden_paths.py::test_paths_are_those_that_were_frozen",),
    ),
    Mutant(
        "bartlett-dof-one-more",
        _DRAWS,
        "self.chi([dof - i for i in range(m)])",
        "self.chi([dof - i + 1 for i in range(m)])",
        ("test_numbers.py::test_wishart_factors_are_the_same_numbers_in_torch_and_compiled[7]",),
    ),
    Mutant(
        "a-branch-of-one-row-is-repeated",
        "shaped_attention/checks.py",
        "tuple(shape)[-2:] != expected:",
        "tuple(shape)[-1:] != expected[-1:]:",
        ("test_refused_branches.py::test_a_branch_has_a_row_for_each_token",),
    ),
    Mutant(
        "masks-of-any-shape",
        "shaped_attention/numerics/operations/softmax.py",
        "if shape != expected or",
        "if shape[:0] != expected[:0] or",
        ("test_block_shapes.py::test_shapes_that_do_not_fit_are_errors",),
    ),
    Mutant(
        "columns-beyond-a-matrix",
        "shaped_attention/numerics/operations/parts.py",
        "if not 0 <= start <= stop <= count:",
        "if not 0 <= start <= stop:",
        ("test_block_shapes.py::test_shapes_that_do_not_fit_are_errors",),
    ),
    Mutant(
        "bartlett-rows-that-begin-with-the-same-numbers",
        "shaped_attention/numerics/fills.py",
        "flat[:, _below(m)] = below",
        "flat[:, _below(m)] = below[:, np.tril_indices(m, -1)[1]]",
        ("test_numbers.py::test_draws_are_the_same_with_and_without_the_compiled_generator[70]",),
    ),
    Mutant(
        "bartlett-kernel-dof-constant",
        "shaped_attention/compiler/random.py",
        'dof = e.new(f"fsub double %dof, {number}")',
        'dof = e.new(f"fsub double %dof, 0.0")',
        ("test_numbers.py::test_wishart_factors_are_the_same_numbers_in_torch_and_compiled[7]",),
    ),
    Mutant(
        "chi-shape",
        _DRAWS,
        "0.5 * degrees - 1.0 / 3.0",
        "0.5 * degrees",
        ("test_numbers.py::test_draws_are_the_same_with_and_without_the_compiled_generator[1]",),
    ),
    Mutant(
        "chi-kernel-acceptance",
        "shaped_attention/compiler/random.py",
        "e.fmul(e.fmul(0.5, normal), normal)",
        "e.fmul(normal, normal)",
        ("test_numbers.py::test_draws_are_the_same_with_and_without_the_compiled_generator[70]",),
    ),
    Mutant(
        "box-muller-half-circle",
        _DRAWS,
        "angle = 2.0 * math.pi",
        "angle = math.pi",
        ("test_numbers.py::test_normals_are_the_same_numbers_in_torch_and_compiled[1]",),
    ),
    Mutant(
        "box-muller-kernel-no-sine",
        "shaped_attention/compiler/random.py",
        "return e.fmul(radius, cosine), e.fmul(radius, sine)",
        "return e.fmul(radius, cosine), e.fmul(radius, cosine)",
        ("test_numbers.py::test_normals_are_the_same_numbers_in_torch_and_compiled[2]",),
    ),
    Mutant(
        "threefry-parity",
        "shaped_attention/compiler/random.py",
        "0x1BD11BDAA9FC1A22",
        "0x1BD11BDAA9FC1A23",
        ("test_numbers.py::test_threefry_gives_the_published_answers[key0-counter0-answer0]",),
    ),
    Mutant(
        "threefry-rotation",
        "shaped_attention/compiler/random.py",
        "((16, 42, 12, 31), ",
        "((16, 42, 12, 30), ",
        ("test_numbers.py::test_threefry_gives_the_published_answers[key0-counter0-answer0]",),
    ),
    Mutant(
        "sde-noise-by-rate",
        _STEPS,
        "(0.5 * sqrt(self.rate)) * symmetric_noise",
        "(0.5 * self.rate) * symmetric_noise",
        ("test_sde.py::test_it_is_a_hand_written_euler_loop[False]",),
    ),
    Mutant(
        "sde-chunks-share-numbers",
        "shaped_attention/samplers/steppers/compiled.py",
        "paths.first, begin, ends",
        "0, begin, ends",
        ("test_samplers.py::test_chunks_and_threads_do_not_change_a_result[layer0-float64-chain]",),
    ),
    Mutant(
        "rates-one-seed",
        _RATES,
        '"distances_by_width", "width": width',
        '"distances_by_width"',
        ("test_seeds.py::test_no_two_runs_of_a_sampler_have_one_seed[distances]",),
    ),
    Mutant(
        "overflow-to-nan-not-seen",
        _PATHS,
        "moving & ~(size < stepper.largest_factor)",
        "moving & (size >= stepper.largest_factor)",
        ("test_sde.py::test_overflow_stops_a_path_before_it_is_nan[float32]",),
    ),
    Mutant(
        "overflow-seen-too-late",
        _PATHS,
        "size = stepper.absolute_sums(new)",
        "size = stepper.absolute_sums(self.state)",
        ("test_sde.py::test_overflow_stops_a_path_before_it_is_nan[float32]",),
    ),
    Mutant(
        "schedule-depth-to-the-last-layer",
        _SPECIFICATION,
        "np.arange(self.steps, dtype=np.float64) / self.steps",
        "np.arange(1, self.steps + 1, dtype=np.float64) / self.steps",
        ("test_large.py::test_chain[both-40-80]",),
    ),
    Mutant(
        "schedule-of-the-torch-limit-by-step",
        _TORCH,
        "at_depth(block, point / spec.steps, of_block)",
        "at_depth(block, (point + 1) / spec.steps, of_block)",
        ("test_large.py::test_sde[both-40]",),
    ),
    Mutant(
        "schedule-of-the-torch-chain-in-another-layer",
        _TORCH,
        "blocks = self.spec, self.spec.pattern[layer]",
        "blocks = self.spec, self.spec.pattern[-1 - layer]",
        ("test_pathwise.py::test_blocks_inside_blocks_and_patterns",),
    ),
    Mutant(
        "pathwise-values-of-another-layer",
        "shaped_attention/blocks/overrides.py",
        "else overrides[layer]",
        "else overrides[-1 - layer]",
        ("test_pathwise.py::test_a_value_for_each_layer",),
    ),
    Mutant(
        "pathwise-mean-over-heads-missing",
        "shaped_attention/samplers/pathwise.py",
        "covariance(State(paths.state.unbind(1)))",
        "covariance(State(paths.state.unbind(1)[:1]))",
        ("test_pathwise.py::test_values_are_those_of_the_samplers[heads-chain]",),
    ),
    Mutant(
        "starts-of-the-same-numbers",
        "shaped_attention/samplers/arguments.py",
        'and v0.attrs.get("sampler") == sampler',
        "and False",
        ("test_starts.py::test_a_start_knows_its_sampler_and_seed_from_a_file_too",),
    ),
    Mutant(
        "record-without-defaults",
        _PROVENANCE,
        "bound.apply_defaults()",
        "pass",
        ("test_provenance.py::test_numbers_among_the_arguments_are_attributes",),
    ),
    Mutant(
        "record-names-any-function",
        _PROVENANCE,
        "if function is None or function not in _functions.values():",
        "if function is None:",
        ("test_records.py::test_records_that_were_tampered_with_are_refused",),
    ),
    Mutant(
        "record-loses-the-type-of-numbers",
        "shaped_attention/results/plain_arguments.py",
        "np.array(entries, dtype=dtype)",
        "np.array(entries, dtype=float)",
        (
            "test_provenance.py::test_a_record_is_valid_and_its_call_gives_the_same_bits"
            "[record_covariances]",
        ),
    ),
    Mutant(
        "record-of-numpy-numbers-the-call-did-not-have",
        _PROVENANCE,
        "value.item() if isinstance(value, np.generic) else value",
        "value",
        ("test_provenance.py::test_a_call_computes_with_the_numbers_that_are_recorded",),
    ),
]
