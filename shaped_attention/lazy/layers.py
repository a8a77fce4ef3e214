"""Layers of blocks as a function of rows."""

from __future__ import annotations

from itertools import chain

from shaped_attention.blocks.base import Layer, pattern_of
from shaped_attention.checks import argument_error, check_count
from shaped_attention.lazy.networks import through_layer
from shaped_attention.lazy.parameters import Parameter
from shaped_attention.lazy.weights import Weights
from shaped_attention.rows.rows import Rows


class Layers:
    """Some layers of a network, ``y = layers(x)``: their weights are the same in each call.

    Parameters
    ----------
    layer
        A block, a list of the blocks of a layer in the order in which they act, or a `Pattern`.
        Heads without an output projection need rows of a `Sum` of their spaces.
    depth
        Number of layers, at least 1.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> from shaped_attention import lazy
    >>> layers = lazy.Layers([sa.ShapedAttention(0.5), sa.ShapedMLP(0.5, hidden=64)], depth=3)
    >>> layers(lazy.Space(10**6, samples=2).normal(4)), sorted(layers.parameters)[:2]
    (Rows(2, 4, 1000000), ['0.0.0', '0.0.1'])
    """

    def __init__(self, layer: Layer, depth: int = 1) -> None:
        check_count("depth", depth)
        self._pattern, self.depth = pattern_of(layer), depth
        self._weights: Weights | None = None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The weights by name, "layer.block.number", once they have been used."""
        return dict(self._weights or {})

    def __call__(self, x: Rows) -> Rows:
        """Return the rows after the layers."""
        if not isinstance(x, Rows):
            raise argument_error("x", "rows of a lazy.Space", x)
        source = x.space.source
        if self._weights is None:
            self._weights = Weights(source)
        elif self._weights.source is not source:
            raise ValueError("x must be rows of the same network as in the first call")
        for block in chain.from_iterable(self._pattern):
            block.check(x.shape[1], x.shape[-1])
        for number in range(self.depth):
            blocks = self._pattern[number % len(self._pattern)]
            x = through_layer(x, blocks, number, self.depth, self._weights)
        return x
