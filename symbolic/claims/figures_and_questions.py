"""Claims of the captions of figures on clustering, and the questions left for later."""

from __future__ import annotations

from itertools import permutations

from sympy import Matrix, Rational, cancel

from symbolic.claims.gram_flow import velocity_by_weights
from symbolic.claims.inner_products import gram_symbols
from symbolic.claims.ledger import (
    Finding,
    Simulated,
    Verdict,
    at,
    imprecise,
    not_to_be_judged,
    note,
)

_EVENT = r"(\{\langle x_1(t), x_2(t) \rangle \geq 1 - \delta\})"
PROBABILITY = r"\mathbb{P}_{(x_1(0), \dots, x_n(0)) \sim \sigma_d} " + _EVENT
OF_ANY_PAIR = (
    r"\mathbb{P}_{(x_1(0), \dots, x_n(0)) \sim \sigma_d, i \neq j \text{ fixed}} " + _EVENT
)
"""The two probabilities in the caption of Figure 3, as printed."""


def is_equivariant(causal: bool) -> bool:
    """Return whether permuted tokens have permuted rates, for three tokens."""
    gram, weights = gram_symbols(3)
    plain = velocity_by_weights(gram, weights, causal)
    for order in permutations(range(3)):
        moved = [a.extract(order, order) for a in (gram, weights)]
        apart = velocity_by_weights(moved[0], moved[1], causal) - plain.extract(order, order)
        if apart.applyfunc(cancel) != Matrix.zeros(3, 3):
            return False
    return True


def _any_pair() -> Finding:
    return imprecise(
        "under full attention permuted tokens have permuted velocities (three tokens, symbols; not "
        "so under a causal mask), and the uniform start is exchangeable: every pair i != j has the "
        "same probability, and the histogram over all pairs estimates it without bias. As printed "
        "both sides are the probability of the same pair",
        part_that_holds=is_equivariant(causal=False),
        part_that_fails="x_i(t)" not in OF_ANY_PAIR and not is_equivariant(causal=True),
    )


def share_of_near_pairs(*sizes: int) -> Rational:
    """Return the share of pairs of different tokens that are in one cluster, from their sizes."""
    count = sum(sizes)
    return Rational(sum(size * (size - 1) for size in sizes), count * (count - 1))


def _single_point() -> Finding:
    halves = share_of_near_pairs(16, 16)
    return imprecise(
        "if all tokens are within the distance of a single point so is each pair, so that the "
        "plotted probability is at least that of a single cluster; for n = 32 tokens in two equal "
        f"clusters {halves} of the pairs are near, and it counts as {halves} where no single "
        "cluster is. The two agree where all tokens meet, as in high dimension",
        part_that_holds=share_of_near_pairs(32) == 1,
        part_that_fails=halves > 0,
    )


CLAIMS = [
    note(
        "figure-1-albert",
        "In trained ALBERT XLarge v2, with the same matrices in each layer, the inner products of "
        "tokens gather at 1 by the 24th layer, and more so after 48.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "it is about one set of trained weights (Hugging Face albert-xlarge-v2), which this "
            "project does not have. `figures/sphere_trained_histogram.py` draws the same picture "
            "from the hidden states of another trained model, which the package ships"
        ),
        at("004:246"),
    ),
    note(
        "figure-3-any-pair",
        "Figure 3: by permutation equivariance the probability that tokens 1 and 2 are close is "
        "that of any fixed pair i != j, and the average histogram over all pairs computes it.",
        Verdict.IMPRECISE,
        _any_pair,
        at("004:376", PROBABILITY, OF_ANY_PAIR),
        corrected="In the second probability write <x_i(t), x_j(t)> for <x_1(t), x_2(t)>.",
        why="True, but both sides print x_1 and x_2; it needs full attention, not a causal mask.",
    ),
    note(
        "figure-3-single-point",
        "Figure 3 plots the probability that the particles cluster to a single point, which is "
        "P(<x_1(t), x_2(t)> >= 1 - delta).",
        Verdict.IMPRECISE,
        _single_point,
        at("004:376", PROBABILITY),
        corrected="It plots the probability that two given particles are near each other, the mean "
        "share of near pairs. That all are near a single point has at most this probability.",
        why="Two clusters are no single point, but about half of the pairs are near each other.",
    ),
    note(
        "figure-3-curve",
        "Figure 3: the curve Gamma of (6.12) approximates the transition with increasing accuracy "
        "as d grows, as Theorem 6.9 implies (n = 32, delta = 10^-3).",
        Verdict.TESTED,
        Simulated(
            Verdict.TESTED,
            "the curve is the time at which orthogonal tokens (`equiangular-sa` from g = 0) reach "
            "1 - delta. In high dimension the simulated probability is 0 just before it and 1 "
            "just after; `figures/sphere_phase.py` draws the figure",
        ),
        at("004:376", r"\Gamma_{\infty, \delta}"),
        test="test_sphere_phase.py::test_phase_diagram_is_a_step_at_the_curve_in_high_dimension",
    ),
    note(
        "encoder-and-decoder",
        "How do encoder-only and decoder-only architectures compare? (left open)",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "a question, not a statement. `figures/sphere_encoder_decoder.py` compares them, "
            "and the page on clustering (docs/clustering.md) answers"
        ),
        at("004:382"),
    ),
    note(
        "mixture-distribution",
        "What does the distribution of the mixture look like? (left open)",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "a question, not a statement. The page on clustering (docs/clustering.md) answers with "
            "number and masses of the clusters"
        ),
        at("004:383"),
    ),
]
