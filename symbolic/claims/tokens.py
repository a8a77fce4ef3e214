"""Claims on a prompt as a measure: what it keeps of the tokens, and the map of measures.

Tokens are points with rational coordinates, and the attention of a measure is evaluated exactly for
Q = K = V = I.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations

from sympy import Expr, Integer, Matrix, Rational, Symbol, exp, limit, oo, pi

from symbolic.claims.ledger import (
    Finding,
    Verdict,
    at,
    imprecise,
    not_to_be_judged,
    note,
    refuted,
    tested,
)

Point = tuple[int, ...]
A, B, C = (1, 0), (1, 1), (0, 2)


def empirical(tokens: Sequence[Point]) -> dict[Point, Rational]:
    """Return the masses of (1/n) sum of point masses."""
    return {x: Rational(count, len(tokens)) for x, count in Counter(tokens).items()}


def attended(measure: Mapping[Point, Expr], x: Point) -> Matrix:
    """Return the average of y with weights exp(<x, y>) by a measure."""
    kernel = {y: mass * exp(Matrix(x).dot(Matrix(y))) for y, mass in measure.items()}
    total = sum(kernel.values())
    return sum((k * Matrix(y) for y, k in kernel.items()), Matrix.zeros(len(x), 1)) / total


def token_velocity(tokens: Sequence[Point], i: int, causal: bool = False) -> Matrix:
    """Return the softmax average that token i of a list sees, token by token."""
    seen = tokens[: i + 1] if causal else tokens
    kernel = [exp(Matrix(tokens[i]).dot(Matrix(y))) for y in seen]
    moved = sum((k * Matrix(y) for k, y in zip(kernel, seen, strict=True)), Matrix.zeros(2, 1))
    return moved / sum(kernel)


def same(a: Matrix, b: Matrix) -> bool:
    """Return whether two exact vectors are equal."""
    return all(entry.simplify() == 0 for entry in a - b)


def apart(a: Matrix, b: Matrix) -> bool:
    """Return whether two exact vectors differ, by their values."""
    return any(abs(entry.evalf()) > 1e-6 for entry in a - b)


def _position_encodings() -> Finding:
    order, other = (A, B, C), (B, A, C)
    words, places = (A, C), ((0, 0), (3, 5))

    def prompt(first: Point, second: Point) -> list[Point]:
        pairs = zip((first, second), places, strict=True)
        return [(x[0] + p[0], x[1] + p[1]) for x, p in pairs]

    return imprecise(
        "under full attention the velocity of a token is the same in all orders of three tokens: "
        "only encodings can show the order (two words exchanged then give another measure); causal "
        "attention moves the same token differently in another order, without encodings; two "
        "tokens of R^2 have 4 coordinates",
        part_that_holds=all(
            same(token_velocity(p, p.index(A)), token_velocity(order, 0))
            for p in permutations(order)
        )
        and empirical(prompt(*words)) != empirical(prompt(*words[::-1])),
        part_that_fails=apart(
            token_velocity(order, 0, causal=True), token_velocity(other, 1, causal=True)
        )
        and len(Matrix([A, B])) == 4,
    )


def _list_and_measure() -> Finding:
    measures = [empirical(p) for p in permutations((A, A, B))]
    return imprecise(
        "all orders of (a, a, b), and the prompt (a, a, b, a, a, b), have the measure with masses "
        "2/3 and 1/3; (a, b) has another. So the measure keeps tokens and proportions, neither "
        "order nor number",
        part_that_holds=measures[0] == {A: Rational(2, 3), B: Rational(1, 3)}
        and measures[0] != empirical((A, B)),
        part_that_fails=all(m == measures[0] for m in measures)
        and empirical((A, A, B) * 2) == measures[0],
    )


def _indicator() -> Finding:
    measure = empirical((A, A, B))
    return imprecise(
        "for the prompt (a, a, b): mass 0 where there is no token, but 2/3 at a and 1/3 at b, "
        "where an indicator is 1 at both",
        part_that_holds=measure.get(C, Integer(0)) == 0 and min(measure.values()) > 0,
        part_that_fails=measure[A] != measure[B] and sum(measure.values()) == 1,
    )


def _labels() -> Finding:
    """Compare with a language in which a follows b, and b follows a."""
    following = {A: B, B: A}
    first, second = (A, B), (B, A)
    output = [Matrix(first[i]) + token_velocity(first, i) for i in range(2)]
    return refuted(
        "where a and b alternate, the prompts (a, b) and (b, a) have the same measure and other "
        "next tokens, so the measure of the prompt is no likelihood of the next one; after one "
        "step of attention no token is at a or b, so the output is not the distribution of the "
        "tokens in the prompt, which by 002:24 and 002:36 is the measure at time 0",
        claim_fails=empirical(first) == empirical(second)
        and following[first[-1]] != following[second[-1]]
        and all(apart(moved, Matrix(y)) for moved in output for y in first),
        correction_holds=empirical(first) == {x: Rational(first.count(x), 2) for x in first},
    )


def _map_of_measures() -> Finding:
    y = Symbol("y", positive=True)
    prompts = ((A, A, B), (B, A, A), (A, A, B) * 2)
    speeds = [token_velocity(p, p.index(A)) for p in prompts]
    return imprecise(
        "prompts with one measure move a token at the same place in the same way; with the Cauchy "
        "law the normaliser int e^y dy / (pi (1 + y^2)) is infinite, since its integrand is "
        "unbounded, so the map is not defined on all measures; causal attention moves the first "
        "and the second copy of (a, b) and (b, a) differently",
        part_that_holds=all(same(speed, speeds[0]) for speed in speeds),
        part_that_fails=limit(exp(y) / (pi * (1 + y**2)), y, oo) == oo
        and apart(token_velocity((A, B), 0, causal=True), token_velocity((B, A), 1, causal=True)),
    )


def _mean_field() -> Finding:
    prompts = ((A,), (A, B), (A, A, B), (C, A, C, B), (A, B, C, B, B))
    return tested(
        "lists of 1 to 5 tokens, some of them repeated: the velocity as a sum over the list is the "
        "attention of the empirical measure at the token's place, exactly",
        *[
            same(token_velocity(tokens, i), attended(empirical(tokens), tokens[i]))
            for tokens in prompts
            for i in range(len(tokens))
        ],
    )


def _of_the_others() -> Finding:
    without = {y: mass for y, mass in empirical((A, B)).items() if y != A}
    return imprecise(
        "the velocity is a function of the whole measure, the token's own mass included: with one "
        "token there are no others and the velocity is x, not 0; with two it is not that of the "
        "other token's measure",
        part_that_holds=same(token_velocity((A, B), 0), attended(empirical((A, B)), A)),
        part_that_fails=same(token_velocity((A,), 0), Matrix(A))
        and apart(token_velocity((A, B), 0), attended(without, A)),
    )


CLAIMS = [
    note(
        "tokens-have-position-encodings",
        "The input (x_1, ..., x_n) is in R^d; tokens have position encodings.",
        Verdict.IMPRECISE,
        _position_encodings,
        at("002:22", r"(x_1, x_2, \dots, x_n) \in \mathbb{R}^d"),
        corrected="The input is in (R^d)^n. Full attention sees the order of the tokens only "
        "from position encodings; causal attention sees the order without them.",
        why="n vectors have n d coordinates; encodings are needed for full attention only.",
    ),
    note(
        "tokens-as-a-measure",
        "A list of tokens and the measure (1/n) sum of point masses are equivalent.",
        Verdict.IMPRECISE,
        _list_and_measure,
        at("002:24", r"\Leftrightarrow \frac{1}{n} \sum_{i=1}^n \delta x_i"),
        corrected="The measure determines the tokens up to their order, and how often each "
        "occurs up to a common factor. The order is kept if each token contains its position.",
        why="Permuted prompts, and a prompt repeated as a whole, have the same measure.",
    ),
    note(
        "labels-of-input-and-output",
        "The measure of the prompt is the likelihood of the next token, and the output is the "
        "empirical distribution of the tokens in the prompt.",
        Verdict.FALSE,
        _labels,
        at("002:26", r"\Rightarrow likelihood of token being next"),
        at("002:30", r"\Rightarrow empirical dist. of tokens in prompt"),
        corrected="Exchange the labels: the input is the empirical distribution of the tokens in "
        "the prompt; the likelihood of the next token is computed from the output (by the "
        "unembedding and a softmax over the vocabulary).",
        why="The two labels are exchanged: by lines 24 and 36 mu(0) is the empirical distribution.",
    ),
    note(
        "output-predicts-the-next-token",
        "The output of a transformer predicts the next token.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "what a model is trained for is a choice: decoders predict the next token, encoders "
            "such as ALBERT masked ones"
        ),
        at("002:28"),
    ),
    note(
        "transformer-maps-measures",
        "A transformer is a flow map from mu(0) to mu(T), from all probability measures on R^d to "
        "themselves.",
        Verdict.IMPRECISE,
        _map_of_measures,
        at("002:32", r"f_0: \mu(0) \rightarrow \mu(T)"),
        at("002:34", r"\mu(\mathbb{R}^d) \rightarrow \mu(\mathbb{R}^d)"),
        corrected="Full attention in continuous time is a map of measures with compact support, "
        "or on the "
        "sphere; write P_c(R^d) for that set, since mu(R^d) is the number 1. With causal "
        "attention the measure must keep the order of the tokens.",
        why="The normaliser is infinite for heavy tails; causal attention depends on the order.",
    ),
    note(
        "point-masses-as-indicators",
        "In mu(0) = (1/n) sum delta x_i the delta indicates that there is a token at x_i.",
        Verdict.IMPRECISE,
        _indicator,
        at("002:36", r"\mu(0) = \frac{1}{n} \sum_{i=1}^n \delta x_i"),
        corrected="delta_{x_i} is the unit mass at x_i; mu(0) at a point is the fraction of "
        "tokens there.",
        why="Masses add: two equal tokens have the mass 2/n, where an indicator is 1.",
    ),
    note(
        "mean-field-system",
        "Self-attention is a mean-field system: x_i' = X_t[mu(t)](x_i), with the measure mu(t) of "
        "the tokens.",
        Verdict.TESTED,
        _mean_field,
        at("002:38"),
        at("002:40", r"\dot{x}_i(t) = X_t[\mu(t)](x_i(t)) \quad i=1, 2, \dots, n"),
        at("002:57", r"X_t[\mu(t)](\cdot)"),
    ),
    note(
        "mean-field-of-the-others",
        "The rate of change depends on the distribution of all the other tokens.",
        Verdict.IMPRECISE,
        _of_the_others,
        at("002:42-43"),
        corrected="It depends on the distribution of all tokens, the token itself included.",
        why="A token also attends to itself: a single token has the velocity V x.",
    ),
]
