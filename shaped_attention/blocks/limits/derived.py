"""`Limit` of a block of which only the branch is written."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from shaped_attention.blocks.limit import Limit
from shaped_attention.blocks.limits.derivation import Derivation
from shaped_attention.blocks.limits.noise import gaussians, sampled
from shaped_attention.blocks.limits.numbers import LimitError, Point, number_at
from shaped_attention.blocks.parameters import Parameters
from shaped_attention.numerics.primitives import M, Numbers

_MOST_TOKENS = 1024


def _of_factor(name: str) -> Any:
    """Return a method that evaluates what a derivation has under a name at F."""

    def method(self: DerivedLimit, p: Parameters, factor: M, direction: M | None = None) -> Any:
        tokens, columns = tuple(factor.shape)[-2:]
        found = getattr(self.derivation(tokens, columns), name)
        return None if found is None else found.at(Point(p, factor, direction=direction))

    return method


def _of_v(name: str) -> Any:
    """Return a method that evaluates what a derivation has under a name at V."""

    def method(self: DerivedLimit, p: Parameters, v: M) -> Any:
        tokens = v.shape[-1]
        found = getattr(self.derivation(tokens, tokens, of_v=True), name)
        return None if found is None else found.at(Point(p, None, v))

    return method


class DerivedLimit(Limit):
    """Drift, noise and growth that `Derivation` finds in the branch of a block.

    The derivations for different numbers of tokens and columns are kept.
    """

    def __init__(self, block: Any, copies: int = 1) -> None:
        self.block, self.copies = block, copies
        self._found: dict[tuple[int, int, bool], Derivation] = {}
        self._decay: Any = None

    def derivation(self, tokens: int, columns: int, of_v: bool = False) -> Derivation:
        """Return the derivation for factors (tokens, columns), or for V.

        It is made at test values near the parameters; if there is no limit there, at the parameters
        themselves: some blocks have one only if their parameters fulfil an equation, such as
        lambda^2 + gamma^2 = 1.
        """
        sizes = tokens, columns, of_v
        if sizes not in self._found:
            call = {"of_v": of_v, "decay": self._decay, "copies": self.copies}
            try:
                found = Derivation(self.block, tokens, columns, **call)
            except LimitError:
                found = Derivation(self.block, tokens, columns, exact=True, **call)
            self._found[sizes], self._decay = found, found.decay
        return self._found[sizes]

    @cached_property
    def _tokens(self) -> int:
        """The smallest number of tokens above 1 that the block accepts, if it accepts one."""
        for tokens in (*range(2, _MOST_TOKENS), 1):
            try:
                self.check(tokens)
            except LimitError:
                raise
            except ValueError:
                continue
            return tokens
        raise LimitError(f"it accepts no number of tokens below {_MOST_TOKENS}")

    def linear_rate(self, p: Parameters) -> Any:
        """Return k, which is the same for all numbers of tokens."""
        return number_at(self.derivation(self._tokens, self._tokens).rate, Point(p, None))

    def weight_rate(self, p: Parameters) -> Any:
        """Return kappa: gamma^2 for each product with weights on the paths of the tokens."""
        return number_at(self.derivation(self._tokens, self._tokens).depth, Point(p, None))

    def check(self, tokens: int) -> None:
        """Raise ValueError if there is no limit for this number of tokens."""
        self.block.check(tokens // self.copies, None)
        try:
            self.derivation(tokens, tokens)
        except LimitError as error:
            reason = f"which has no limit for {tokens} tokens: {error}"
            raise LimitError(f"layer contains {self.block!r}, {reason}") from None

    factor_drift, noise_size, noise_along, growth_of_factor = map(
        _of_factor, ("drift", "variance", "noise_along", "growth")
    )
    growth, variance_noise = map(_of_v, ("growth", "variance_noise"))

    def factor_noise(self, p: Parameters, factor: M, numbers: Numbers) -> M | None:
        """Return the noise of F."""
        tokens, columns = tuple(factor.shape)[-2:]
        noise = self.derivation(tokens, columns).noise
        drawn: dict[Any, Any] = {}
        for k, z in enumerate(gaussians(noise)):
            normal: Any = numbers.normal("scores", z.rows, z.columns, k)
            drawn[z] = (normal + normal.mT) * 0.5**0.5 if z.symmetric else normal
        return sampled(noise, drawn, Point(p, factor)) if noise else None

    def decay(self, p: Parameters) -> Any:
        """Return the rate at which V decays alongside its growth."""
        if self._decay is None:
            self.check(self._tokens)
        return number_at(self._decay, Point(p, None))

    def noise_drift(self, p: Parameters, factor: M) -> M | None:
        """Return sum_i DG[G_i]; None without noise, or if its derivative has no rule."""
        derivation = self.derivation(factor.shape[-2], factor.shape[-1])
        try:
            drift = derivation.noise_drift
        except LimitError:
            return None
        if drift is None:
            return 0.0 * factor if derivation.noise else None
        found: M = drift.at(Point(p, factor))
        return found


def limit_from_branch(block: Any, copies: int = 1) -> DerivedLimit | str:
    """Return the limit of a block, or the reason why there is none."""
    limit = DerivedLimit(block, copies)
    try:
        limit.derivation(2 * copies, 2 * copies)
    except LimitError as error:
        return str(error)
    except ValueError:
        pass  # `check` finds out whether the block accepts a number of tokens
    except (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError) as error:
        return (
            f"it cannot be derived from the branch ({type(error).__name__}: {error}); functions in "
            "a branch are those of shaped_attention.numerics.primitives, such as exp(p.a), and "
            "n**0.5, not those of math, NumPy or torch"
        )
    return limit
