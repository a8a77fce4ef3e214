"""Training steps of networks with random weights, exactly in law at any width."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from shaped_attention.blocks.base import Layer
from shaped_attention.checks import argument_error, check_count
from shaped_attention.lazy.coordinates import inner
from shaped_attention.lazy.matrices import Factors
from shaped_attention.lazy.networks import (
    Weights,
    chunk_of_samples,
    classification,
    readout_entries,
    start_of,
    through_layer,
)
from shaped_attention.lazy.optimizers import SGD, Muon, Optimizer, State
from shaped_attention.lazy.rows import Rows
from shaped_attention.lazy.sources import Source
from shaped_attention.lazy.spaces import Frame
from shaped_attention.lazy.tape import Tape
from shaped_attention.progress import progress_bar
from shaped_attention.results.plain_arguments import storable
from shaped_attention.results.provenance import recorded
from shaped_attention.samplers.specification import (
    MEMORY_BUDGET,
    Options,
    Specification,
    specify,
)

Array = NDArray[np.float64]
_SAFETY = 3
"""By how much more a step takes than what stays of it."""


@recorded(sampler="training")
def simulate_training(
    layer: Layer,
    tokens: ArrayLike,
    targets: ArrayLike,
    *,
    width: int,
    depth: int,
    samples: int,
    steps: int = 3,
    optimizer: Any = None,
    classes: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float64",
    chunk: int | None = None,
    memory: int = MEMORY_BUDGET,
    progress: bool | None = None,
) -> xr.Dataset:
    """Sample the first training steps of networks with random weights.

    Exact in law at the width n: a weight matrix is a Gaussian matrix, of which only the directions
    are drawn that the computation meets, plus matrices of low rank. The cost depends on n only
    through the hidden units. All weights are trained, with the biases and the readout; the tokens
    are not. The gradients are those with respect to matrices of independent N(0, 1) entries, as in
    `gradient_norms`.

    Parameters
    ----------
    layer
        Block, list of blocks or pattern, as in `simulate_chain`.
    tokens
        Covariance V_0 (m, m) of the tokens X_0, or one per sample.
    targets
        Class of each token (m,), integers from 0; the loss is the mean of the cross-entropies of
        the logits X_L W / sqrt n. Or real numbers (m,), and the loss is |f - target|^2 / 2 with
        f = X_L v / sqrt n.
    width, depth, samples, seed
        As in `simulate_chain`.
    steps
        Number of training steps.
    optimizer
        `SGD` or `Muon`; None for SGD(1.0).
    classes
        Number of classes; None for the largest target plus 1, and at least 2.
    device, dtype
        A torch device, and the precision: "float64", "float32", or the torch dtype of that name.
    chunk, memory
        Samples that move together, and the bytes that they may take; the result depends on neither.
    progress
        Whether to show a progress bar; None shows it if the error stream is a terminal.

    Returns
    -------
    Dataset with steps + 1 entries along `step`; entry s is before update s + 1.
        `loss` (step, sample); `gradient_norm` and `update_norm` (step, parameter, sample),
        Euclidean norms, those of updates without the decay of weights; `V` (step, position, sample,
        row, col), position l after layer l; `activation_change` (step, position, sample), the root
        mean square of the entries of X_l minus those at step 0; and `directions` (step), how large
        the frame of the tokens has become.

    Raises
    ------
    ValueError
        If an argument is invalid, or one sample needs more than `memory`.
    FloatingPointError
        If a loss is not finite.

    Examples
    --------
    >>> import shaped_attention as sa
    >>> run = sa.simulate_training(
    ...     sa.ShapedAttention(0.5), sa.equicorrelated(2, 0.2), [0, 1], width=10**6, depth=2,
    ...     samples=3, steps=2, optimizer=sa.SGD(0.5),
    ... )
    >>> dict(run.loss.sizes), bool((run.loss[-1] < run.loss[0]).all())
    ({'step': 3, 'sample': 3}, True)
    """
    check_count("width", width)
    check_count("depth", depth)
    check_count("steps", steps)
    rule = SGD(1.0) if optimizer is None else optimizer
    if not isinstance(rule, SGD | Muon):
        if isinstance(rule, type) and issubclass(rule, SGD | Muon):
            name = rule.__name__
            raise ValueError(
                f"optimizer must be an instance; got the class {name}: call it, as in "
                f"sa.{name}(0.1)"
            )
        raise argument_error(
            "optimizer",
            "an SGD or Muon of this package (the updates of optimisers that act on entries, such "
            "as Adam, do not have low rank)",
            optimizer,
        )
    spec = specify(
        layer, tokens, width=width, steps=depth, dt=1.0 / width, samples=samples, seed=seed,
        options=Options(device=device, dtype=dtype, chunk=chunk, memory=memory),
        start_name="tokens",
    )  # fmt: skip
    goal, outputs = _targets(targets, spec.tokens, classes)
    readout_entries(outputs, spec)
    probe = _Run(spec, width, depth, goal, outputs, 0, 1)
    probe.step()
    rule.check(list(probe.weights))
    # The frames grow with every step, and with them the directions and updates of that step.
    size = chunk_of_samples(
        probe.entries() * _SAFETY * (steps + 1) ** 2, spec, "fewer steps or hidden units"
    )
    parts = []
    total = samples * (steps + 1)
    with progress_bar("training", progress, total=total, unit="step", unit_scale=True) as bar:
        for first in range(0, samples, size):
            count = min(size, samples - first)
            first_one = first == 0 and count == 1
            run = probe if first_one else _Run(spec, width, depth, goal, outputs, first, count)
            made = []
            for _ in range(steps + 1):
                made.append(run.advance(rule))
                bar.update(count)
            parts.append(xr.concat(made, "step"))
    if not all(np.isfinite(part["loss"]).all() for part in parts):
        raise FloatingPointError(
            "the loss is not finite after some steps; a smaller learning rate would keep it finite"
        )
    result = xr.concat(parts, "sample", data_vars="minimal", coords="minimal", compat="override")
    return result.assign_coords(step=np.arange(steps + 1), position=np.arange(depth + 1)).transpose(
        "step", "position", "parameter", "sample", ...
    )


def _targets(targets: ArrayLike, tokens: int, classes: int | None) -> tuple[torch.Tensor, int]:
    """Return targets as a tensor, and the number of outputs."""
    goal = np.asarray(targets)
    if goal.dtype.kind not in "iuf":
        raise argument_error("targets", "classes from 0, or real numbers", targets)
    if classes is not None:
        check_count("classes", classes, lowest=2)
    if goal.dtype.kind == "f" and classes is not None:
        raise argument_error("targets", f"integers, since classes={classes} is given", targets)
    if goal.shape != (tokens,) or not np.isfinite(goal).all():
        requirement = f"({tokens},) finite numbers, one for each token"
        raise argument_error("targets", requirement, goal)
    if goal.dtype.kind == "f":
        return torch.tensor(goal, dtype=torch.float64), 1
    largest = max(2, int(goal.max()) + 1)
    if goal.min() < 0 or (classes is not None and classes < largest):
        raise argument_error("targets", f"classes 0, ..., {(classes or largest) - 1}", goal)
    return torch.tensor(goal, dtype=torch.int64), classes or largest


class _Run:
    """Some samples of a network that is trained."""

    def __init__(
        self, spec: Specification, width: int, depth: int, goal: torch.Tensor, outputs: int,
        first: int, count: int,
    ) -> None:  # fmt: skip
        self._spec, self._width, self._depth, self._goal = spec, width, depth, goal
        memory = spec.options.memory
        self._source = Source(count, spec.seed, spec.dtype, spec.place, first, memory)
        self._start = start_of(spec, width, self._source)
        self._outputs = Frame(outputs, self._source, explicit=True)
        self.weights = Weights(self._source)
        self._states: dict[str, State] = {}
        self._reference: list[Rows] = []
        self._tape = Tape()
        self._made: tuple[torch.Tensor, list[Rows]] | None = None

    def step(self) -> None:
        """Go forward, and keep the loss and the tokens after each layer."""
        tokens = [self._start]
        pattern = self._spec.pattern
        with Tape() as self._tape:
            for number in range(self._depth):
                blocks = pattern[number % len(pattern)]
                tokens.append(through_layer(tokens[-1], blocks, number, self._depth, self.weights))
            f = self.weights.product(tokens[-1], self._outputs, "readout").entries()
            f = f / self._width**0.5
            if self._goal.dtype == torch.int64:
                loss = classification(f, self._goal)
            else:
                loss = 0.5 * ((f[..., 0] - self._goal) ** 2).sum(-1)
        self._made = loss, [x.detached() for x in tokens]

    def entries(self) -> int:
        """Return how many numbers of one step are kept."""
        return self._tape.entries() + sum(w.entries() for w in self.weights.values())

    def advance(self, rule: Optimizer) -> xr.Dataset:
        """Return what is known before an update, and take it."""
        if self._made is None:
            self.step()
        assert self._made is not None
        (loss, tokens), self._made = self._made, None
        self._tape.backward(loss)
        gradients: dict[str, Factors] = {}
        for name, matrix in self.weights.items():
            self._states.setdefault(name, State(matrix))
            gradient = matrix.gradient()
            assert gradient is not None
            gradients[name] = gradient
            matrix.forget_gradient()
        norms = {name: g.norm() for name, g in gradients.items()}
        updates = rule.step(self._states, gradients)
        self._reference = self._reference or tokens
        n, m = self._width, self._spec.tokens
        changes = [
            ((x - y).squares().sum((1, 2)) / (n * m)).sqrt()
            for x, y in zip(tokens, self._reference, strict=True)
        ]
        parameter = ("parameter", "sample")
        return xr.Dataset(
            {
                "loss": (("sample",), _numpy(loss)),
                "gradient_norm": (parameter, np.stack([_numpy(x) for x in norms.values()])),
                "update_norm": (parameter, np.stack([_numpy(x) for x in updates.values()])),
                "V": (
                    ("position", "sample", "row", "col"),
                    np.stack([_numpy(inner(x, x)) / n for x in tokens]),
                ),
                "activation_change": (
                    ("position", "sample"),
                    np.stack([_numpy(x) for x in changes]),
                ),
                "directions": ((), sum(part.size for part in self._start.space)),
            },
            coords={"parameter": list(norms)},
        )


def _numpy(x: torch.Tensor) -> Array:
    values: Array = x.detach().double().cpu().numpy()
    return values


storable(SGD)
storable(Muon)
