"""Planted errors in random numbers, emitted code, samplers and the limit's steps."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RANDOM = "shaped_attention/compiler/random.py"
_DRAWS = "shaped_attention/numerics/draws.py"
_FACTORISATIONS = "shaped_attention/numerics/operations/factorisations.py"
_STEPS = "shaped_attention/samplers/steps.py"
_WISHART = "test_numbers.py::test_wishart_factors_are_the_same_numbers_in_torch_and_compiled[7]"
_EULER = "test_sde.py::test_it_is_a_hand_written_euler_loop[False]"

ENGINE = [
    Mutant(
        "threefry-rotation", _RANDOM, "((16, 42, 12, 31), ", "((16, 42, 12, 30), ",
        ("test_numbers.py::test_threefry_gives_the_published_answers[key0-counter0-answer0]",),
    ),
    Mutant(
        "box-muller-half-circle", _DRAWS, "angle = 2.0 * math.pi", "angle = math.pi",
        ("test_numbers.py::test_normals_are_the_same_numbers_in_torch_and_compiled[1]",),
    ),
    Mutant(
        "single-normals-share-a-radius", _RANDOM,
        "_single(e, low, 31, 1.0), _single(e, top, 24, 0.0)",
        "_single(e, low, 31, 1.0), _single(e, low, 24, 0.0)",
        ("test_numbers.py::test_normals_are_normal_and_neighbours_independent[float32]",),
    ),
    Mutant(
        "chi-accepts-all", _RANDOM, "good = _accepted(e, normals[k], words[1][k], cube, d)",
        "good = _accepted(e, normals[k], words[1][k], 1.0, d)", (_WISHART,),
    ),
    Mutant(
        "bartlett-dof-one-more", _DRAWS, "self.chi([dof - i for i in range(m)])",
        "self.chi([dof - i + 1 for i in range(m)])", (_WISHART,),
    ),
    Mutant(
        "normals-in-the-slot-of-the-head", "shaped_attention/numerics/named_numbers.py",
        "(scale,), (2 * head,)", "(scale,), (head,)", ("test_executors.py::test_chains",),
    ),
    Mutant(
        "exp-of-single-precision-a-bit-off", "shaped_attention/compiler/functions.py",
        '_BIAS = {"double": 1023, "float": 127}', '_BIAS = {"double": 1023, "float": 128}',
        ("test_numbers.py::test_functions_are_accurate_relative_to_their_values[exp]",),
    ),
    Mutant(
        "product-of-triangles-starts-late", "shaped_attention/compiler/matrices.py",
        "first = e.most(first, j)", "first = e.most(first, e.add(j, 1))",
        ("test_operations.py::test_products",),
    ),
    Mutant(
        "any-product-is-triangular", "shaped_attention/numerics/graph.py",
        "not any(turned) and self.node.lower and other.node.lower",
        "not any(turned) and (self.node.lower or other.node.lower)",
        ("test_executors.py::test_paths_are_seen_to_differ",),
    ),
    Mutant(
        "softmax-logits-unscaled", "shaped_attention/numerics/operations/softmax.py",
        "return e.fmul(s, a.load(e, i, j))", "return a.load(e, i, j)",
        ("test_operations.py::test_executors_agree[rolled-causal softmax]",),
    ),
    Mutant(
        "lower-level-of-squares", _FACTORISATIONS, "level = _level(e) ** 2", "level = _level(e)",
        ("test_factorisations.py::test_the_level_of_a_pivot[100.0-True]",),
    ),
    Mutant(
        "torch-lower-level-of-zero", _FACTORISATIONS,
        "zero = length - level * original[..., j] <= 0.0", "zero = length <= 0.0",
        ("test_factorisations.py::test_the_level_of_a_pivot[30.0-False]",),
    ),
    Mutant(
        "kernel-angle-of-its-absolute-value", "shaped_attention/numerics/reverse.py",
        "sign(ratio) * (0.5 * math.pi - 2.0 * half)", "(0.5 * math.pi - 2.0 * half)",
        ("test_reverse.py::test_gradients_are_those_of_torch[kernel]",),
    ),
    Mutant(
        "norm-without-mirror-entries", "shaped_attention/numerics/emission.py",
        "return [e.fma(x, x, sums[0])]", "return [e.fma(0.5, e.fmul(x, x), sums[0])]",
        ("test_executors.py::test_paths_are_seen_to_differ",),
    ),
    Mutant(
        "clock-arrives-a-step-early", "shaped_attention/numerics/clock_bursts.py",
        'e.compare("oeq", pieces, 1.0)', 'e.compare("ole", pieces, 2.0)',
        ("test_clock.py::test_executors_follow_the_same_paths[full]",),
    ),
    Mutant(
        "symmetric-noise-diagonal", "shaped_attention/numerics/operations/parts.py",
        "weight.fill_diagonal_(0.5**0.5)", "weight.fill_diagonal_(0.5)", (_EULER,),
    ),
    Mutant(
        "sde-correction-without-one", _STEPS, "(-(root.shape[-1] + 1) / 8.0",
        "(-root.shape[-1] / 8.0", (_EULER,),
    ),
    Mutant(
        "sde-noise-before-flow", _STEPS, "noise = parts.noise(root, numbers_at)",
        "noise = parts.noise(factor, numbers_at)",
        ("test_sde.py::test_the_noise_is_taken_after_the_flow",),
    ),
    Mutant(
        "network-same-weights-in-every-layer", "shaped_attention/samplers/network.py",
        "Draws(self._key, samples, layer, i * SLOTS_PER_BLOCK, self.dtype)",
        "Draws(self._key, samples, 0, i * SLOTS_PER_BLOCK, self.dtype)",
        ("test_oracles.py::test_network_of_one_token_has_its_finite_law",),
    ),
    Mutant(
        "network-in-chain-stream", "shaped_attention/samplers/network.py",
        'stream_key(spec.seed, "network")', 'stream_key(spec.seed, "chain")',
        ("test_samplers.py::test_each_sampler_has_a_stream_of_its_own[network]",),
    ),
    Mutant(
        "schedule-depth-to-the-last-layer", "shaped_attention/samplers/specification.py",
        "np.arange(self.steps, dtype=np.float64) / self.steps",
        "np.arange(1, self.steps + 1, dtype=np.float64) / self.steps",
        ("test_executors.py::test_chains",),
    ),
    Mutant(
        "widths-of-a-study-share-a-seed", "shaped_attention/statistics/rates.py",
        '"distances_by_width", "width": width', '"distances_by_width"',
        ("test_seeds.py::test_no_two_runs_of_a_sampler_have_one_seed[distances]",),
    ),
]  # fmt: skip
