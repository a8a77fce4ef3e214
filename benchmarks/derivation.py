"""Time the machine derivation, against the same derivation in plain sympy expressions.

``python -m benchmarks.derivation``. Every figure is the median of three new processes, imports
included. The plain version expands products of `sympy.Matrix` entries and reads off the
coefficients of the scores, as one would in a notebook; it derives only the drift and the
covariance of A_1 V.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from sympy import Expr, Matrix, Poly, Rational, Symbol, expand, eye, ones

ENGINE = """
from symbolic import ShapedAttention, ShapedMLP, prove
assert prove({layer}, {tokens}).holds
"""
PLAIN = "from benchmarks.derivation import plain_derivation; plain_derivation({tokens})"
REPEATS = 3


def plain_derivation(tokens: int) -> tuple[Matrix, Matrix]:
    """Derive drift and diffusion (gamma = tau_0 = 1) by expanding sympy expressions."""
    m = range(tokens)
    v = Matrix(tokens, tokens, lambda a, b: Symbol(f"V_{min(a, b)}{max(a, b)}"))
    g = Matrix(tokens, tokens, lambda a, b: Symbol(f"G_{a}{b}"))
    where = {g[a, b]: (a, b) for a in m for b in m}

    def mean(expression: Expr) -> Expr:
        total = 0
        for powers, coefficient in Poly(expand(expression), *where).terms():
            factors = [
                pair for p, pair in zip(powers, where.values(), strict=True) for _ in range(p)
            ]
            if len(factors) == 2:
                (a, b), (c, d) = factors
                total += coefficient * v[a, c] * v[b, d]
        return expand(total)

    centring = eye(tokens) - ones(tokens, tokens) / tokens
    first = g * centring / tokens
    second = Matrix(
        tokens,
        tokens,
        lambda a, b: (
            ((tokens * first[a, b]) ** 2 - sum((tokens * first[a, c]) ** 2 for c in m) / tokens)
            / (2 * tokens)
        ),
    )
    drift = (first * v * first.T + second * v + v * second.T).applyfunc(mean)
    change = first * v + v * first.T
    pairs = [(a, b) for a in m for b in range(a + 1)]
    linear = [[v[a, c] * v[b, d] + v[a, d] * v[b, c] for c, d in pairs] for a, b in pairs]
    rows = [[mean(change[p] * change[q]) for q in pairs] for p in pairs]
    return drift, (Matrix(linear) + Matrix(rows)) * Rational(1)


def seconds(code: str) -> float:
    """Return the median time that a new interpreter takes to run `code`."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    goals = {3: "10 s", 4: "60 s"}
    print("| derivation and proof | tokens | time | goal | plain sympy, no proof |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for layer in ("ShapedAttention()", "ShapedAttention(mask='causal')", "ShapedMLP()"):
        for tokens in (2, 3, 4, 5):
            ours = seconds(ENGINE.format(layer=layer, tokens=tokens))
            plain = ""
            if layer == "ShapedAttention()" and tokens < 5:
                plain = f"{seconds(PLAIN.format(tokens=tokens)):.1f} s"
            goal = goals.get(tokens, "")
            print(f"| `{layer}` | {tokens} | {ours:.1f} s | {goal} | {plain} |", flush=True)


if __name__ == "__main__":
    main()
