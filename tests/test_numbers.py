"""The vector functions, the generator and the random matrices built from it."""

from __future__ import annotations

import ctypes

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

from shaped_attention.compiler import functions, random
from shaped_attention.compiler.emitter import Emitter
from shaped_attention.compiler.random import threefry as emit_threefry
from shaped_attention.numerics.draws import Draws, stream_key, threefry
from shaped_attention.numerics.fills import fill_normals, path_words
from shaped_attention.numerics.seeds import STREAMS
from tests.emitted import AVX2, SSE2, on_entries, random_numbers

KEY = stream_key(5, "chain")
FIRST, STEP, SLOT, LANES = 64, 7, 128, 64
PATHS = path_words(np.arange(FIRST, FIRST + LANES), STEP)


def exact(function: str, x: np.ndarray) -> np.ndarray:
    """A function of mpmath, to 30 digits and rounded once: libraries differ in the last bits."""
    with mpmath.workdps(30):
        return np.array([float(getattr(mpmath, function)(mpmath.mpf(float(t)))) for t in x])


UNIT = np.linspace(0.0, 1.0, 20_001)[:-1]
ACCURATE = {
    "log": ("log", np.concatenate([UNIT + 1e-12, 2.0 ** -np.arange(1.0, 53.0)]), 1e-15),
    "exp": ("exp", np.linspace(-700.0, 50.0, 20_001), 1e-15),
    "arccos": ("acos", 2.0 * UNIT - 1.0, 1e-14),
    "tanh": ("tanh", np.linspace(-9.0, 9.0, 20_000), 2e-15),
}


@pytest.mark.portability
@pytest.mark.parametrize("name", ACCURATE)
def test_functions_are_accurate_relative_to_their_values(name):
    """In double precision, and in single precision to 6 units in the last place."""
    twin, x, tolerance = ACCURATE[name]
    function = getattr(functions, name)
    for target in (None, AVX2, SSE2):
        ours = on_entries(function, x, target)
        assert np.abs(ours / exact(twin, x) - 1.0).max() < tolerance
    single = x[x > -80.0].astype(np.float32)
    np.testing.assert_allclose(
        on_entries(function, single), exact(twin, single), rtol=6 * 2.0**-23, atol=0.0
    )


@pytest.mark.portability
@pytest.mark.parametrize(("part", "twin"), [(0, "sinpi"), (1, "cospi")])
def test_sine_and_cosine_are_accurate_to_rounding(part, twin):
    """Of pi t in mpmath: the argument 2 pi t in doubles is already off by a rounding error."""
    for x, error in ((UNIT, 1e-15), (UNIT.astype(np.float32), 3e-7)):
        ours = on_entries(lambda e, x: functions.sincos_turns(e, x)[part], x)
        assert np.abs(ours - exact(twin, 2.0 * x)).max() < error


# The known answers published with the generator (Random123, kat_vectors).
KNOWN = [
    ((0, 0), (0, 0), (0xC2B6E3A8C2C69865, 0x6F81ED42F350084D)),
    ((2**64 - 1,) * 2, (2**64 - 1,) * 2, (0xE02CB7C4D95D277A, 0xD06633D0893B8B68)),
    (
        (0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x243F6A8885A308D3, 0x13198A2E03707344),
        (0x263C7D30BB0F0AF1, 0x56BE8361D3311526),
    ),
]


def emitted_words(key, counter):
    e = Emitter(lanes=1)

    def body():
        third = e.new("xor i64 %k0, %k1")
        third = e.new(f"xor i64 {third}, {np.uint64(random.PARITY).astype(np.int64)}")
        for k, word in enumerate(emit_threefry(e, ("%k0", "%k1", third), "%c0", "%c1")):
            e.store_as("i64", word, e.at("%out", k, "i64"))

    e.function([("ptr", "out"), *(("i64", x) for x in ("k0", "k1", "c0", "c1"))], body, name="run")
    out = np.empty(2, np.uint64)
    types = [ctypes.c_void_p, *[ctypes.c_uint64] * 4]
    e.compiled().function("run", *types)(out.ctypes.data, *key, *counter)
    return tuple(int(word) for word in out)


@pytest.mark.portability
@pytest.mark.parametrize(("key", "counter", "answer"), KNOWN)
def test_threefry_gives_the_published_answers(key, counter, answer):
    assert emitted_words(key, counter) == answer
    signed = [torch.tensor([np.uint64(c).astype(np.int64)]) for c in counter]
    twin = threefry(np.array(key, dtype=np.uint64), *signed)
    assert tuple(int(w) % 2**64 for w in twin) == answer


def test_streams_and_seeds_have_different_keys():
    keys = {tuple(stream_key(seed, name)) for seed in range(50) for name in STREAMS}
    assert len(keys) == 50 * len(STREAMS)
    assert len(set(STREAMS.values())) == len(STREAMS)


@pytest.fixture
def by_torch(monkeypatch):
    """Let torch make the numbers of `Draws`, as on a device."""
    monkeypatch.setattr(Draws, "_on_host", False)


def draws(samples: torch.Tensor | None = None) -> Draws:
    return Draws(
        KEY, torch.arange(FIRST, FIRST + LANES) if samples is None else samples, STEP, SLOT
    )


def numbers(kind, shape, integers, paths=LANES, dtype=np.float64, **named):
    """Random numbers of consecutive paths from emitted code."""
    places = {"first": FIRST, "step": STEP, **named}
    return random_numbers(kind, shape, integers, paths, KEY, dtype, **places)


@pytest.mark.portability
@pytest.mark.parametrize("count", [1, 2, 19, 64])
def test_normals_are_the_same_numbers_in_torch_and_compiled(count, by_torch):
    ours = numbers("normal", (1, count), (SLOT,))[:, 0]
    weights = np.empty((LANES, count))
    fill_normals(weights, KEY, PATHS, SLOT)
    twin = draws().normals_at(SLOT, 0, count).numpy()
    np.testing.assert_allclose(ours, twin, atol=5e-15)
    np.testing.assert_allclose(weights, twin, atol=5e-15)


@pytest.mark.portability
@pytest.mark.parametrize("count", [1, 70])
def test_draws_are_the_same_with_and_without_the_compiled_generator(count, monkeypatch):
    """Normals and Wishart factors for 70 samples from an odd one on, more than a tile of lanes."""
    found = []
    for on_host in (True, False):
        monkeypatch.setattr(Draws, "_on_host", on_host)
        some = draws(torch.arange(FIRST, FIRST + count))
        for _ in range(2):
            found.append([some.normal(3, 5), some.wishart_factor(4, 9)])
            found[-1].append(some.normals_beside_wishart(3, 2, 7))
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_normals_may_be_asked_for_in_pieces():
    whole = draws().normals_at(SLOT, 0, 40)
    parts = [draws().normals_at(SLOT, start, 10) for start in range(0, 40, 10)]
    assert torch.equal(torch.cat(parts, 1), whole)
    columns = torch.cat(list(draws().column_blocks(3, 13, 4)), -1)
    assert torch.equal(columns, draws().normals_at(SLOT, 0, 39).unflatten(1, (13, 3)).mT)


@pytest.mark.portability
@pytest.mark.parametrize("dof", [7, 8, 10**6])
def test_wishart_factors_are_the_same_numbers_in_torch_and_compiled(dof, by_torch):
    """In single precision the chi variables are those of double precision."""
    ours = numbers("wishart", (5, 5), (SLOT, dof))
    single = numbers("wishart", (5, 5), (SLOT, dof), dtype=np.float32)
    expected = ours[:, range(5), range(5)]
    np.testing.assert_allclose(single[:, range(5), range(5)], expected, rtol=2.0**-23)
    np.testing.assert_allclose(ours, draws().wishart_factor(5, dof).numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_normals_are_normal_and_neighbours_independent(dtype):
    """KS at 2 10^6 numbers (an error of 2 % of scale is rejected), and correlations of neighbours.

    Single precision has numbers of its own, four from a block; they are independent in a block too.
    """
    drawn = numbers("normal", (1, 100), (SLOT,), 20_480, np.dtype(dtype), first=0)
    x = drawn[:, 0].T.astype(np.float64)
    assert stats.kstest(x.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(1.02 * x.ravel(), "norm").pvalue < 1e-6  # negative control
    bound = 5.0 / np.sqrt(x.size)
    pairs = [(x[0::2], x[1::2]), (x[:-2], x[2:]), (x[0::4], x[3::4]), (x[:, :-1], x[:, 1:])]
    for a, b in pairs:
        assert abs(np.mean(a * b)) < bound * np.sqrt(x.size / a.size)
        assert abs(np.mean((a**2 - 1) * (b**2 - 1))) < 2 * bound * np.sqrt(x.size / a.size)


@pytest.mark.parametrize("dof", [2, 3, 5, 64, 10**6])
def test_chi_variables_have_their_law(dof):
    """KS of 80,000 squares, and of the law with one degree of freedom more (up to 64) rejected."""
    factors = numbers("wishart", (2, 2), (SLOT, dof + 1), 80_000, first=0)
    out = np.diagonal(factors, axis1=1, axis2=2).T
    square = out[1] ** 2
    assert stats.kstest(square, stats.chi2(dof).cdf).pvalue > 1e-3
    if dof <= 64:
        assert stats.kstest(square, stats.chi2(dof + 1).cdf).pvalue < 1e-6
    assert stats.kstest(out[0] ** 2, stats.chi2(dof + 1).cdf).pvalue > 1e-3


def test_the_normal_distribution_function_is_accurate_to_rounding():
    """Absolute everywhere, and relative in the tail, where 1 - Phi would lose all digits."""
    x = np.concatenate([np.linspace(-9.0, 9.0, 100_001), [-1e9, 1e9]])
    ours, exact = on_entries(functions.normal_cdf, x), special.ndtr(x)
    assert np.abs(ours - exact).max() < 2e-15
    tail = (x > -9.0) & (x < 0.0)
    assert np.abs(ours[tail] / exact[tail] - 1.0).max() < 5e-14
