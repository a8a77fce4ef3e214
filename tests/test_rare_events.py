"""Probabilities of rare events by splitting, against exact laws down to 1e-9."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, ncx2

import shaped_attention as sa
from shaped_attention.numerics.covariance import vech
from shaped_attention.samplers.specification import specify
from shaped_attention.samplers.steppers import stepper_of
from shaped_attention.samplers.task import task_of
from shaped_attention.statistics.distances import generator_of
from shaped_attention.statistics.reaction import linear_rate, noise_scale, spread
from shaped_attention.statistics.splitting import Replicas, split

GAMMA, WIDTH, DEPTH = 0.5, 16, 12
K = GAMMA**2 * (2.0 - GAMMA**2)
ONE = sa.ShapedAttention(GAMMA)
V0 = np.eye(1)
CHAIN = {"width": WIDTH, "depth": DEPTH}
SDE = {"horizon": 0.6, "step": 0.05, "method": "direct"}
SPLITTING = {"estimator": "splitting", "radius": 1e30}
PAIR, PAIR_V0 = sa.ShapedAttention(0.5, 0.7), sa.equicorrelated(2, 0.2)


def increment(y, sampler):
    """Return the density of log V_{l+1} - log V_l for one token, where attention is linear.

    Chain: V'/V is gamma^2 / n times a noncentral chi^2 with n degrees of freedom. Euler's scheme:
    F'/F = 1 - k h / 4 + sqrt(k h / 2) g; its negative values have probability below 1e-15.
    """
    if sampler == "chain":
        scale = WIDTH / GAMMA**2
        return ncx2.pdf(np.exp(y) * scale, WIDTH, (1.0 - GAMMA**2) * scale) * np.exp(y) * scale
    h = SDE["step"]
    g = (np.exp(0.5 * y) - 1.0 + 0.25 * K * h) / math.sqrt(0.5 * K * h)
    return 0.5 * np.exp(0.5 * y - 0.5 * g**2) / math.sqrt(math.pi * K * h)


def exact(level, when="ever", sampler="chain", spacing=0.005):
    """Return P(log V reaches the level) for one token and V_0 = 1, by quadrature over the layers.

    The state is on a grid that ends at the level; the part above is a tail of the increment, or,
    at the end alone, the grid goes on to where nothing comes back.
    """
    steps = DEPTH if sampler == "chain" else round(SDE["horizon"] / SDE["step"])
    reach = round(2.5 / spacing)
    f = increment(spacing * np.arange(-reach, reach + 1), sampler) * spacing
    below = round(6.0 / spacing)
    above = 0 if when == "ever" else round(3.0 / spacing)
    # x = level + spacing * (i - below), i = 0, ..., below + above
    start = below - level / spacing
    assert abs(start - round(start)) < 1e-9
    tail = np.cumsum(f[::-1])[::-1] - 0.5 * f
    count = below + above + 1
    p = np.zeros(count)
    if when == "end":
        p[below + 1 :], p[below] = 1.0, 0.5
    for _ in range(steps):
        inner = p.copy()
        if when == "ever":
            inner[-1] *= 0.5
        padded = np.concatenate([np.zeros(reach), inner, np.full(reach, float(when == "end"))])
        p = np.convolve(padded, f[::-1], mode="valid")
        if when == "ever":
            far = np.arange(below, -1, -1) + reach
            p += np.where(far < len(tail), tail[np.minimum(far, len(tail) - 1)], 0.0)
    return float(p[round(start)])


def error_of(result, probability):
    """Return the distance of an estimate in standard errors."""
    return (float(result.probability) / probability - 1.0) / float(result.relative_error)


def estimate(level, **options):
    sampler = options.pop("sampler", "chain")
    return sa.rare_event(
        ONE, V0, "log V[0,0]", level,
        **(CHAIN if sampler == "chain" else SDE) | SPLITTING | options, progress=False,
    )  # fmt: skip


@pytest.mark.parametrize("sampler", ["chain", "sde"])
def test_the_exact_law_is_that_of_the_sampler(sampler):
    """50,000 plain paths at a level of probability 0.05: within 4 standard errors, 2 % each.

    Halving the spacing changes the value by less than 1e-4 of it.
    """
    paths = {"samples": 50_000, "save_every": 1, "keep": "observables", "seed": 7}
    run = sa.simulate_chain if sampler == "chain" else sa.integrate_sde
    kept = run(ONE, V0, **(CHAIN if sampler == "chain" else SDE), **paths)["kept"]
    x = kept.sel(observable="log V[0,0]").to_numpy()
    for when, found in (("ever", x[1:].max(axis=0)), ("end", x[-1])):
        p = exact(1.0, when, sampler)
        assert abs((found >= 1.0).mean() - p) < 4.0 * math.sqrt(p / len(found))
        assert abs(exact(1.0, when, sampler, 0.0025) / p - 1.0) < 1e-4


def ties(v, left):
    """Coarse: many replicas have the same score."""
    return np.floor(1.6 * np.log(v[:, 0, 0]))


def backwards(v, left):
    """Larger where the level is farther away."""
    return -np.log(v[:, 0, 0])


@pytest.mark.filterwarnings("ignore:replicas=16")  # Small runs may lose all replicas.
@pytest.mark.parametrize(
    ("coordinate", "when"), [(None, "ever"), (None, "end"), (ties, "ever"), (backwards, "ever")]
)
def test_the_mean_of_many_small_runs_is_the_probability(coordinate, when):
    """200 runs of 16 replicas at P = 0.04 or 0.025: within 4 standard errors of 4 to 12 %.

    So with any coordinate. The probability of the other kind of event, 1.6 times as large or
    small, is not within 4 standard errors with the coordinates that help.
    """
    result = estimate(
        1.25, when=when, replicas=16, runs=200, coordinate=coordinate, seed=3, confidence=0.9
    )
    assert abs(error_of(result, exact(1.25, when))) < 4.0
    if coordinate is not backwards:
        other = exact(1.25, "end" if when == "ever" else "ever")
        assert abs(error_of(result, other)) > 4.0


@pytest.mark.parametrize("when", ["ever", "end"])
@pytest.mark.parametrize(
    ("sampler", "level"), [("chain", 3.4), ("chain", 4.2), ("sde", 3.0), ("sde", 3.8)]
)
def test_probabilities_down_to_a_billionth(level, when, sampler):
    """10 runs at 1e-6 and 1e-9 within 4 standard errors of at most 12 %, at less than 1e5 paths.

    The layers' own law matters: that of the other sampler is rejected.
    """
    result = estimate(level, when=when, sampler=sampler, seed=1)
    p = exact(level, when, sampler)
    assert abs(error_of(result, p)) < 4.0
    assert float(result.relative_error) < 0.12
    assert float(result.cost) < 1e5
    lower, upper = result.interval.to_numpy()
    assert lower < float(result.probability) < upper
    other = exact(level, when, "sde" if sampler == "chain" else "chain")
    assert abs(error_of(result, other)) > 4.0


def grid(eager=False, layer=PAIR, v0=PAIR_V0, count=70):
    """Return specification and stepper of the chain of two tokens, with the seed 5."""
    with sa.eager() if eager else np.errstate():
        spec = specify(layer, v0, width=WIDTH, steps=DEPTH, dt=1.0 / WIDTH, samples=count, seed=5)
    return spec, stepper_of(spec, task_of(spec, "chain", WIDTH))


COMMON = {
    "layer": PAIR, "v0": PAIR_V0, "observable": "u", "level": 8.0, "replicas": 50, "runs": 4,
    "seed": 11, "progress": False,
}  # fmt: skip


@pytest.mark.portability
def test_threads_and_executors_do_not_change_it():
    """One or two threads give the same bits; torch the same replicas, to rounding."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = sa.rare_event(**COMMON, **CHAIN)
        torch.set_num_threads(2)
        shared = sa.rare_event(**COMMON, **CHAIN)
    finally:
        torch.set_num_threads(before)
    assert alone.drop_attrs().identical(shared.drop_attrs())
    with sa.eager():
        eager = sa.rare_event(**COMMON, **CHAIN)
    assert np.array_equal(eager["killed"], alone["killed"])
    np.testing.assert_allclose(eager["levels"], alone["levels"], rtol=1e-9)
    assert float(sa.rare_event(**COMMON | {"seed": 12}, **CHAIN).probability) != alone.probability


def test_large_matrices_give_the_replicas_of_torch():
    """96 tokens, which library routines move one by one."""
    call = {
        "layer": sa.ShapedAttention(0.3), "v0": np.eye(96), "observable": "log trace V",
        "level": 4.573, "replicas": 8, "runs": 2, "width": 128, "depth": 2, "progress": False,
    }  # fmt: skip
    compiled = sa.rare_event(**call)
    with sa.eager():
        eager = sa.rare_event(**call)
    assert np.array_equal(eager["killed"], compiled["killed"])
    np.testing.assert_allclose(eager["levels"], compiled["levels"], rtol=1e-9)


def largest_entry(v):
    return v.max(axis=(1, 2))


OBSERVABLES = {
    "u": ("u", lambda v: v[:, 0, 0] - 2.0 * v[:, 0, 1] + v[:, 1, 1], 8.0, True, "ever"),
    "norm": ("norm", lambda v: np.linalg.norm(v, axis=(1, 2)), 6.0, True, "ever"),
    "small norm": ("norm", lambda v: np.linalg.norm(v, axis=(1, 2)), 0.45, False, "ever"),
    "cosine": ("rho[0,1]", lambda v: sa.observables(v)["rho[0,1]"], 0.85, True, "end"),
    "determinant": ("log det V", lambda v: sa.observables(v)["log det V"], -4.0, False, "end"),
    "own": (largest_entry, largest_entry, 5.0, True, "ever"),
    "named": (f"{__name__}:largest_entry", largest_entry, 5.0, True, "end"),
}


@pytest.fixture(scope="module")
def plain_paths():
    return sa.simulate_chain(PAIR, PAIR_V0, **CHAIN, samples=40_000, seed=2, save_every=1)["V"]


@pytest.mark.parametrize("name", OBSERVABLES)
def test_plain_paths_give_the_same_probability(name, plain_paths):
    """40,000 plain paths, P between 0.003 and 0.08: within 4 errors of the difference, 7 % or less.

    The level's own factor on the observable, 1.2, changes P by more.
    """
    observable, function, level, above, when = OBSERVABLES[name]
    values = np.stack([function(x) for x in plain_paths.to_numpy()[1:]])
    values = values[-1:] if when == "end" else values
    p = float(((values >= level) if above else (values <= level)).any(axis=0).mean())
    assert 0.003 < p < 0.08
    options = {"above": above, "when": when, "replicas": 400, "runs": 10, "progress": False}

    def apart(at):
        result = sa.rare_event(PAIR, PAIR_V0, observable, at, **CHAIN, **options)
        error = math.hypot(float(result.relative_error), 1.0 / math.sqrt(p * 40_000))
        return abs(math.log(float(result.probability) / p)) / error

    assert apart(level) < 4.0
    assert apart(level * 1.2 if name != "cosine" else 0.9) > 4.0


def test_u_is_the_squared_distance_of_two_tokens_and_of_groups():
    """V_11 - 2 V_12 + V_22; two groups of equal tokens have the u of two tokens."""
    v = np.array([[[2.0, 0.3], [0.3, 1.0]]])
    np.testing.assert_allclose(spread(v), 2.0 - 0.6 + 1.0)
    np.testing.assert_allclose(spread(np.kron(v, np.ones((1, 3, 3)))), 2.4)


def test_attention_is_half_of_the_noise_at_its_scale():
    """At u = sqrt(2k/delta) the variance rate of u is 4 k u^2, twice the linear one."""
    layer = sa.ShapedAttention(0.6, 0.5, heads=2)
    u = noise_scale([[layer]])
    v = u * sa.equicorrelated(2, 0.5)
    slope = vech(np.array([[[1.0, -2.0], [-2.0, 1.0]]]))[0]
    exact = slope @ sa.diffusion(layer, v) @ slope
    assert 4.0 * linear_rate([[layer]]) * u**2 == pytest.approx(exact, rel=1e-12)


def flat(v, left):
    """Independent of V."""
    return -left


def test_a_coordinate_that_does_not_depend_on_the_state_is_rejected():
    """Splitting with it would be plain Monte Carlo: one generation kills all outside the event."""
    with pytest.raises(ValueError, match="coordinate must be a function that depends on V: it"):
        estimate(2.0, coordinate=flat)

    def plain(v, times, ended):
        return np.where(spread(v) >= 3.0, np.inf, times)

    run = split(Replicas(*grid(), 70, plain), generator_of(0, 0), lambda: None)
    u = sa.simulate_chain(PAIR, PAIR_V0, **CHAIN, samples=70, seed=5, save_every=1)["V"]
    hits = int((np.stack([spread(x) for x in u.to_numpy()[1:]]) >= 3.0).any(axis=0).sum())
    assert 5 < hits == run.hits
    assert run.probability == pytest.approx(hits / 70, rel=1e-12)


@pytest.mark.parametrize("estimator", ["splitting", "plain"])
def test_a_path_outside_the_radius_keeps_its_value(estimator):
    """At the end it counts with that value, as in the sampler, and nothing branches off it.

    160,000 plain paths: P within 4 errors of the difference, 2 to 3 %, and the share of paths that
    stopped before the last step within 4 errors, 4 % of 47 %; one in 14 stops in the last step. If
    paths branched off where others stopped, they would move on, and P would be 40 % larger.
    """
    call = {"level": 0.8, "radius": 1.8, "when": "end", "replicas": 400, "progress": False}
    call |= {"runs": 20, "estimator": estimator}
    with pytest.warns(UserWarning, match=r"4\d.* % of the paths in the event had stopped at"):
        result = sa.rare_event(PAIR, PAIR_V0, "rho[0,1]", **CHAIN, **call)
    plain = sa.simulate_chain(PAIR, PAIR_V0, **CHAIN, samples=160_000, seed=2, radius=1.8)
    event = sa.correlations(plain["V"].to_numpy()[-1])[:, 0, 1] >= 0.8
    p, hits = float(event.mean()), int(event.sum())
    error = math.hypot(float(result.relative_error), 1.0 / math.sqrt(hits))
    assert abs(float(result.probability) / p - 1.0) < 4.0 * error
    times = plain["stopping_time"].to_numpy()[event]
    early = float((times < 0.999 * float(plain["time"][-1])).mean())
    assert np.isfinite(times).mean() > early + 0.06
    error = math.sqrt(early * (1.0 - early) * (1.0 / hits + 1.0 / (400 * 20)))
    assert abs(float(result.stopped_share) - early) < 4.0 * error


def test_a_certain_event_has_the_probability_one():
    """Its interval ends there."""
    result = estimate(-3.0, when="end", replicas=50, runs=4)
    assert float(result.probability) == 1.0
    assert result.interval.to_numpy()[1] == 1.0
    assert float(result.cost) == 4 * 50 + 256


@pytest.mark.validation
def test_intervals_cover_the_probability():
    """100 intervals of 95 % at P = 0.002: at least 88 cover it, and 76 or fewer of 60 %.

    Of 4 runs, whose quantiles of Student's distribution are far from those of the normal one.

    Fewer than 88 have probability 0.4 % if 95 % cover; half as long ones, 67 % of which cover,
    pass with probability below 1e-4. The quick tests have one interval each.
    """
    p, covered, narrow = exact(2.0), 0, 0
    for seed in range(100):
        result = estimate(2.0, replicas=64, runs=4, seed=seed)
        lower, upper = result.interval.to_numpy()
        covered += lower <= p <= upper
        mean = float(result.probability)
        narrow += math.sqrt(lower * mean) <= p <= math.sqrt(mean * upper)
    assert covered >= 88
    assert binom.cdf(87, 100, 0.95) < 0.005
    assert narrow < 88
