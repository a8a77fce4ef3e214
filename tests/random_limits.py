"""Branches made at random that may have a limit: a seed decides while the branch runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import shaped_attention as sa
from shaped_attention.numerics import primitives as f

TOKENS = 3
ALL = np.ones((TOKENS, TOKENS), bool)
SEEN = {"all": ALL, "causal": np.tril(ALL), "window": np.tril(ALL) & ~np.tril(ALL, -2)}
ENTRYWISE = {x: getattr(f, x) for x in ("sigmoid", "tanh", "exp", "softplus", "normal_cdf")}
EVEN = {"tanh^2": lambda h: f.tanh(h) * f.tanh(h), "h tanh": lambda h: h * f.tanh(h)}
ODD = {"tanh": f.tanh, "sigmoid": f.sigmoid, "silu": lambda h: h * f.sigmoid(h)}
GATES = {"exp": f.exp, "sigmoid": lambda z: 2.0 * f.sigmoid(z), "tanh": lambda z: 1.0 + f.tanh(z)}
FORMS = {"plain": 6.0, "normed": 1.0, "rotated": 1.0}
MIXED = ("sum", "matmul", "times", "before", "after", "entries", "nested", "mT", "lengths")


class Writer:
    """Runs a branch; `words` are its decisions. All rows have entries of order 1."""

    def __init__(self, seed: int, p: Any, tokens: Any, project: Any) -> None:
        self.random, self.words, self.p = np.random.default_rng(seed), list[str](), p
        (self.m, self.n), self.tokens, self.values = tokens.shape[-2:], tokens, tokens
        self.project, self.sources, self.scored = project, [tokens], list[Any]()

    def pick(self, **chances: float) -> str:
        weights = np.array(list(chances.values()))
        self.words.append(str(self.random.choice(list(chances), p=weights / weights.sum())))
        return self.words[-1]

    def one(self, things: Any) -> Any:
        things = things if isinstance(things, dict) else {f"#{k}": x for k, x in enumerate(things)}
        return things[self.pick(**dict.fromkeys(things, 1.0))]

    def number(self) -> float:
        return float(self.random.uniform(0.5, 1.0) * self.random.choice([-1.0, 1.0]))

    def array(self) -> Any:
        entries = 0.6 * self.random.normal(size=(TOKENS, TOKENS))
        return f.constant(entries[: self.m, : self.m], like=self.tokens)

    def seen(self) -> Any:
        return self.one(SEEN)[: self.m, : self.m]

    def size(self, fixed: bool = False) -> Any:
        sizes = {"n": self.n, "n/2": self.n // 2, "n/4": self.n // 4, "2n": 2 * self.n}
        return self.one(sizes | ({"8": 8, "12": 12} if fixed else {}))

    def made(self, x: Any, columns: Any, name: str | None = None) -> Any:
        return self.project(x, columns, name) / x.shape[-1] ** 0.5

    def source(self) -> Any:
        kind = self.pick(tokens=8, unit=1, latent=1, earlier=1)
        if kind == "latent":
            self.sources.append(self.made(self.one(self.sources), self.size()))
            return self.sources[-1]
        x = self.one(self.sources) if kind == "earlier" else self.tokens
        return f.by_mean_square(x, 0.0) if kind == "unit" else x

    def product(self, q: Any, k: Any, form: str) -> Any:
        if form == "normed":
            q, k = f.by_mean_square(q, 0.0), f.by_mean_square(k, 0.0)
        if form == "rotated":
            turns = np.arange(self.m)[:, None] * self.random.uniform(0.2, 2.0, 4)
            table = np.concatenate([np.cos(turns), np.sin(turns)], 1)
            q, k = f.rotate(q, table), f.rotate(k, table)
        return q @ k.mT / (self.p.tau0 * (self.n * k.shape[-1]) ** 0.5)

    def scores(self) -> Any:
        """Return scores of order 1 / sqrt n."""
        if self.scored and self.pick(new=3, again=1) == "again":
            return self.one(self.scored)
        kind = self.pick(once=8, twice=1, mixed=1, own=2, tokens=1, values=1)
        if kind == "mixed":
            return self.number() * self.scores() + self.number() * self.scores()
        x, free = self.source(), kind in ("once", "twice")
        form = self.pick(**FORMS) if free else "plain"
        size = 8 if form == "rotated" else self.size(free)
        if kind == "own":
            k = self.made(x, size, "lengths")
            return (k @ k.mT / size - x @ x.mT / x.shape[-1]) / self.p.tau0
        known = {"tokens": self.tokens, "values": self.values}
        k = known[kind] if kind in known else self.made(x, size)
        q = self.made(self.source(), k.shape[-1], "keys")
        self.scored.append(self.product(q, k, form))
        if kind == "twice":
            self.scored[-1] += self.number() * self.product(q, k, self.pick(**FORMS))
        return self.scored[-1]

    def centred(self, logits: Any) -> Any:
        """Return a softmax less that of a bias, or another function of the entries."""
        seen, kind = self.seen(), self.pick(softmax=4, biased=1, entries=2, ratio=1)
        bias = self.array() if kind in ("biased", "ratio") else 0.0 * self.array()
        if kind == "entries":
            g, parts = self.one(ENTRYWISE), seen / seen.sum(1, keepdims=True)
            return (g(logits) - g(bias)) * f.constant(parts, like=logits)
        if kind == "ratio":
            both = f.exp(logits + bias), f.exp(bias)
            return both[0] / f.row_sums(both[0]) - both[1] / f.row_sums(both[1])
        return f.softmax(logits + bias, seen) - f.softmax(bias, seen)

    def weights(self, level: int = 1) -> Any:
        """Return weights (m, m) of order 1 / sqrt n or smaller."""
        kind = self.pick(plain=8, **(dict.fromkeys(MIXED, 1.0) if level else {}))
        if kind == "plain":
            return self.centred(self.scores())
        if kind == "nested":
            return self.centred(f.softmax(self.scores(), self.seen()) @ self.scores())
        w = self.weights(level - 1)
        if kind in ("mT", "lengths"):
            return w.mT if kind == "mT" else w * (f.row_squares(self.tokens) / self.n)
        if kind in ("before", "after", "entries"):
            fixed = self.pick(fixed=1, softmax=1) == "fixed"
            other = self.array() if fixed else f.softmax(self.scores(), self.seen())
        else:
            other = self.number() * self.weights(level - 1)
        if kind in ("before", "matmul", "after"):
            return w @ other if kind == "after" else other @ w
        return w + other if kind == "sum" else other * w

    def attention(self, x: Any) -> Any:
        """Return heads v + w u, joined and projected."""
        heads, rows = int(self.pick(**{"1": 3, "2": 2, "4": 0.4})), list[Any]()
        for head in range(heads):
            if head == 0 or self.pick(new=4, shared=1) == "new":
                self.values = self.made(x, self.n // heads)
            v, w = self.values, self.weights()
            kind = self.pick(
                v=6, again=1, twice=0.5, other=1, diagonal=1, array=0.5, tokens=heads == 1
            )
            u = self.tokens if kind == "tokens" else v
            if kind in ("again", "twice"):
                u = v + (w if kind == "again" else self.weights(0)) @ v
            if kind == "other":
                u = self.made(self.source(), v.shape[-1])
            if kind == "array":
                v = v + self.p.a * self.array() @ v / self.n
            rows.append(v + (f.diagonal(w) * u if kind == "diagonal" else w @ u))
        joined = rows[0] if heads == 1 else f.concatenate(rows)
        return joined if self.pick(projected=2, direct=1) == "direct" else self.made(joined, self.n)

    def hidden(self, x: Any) -> Any:
        """Return hidden units h + a bend."""
        kind = self.pick(even=2, evens=1, odd=1, leaky=1, shaped=1, gate=2, gates=0.5, restored=0.2)
        size, a, root = self.size(), self.number() * self.p.a, self.n**0.5
        h = self.made(x, size, "lengths" if kind == "restored" else "keys")
        if kind in ("gate", "gates"):
            z = a * self.made(self.source(), size, "keys") / root
            out = h * self.one(GATES)(z)
            out = 0.5 * (out + h * self.one(GATES)(z)) if kind == "gates" else out
        elif kind == "restored":
            out = h + a * (f.by_mean_square(h, 0.0) * f.sqrt(f.row_squares(x) / x.shape[-1]) - h)
        elif kind == "leaky":
            out = f.leaky(h, 1.0 + a / root, 1.0 - a / root)
        elif kind == "shaped":
            out = h + 0.5 * a * (root * f.tanh(h / root) - h)
        else:
            out = h + a * (self.one(ODD)(h) / root if kind == "odd" else self.one(EVEN)(h)) / root
            out = out + a * self.one(EVEN)(h) / root if kind == "evens" else out
        direct = size is self.n and self.pick(projected=2, direct=1) == "direct"
        return out if direct else self.made(out, self.n)

    def branch(self) -> Any:
        """Return one or two of these, one after the other."""
        x, gamma = self.tokens, self.p.gamma
        for _ in range(int(self.pick(**{"1": 3, "2": 1}))):
            x = (
                self.hidden(x)
                if self.pick(attention=3, hidden=1) == "hidden"
                else self.attention(x)
            )
            self.sources.append(x)
        kind = self.pick(all=6, part=1, skip=1)
        if kind == "skip":  # -0.3 of the tokens, and more of the rest
            rest = f.sqrt(1.0 - gamma * gamma) - 0.3 * gamma
            return f.sqrt(1.0 - rest * rest) / gamma * x - 0.3 * self.tokens
        return 0.8 * x + 0.6 * self.made(self.source(), self.n) if kind == "part" else x


@dataclass(frozen=True)
class RandomLimit(sa.Block):
    """A block with the branch of a seed."""

    seed: int
    gamma: float
    tau0: float
    a: float

    @staticmethod
    def of(seed: int) -> RandomLimit:
        """Return the block of a seed."""
        ranges = (0.4, 0.5, 0.5), (0.7, 1.0, 1.0)
        return RandomLimit(seed, *np.random.default_rng([seed, 1]).uniform(*ranges).tolist())

    def branch(self, p: Any, tokens: Any, project: Any) -> Any:
        """Return the branch."""
        return Writer(self.seed, p, tokens, project).branch()

    @property
    def words(self) -> str:
        """The decisions."""
        tokens = torch.eye(TOKENS, 32, dtype=torch.float64)[None]
        writer = Writer(self.seed, self, tokens, lambda x, size, _: x.new_ones(1, TOKENS, size))
        writer.branch()
        return " ".join(writer.words)
