"""Errors in the samplers, in what they share, and in the random numbers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CHAIN = "shaped_attention/chain.py"
_NETWORK = "shaped_attention/network.py"
_SDE = "shaped_attention/sde.py"
_EULER = "shaped_attention/euler.py"
_ENSEMBLE = "shaped_attention/ensemble.py"
_DRAWS = "shaped_attention/draws.py"
_STEP = "shaped_attention/kernels/sde.py"
_LANES = "shaped_attention/kernels/lanes.py"
_THREEFRY = "shaped_attention/kernels/threefry.py"
_WISHART = "shaped_attention/kernels/wishart.py"
_UNITS = "shaped_attention/sweep/units.py"

SAMPLERS = [
    # The common part of the SDE.
    Mutant("sde-diagonal-noise-too-small", _EULER, "mul_(math.sqrt(0.5))", "mul_(0.5)", blind=True),
    Mutant(
        "sde-correction-without-one", _EULER, "h * k * (m + 1) / 8.0", "h * k * m / 8.0", blind=True
    ),
    Mutant(
        "sde-noise-before-flow",
        _EULER,
        "0.5 * math.sqrt(k) * (R @ symmetric(lower))",
        "0.5 * math.sqrt(k) * (F @ symmetric(lower))",
        blind=True,
    ),
    Mutant(
        "sde-kernel-correction-without-one",
        _STEP,
        "correction = step * rate * (m + 1) / 8.0",
        "correction = step * rate * m / 8.0",
        blind=True,
    ),
    # Save times, stopping rule, step offsets, seeds, streams.
    Mutant(
        "save-every-without-last",
        _ENSEMBLE,
        "{*range(0, steps + 1, save_every), steps}",
        "{*range(0, steps + 1, save_every)}",
        blind=True,
    ),
    Mutant(
        "saved-times-in-steps-minus-one",
        _SDE,
        "keep = [wanted.index(i) for i in request.saved]",
        "keep = [max(wanted.index(i) - 1, 0) for i in request.saved]",
        blind=True,
    ),
    Mutant(
        "stop-one-layer-early",
        _CHAIN,
        "torch.where(stops, (step + 1) * request.dt, stopped_at)",
        "torch.where(stops, step * request.dt, stopped_at)",
        blind=True,
    ),
    Mutant(
        "stop-norm-without-mirror-entries",
        _LANES,
        "total += 2.0 * V[i, j, p] * V[i, j, p]",
        "total += V[i, j, p] * V[i, j, p]",
        blind=True,
    ),
    Mutant(
        "network-same-weights-in-every-layer",
        _NETWORK,
        "Draws(key, samples_here, step, i * SLOTS_PER_BLOCK, request.dtype)",
        "Draws(key, samples_here, 0, i * SLOTS_PER_BLOCK, request.dtype)",
        blind=True,
    ),
    Mutant(
        "chain-blocks-share-numbers",
        _CHAIN,
        "Draws(key, samples, step, i * SLOTS_PER_BLOCK, request.dtype)",
        "Draws(key, samples, step, 0, request.dtype)",
        blind=True,
    ),
    Mutant(
        "sweep-seed-ignored",
        _UNITS,
        "np.random.SeedSequence(sweep.seed, spawn_key=key)",
        "np.random.SeedSequence(0, spawn_key=key)",
        blind=True,
    ),
    Mutant(
        "network-in-chain-stream",
        _NETWORK,
        'stream_key(request.seed, "network")',
        'stream_key(request.seed, "chain")',
        blind=True,
    ),
    Mutant(
        "stream-parts-ignored",
        _DRAWS,
        "spawn_key=(STREAMS[stream], *integers)",
        "spawn_key=(STREAMS[stream],)",
        blind=True,
    ),
    # Random numbers.
    Mutant(
        "bartlett-dof-one-more",
        _DRAWS,
        "self.chi([dof - i for i in range(m)])",
        "self.chi([dof - i + 1 for i in range(m)])",
        blind=True,
    ),
    Mutant(
        "bartlett-kernel-dof-constant",
        _WISHART,
        "degrees[i] = dof - i",
        "degrees[i] = dof",
        blind=True,
    ),
    Mutant("chi-shape", _DRAWS, "0.5 * degrees - 1.0 / 3.0", "0.5 * degrees", blind=True),
    Mutant(
        "chi-kernel-acceptance",
        _THREEFRY,
        "< 0.5 * normal * normal + d",
        "< normal * normal + d",
        blind=True,
    ),
    Mutant(
        "box-muller-half-circle", _DRAWS, "angle = 2.0 * math.pi", "angle = math.pi", blind=True
    ),
    Mutant(
        "box-muller-kernel-no-sine",
        _THREEFRY,
        "return radius * cosine, radius * sine",
        "return radius * cosine, radius * cosine",
        blind=True,
    ),
    Mutant("threefry-parity", _THREEFRY, "0x1BD11BDAA9FC1A22", "0x1BD11BDAA9FC1A23", blind=True),
    Mutant(
        "threefry-rotation",
        _THREEFRY,
        "x0 + k2, x1 + k0 + _U64(2), _U64(16), _U64(42), _U64(12)",
        "x0 + k2, x1 + k0 + _U64(2), _U64(16), _U64(42), _U64(13)",
        blind=True,
    ),
]
