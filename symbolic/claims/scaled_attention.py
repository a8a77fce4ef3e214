"""Claims on attention as the slides introduce it: queries, scale, shapes, temperature."""

from __future__ import annotations

from itertools import product

from sympy import Expr, Function, Integer, cosh, diff, exp, expand, simplify, sqrt, symbols

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

TOKENS = range(3)


def coupled_queries(by_row: bool) -> list[tuple[int, int]]:
    """Return the pairs (i, k), i not k, for which output i of attention depends on query k.

    The weights are normalised over the keys of each query or, if not by_row, over the queries.
    """
    queries, values = symbols("q_1:4"), symbols("v_1:4")
    score = [[Function(f"s_{j}")(q) for j in TOKENS] for q in queries]

    def total(i: int, j: int) -> Expr:
        return sum((exp(score[i][k] if by_row else score[k][j]) for k in TOKENS), Integer(0))

    outputs = [sum(exp(score[i][j]) / total(i, j) * values[j] for j in TOKENS) for i in TOKENS]
    pairs = product(TOKENS, repeat=2)
    return [(i, k) for i, k in pairs if i != k and diff(outputs[i], queries[k]) != 0]


def _parallel_queries() -> Finding:
    return tested(
        "output i contains query i and all keys and values, and no other query (three tokens, any "
        "scores): given keys and values, the queries of a layer can be evaluated at once. "
        "Normalised over the queries, as in Sinkhorn attention, they are coupled. How fast a GPU "
        "is, is not judged",
        not coupled_queries(by_row=True),
        len(coupled_queries(by_row=False)) == 6,
    )


def score_variance(dimension: int, scale: Expr) -> Expr:
    """Return the variance of scale <q, k>: independent entries of mean 0 and variance 1.

    Monomials have the expectation 1 if all exponents are 2, and 0 if one is 1.
    """
    q, k = symbols(f"q_1:{dimension + 1}"), symbols(f"k_1:{dimension + 1}")
    square = expand((scale * sum(a * b for a, b in zip(q, k, strict=True))) ** 2)
    variance = Integer(0)
    for term in square.as_ordered_terms():
        factor, rest = term.as_independent(*q, *k)
        exponents = rest.as_powers_dict()
        if not {exponents[s] for s in (*q, *k)} <= {0, 1, 2}:
            raise ArithmeticError("a moment above the second is needed")
        variance += factor if 1 not in {exponents[s] for s in (*q, *k)} else 0
    return variance


def _score_variance() -> Finding:
    d, spread = symbols("d s", positive=True)
    weight = 1 / (1 + exp(-spread))
    slope = 1 / (4 * cosh(spread / 2) ** 2)
    scaled_back = [score_variance(n, 1 / sqrt(Integer(n))) for n in (1, 2, 5)]
    return tested(
        "for independent entries of mean 0 and variance 1 the cross terms have mean 0, so Var <q, "
        "k> = d (d = 1, 2, 5 expanded) and Var <q, k>/sqrt(d) = 1. With two keys the gradient of "
        "softmax is 1/(4 cosh(s/2)^2) at the difference s of the scores, and tends to 0 for s = "
        "sqrt(d). Aligned queries and keys have larger scores, of order d",
        *[score_variance(n, Integer(1)) == n for n in (1, 2, 5)],
        scaled_back == [1, 1, 1],
        simplify((weight * (1 - weight) - slope).rewrite(exp)) == 0,
        slope.subs(spread, sqrt(d) * spread).limit(d, "oo") == 0,
    )


Shape = tuple[int, int]


def chained(*shapes: Shape | None) -> Shape | None:
    """Return the shape of a product of matrices, None if it does not exist."""
    result = shapes[0]
    for shape in shapes[1:]:
        if result is None or shape is None or result[1] != shape[0]:
            return None
        result = (result[0], shape[1])
    return result


def printed_shape(n: int, d: int, size: int) -> Shape | None:
    """Return the shape of softmax(Q x^T (K x)) V x with Q, K, V of shape n x l."""
    weights = chained((n, size), (d, n), chained((n, size), (n, d)))
    return chained(weights, chained((n, size), (n, d)))


def corrected_shape(n: int, d: int, size: int) -> Shape | None:
    """Return the shape of softmax((x Q^T)(x K^T)^T) x V^T with Q, K: l x d and V: d x d."""
    query = chained((n, d), (d, size))
    key = chained((size, d), (d, n))
    return chained(query, key, (n, d), (d, d))


def _shapes() -> Finding:
    sizes = list(product(range(1, 5), repeat=3))
    composed = [size for size in sizes if printed_shape(*size) is not None]
    return refuted(
        "Q x^T needs l = d and K x needs l = n: of all sizes up to 4 the printed product exists "
        f"for {len(composed)} of {len(sizes)}, those with n = d = l, and there Q, K and V would "
        "mix the tokens. With Q, K in R^(l x d), as line 215 applies them to a token, it always "
        "exists and has the shape of x",
        claim_fails=composed == [(k, k, k) for k in range(1, 5)],
        correction_holds=all(corrected_shape(n, d, k) == (n, d) for n, d, k in sizes),
    )


def _temperature() -> Finding:
    beta, spread = symbols("beta s", positive=True)
    weight = 1 / (1 + exp(-beta * spread))
    inverse = weight.subs(beta, 1 / beta)
    return imprecise(
        "with two keys the weights are 1/(1 + e^(-beta s)) in line 211 and with 1/beta here: one "
        "turns into the other if beta is replaced by 1/beta, and they agree at beta = 1 only: at "
        "beta = 2, s = 1 they are 0.881 and 0.622",
        part_that_holds=simplify(inverse.subs(beta, 1 / beta) - weight) == 0
        and simplify((inverse - weight).subs(beta, 1)) == 0,
        part_that_fails=abs(float((weight - inverse).subs({beta: 2, spread: 1}))) > 0.25,
    )


CLAIMS = [
    note(
        "transformer-consists-of-attention",
        "A transformer is an encoder and/or decoder that consists of scaled dot-product attention.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "a definition; it leaves out the MLPs and the normalisation, which line 52 adds"
        ),
        at("004:27"),
    ),
    note(
        "attention-good-compatibility",
        "Scaled dot products represent compatibility well.",
        Verdict.NOT_JUDGED,
        not_to_be_judged("no measure of a good representation is named"),
        at("004:28"),
    ),
    note(
        "attention-fast-interpretable",
        "Scaled dot products are fast to compute and interpretable.",
        Verdict.NOT_JUDGED,
        not_to_be_judged(
            "it does not say compared with what it is fast (n^2 d multiplications a layer), and "
            "being interpretable is not a property of a formula"
        ),
        at("004:29"),
    ),
    note(
        "attention-parallel-queries",
        "Attention can be evaluated in parallel over all queries.",
        Verdict.TESTED,
        _parallel_queries,
        at("004:30"),
    ),
    note(
        "scaled-scores-variance",
        "Scaling the dot products prevents large magnitudes in high dimension and keeps the "
        "gradients of softmax stable.",
        Verdict.TESTED,
        _score_variance,
        at("004:31"),
    ),
    note(
        "attention-shapes",
        "The matrices of key, query and value, which multiply x in R^(n x d), are in R^(n x l).",
        Verdict.FALSE,
        _shapes,
        at(
            "004:44-45",
            r"K(k) \in \mathbb{R}^{n \times l}",
            r"Q(k) \in \mathbb{R}^{n \times l}",
            r"V(k) \in \mathbb{R}^{n \times l}",
        ),
        corrected="Q, K in R^(l x d) and V in R^(d x d) act on each token, a row of x.",
        corrected_latex=r"Q, K \in \mathbb{R}^{l \times d},\ V \in \mathbb{R}^{d \times d}",
        why="Q x^T needs l = d and K x needs l = n: with these shapes the products of line 45 "
        "exist "
        "for n = d = l only.",
    ),
    note(
        "attention-temperature",
        "Attention divides the scores by beta (beta^-1 inside softmax), while line 211 multiplies "
        "them by beta.",
        Verdict.IMPRECISE,
        _temperature,
        at("004:44-45", r"\text{Softmax}(\beta^{-1}("),
        corrected="Softmax(beta ...) throughout: beta is the inverse temperature, as in lines "
        "211 to 383.",
        corrected_latex=r"\text{Softmax}(\beta\, \cdot)",
        why="beta is the temperature here and its inverse from line 211 on; the two agree at "
        "beta = 1 only.",
    ),
]
