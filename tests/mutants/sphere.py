"""Errors in self-attention on the sphere."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ = "shaped_attention/sphere/"

SPHERE = [
    Mutant(
        "sphere-usa-divides-by-others",
        _ + "dynamics.py",
        "return torch.exp(logits) / count",
        "return torch.exp(logits) / (count - 1)",
        blind=True,
    ),
    Mutant(
        "sphere-energy-without-half",
        _ + "dynamics.py",
        "(2.0 * self.beta * count**2)",
        "(self.beta * count**2)",
        blind=True,
    ),
    Mutant(
        "sphere-integrator-weights",
        _ + "integrate.py",
        "(2.0 * first + 3.0 * second + 4.0 * third) / 9.0",
        "(3.0 * first + 3.0 * second + 3.0 * third) / 9.0",
        blind=True,
    ),
    Mutant(
        "theory-closing-rate-counts-all",
        _ + "theory.py",
        "2.0 * others / (np.exp(beta * left) + tokens - 1)",
        "2.0 * others / (np.exp(beta * left) + tokens)",
        blind=True,
    ),
    Mutant(
        "theory-uniform-energy-argument",
        _ + "theory.py",
        "0.25 * beta * beta",
        "0.5 * beta * beta",
        blind=True,
    ),
    Mutant(
        "clusters-order-not-rooted",
        _ + "clusters.py",
        ".clamp(min=0.0).sqrt() / gram.shape[-1]",
        ".clamp(min=0.0) / gram.shape[-1] ** 2",
        blind=True,
    ),
    Mutant(
        "mean-field-energy-without-half",
        _ + "mean_field.py",
        "circulant(0.5 * width**2 * energy)",
        "circulant(width**2 * energy)",
        blind=True,
    ),
    Mutant(
        "mean-field-second-stage",
        _ + "mean_field.py",
        "second = 0.75 * density + 0.25 * (first",
        "second = 0.5 * density + 0.5 * (first",
        blind=True,
    ),
    Mutant("noise-bands", _ + "noise.py", "_BAND = (0.1, 0.9)", "_BAND = (0.05, 0.95)", blind=True),
    Mutant(
        "ensembles-wigner-variance",
        _ + "ensembles.py",
        "(square + square.mT) / 2.0**0.5",
        "(square + square.mT) / 2.0",
        blind=True,
    ),
    Mutant(
        "circle-distance-variance-in-cell",
        _ + "circle_distance.py",
        "(width * share) ** 2 / 12.0",
        "(width * share) ** 2 / 3.0",
        blind=True,
    ),
    Mutant(
        "circle-distance-no-turn",
        _ + "circle_distance.py",
        "np.take_along_axis(x, within, axis=1) + _TURN * turns",
        "np.take_along_axis(x, within, axis=1) + 0.5 * _TURN * turns",
        blind=True,
    ),
    Mutant(
        "token-flow-forms-transposed",
        _ + "token_attention.py",
        "forms = key.mT @ query, None",
        "forms = query.mT @ key, None",
        blind=True,
    ),
    Mutant(
        "token-flow-mean-of-heads",
        _ + "token_attention.py",
        "tokens, time, which)).sum(1)",
        "tokens, time, which)).mean(1)",
        blind=True,
    ),
    Mutant(
        "layers-time-of-next-layer",
        _ + "layers.py",
        "unprojected(attention, read, layer * step, first)",
        "unprojected(attention, read, (layer + 1) * step, first)",
        blind=True,
    ),
    Mutant(
        "bridge-wishart-dof",
        _ + "bridge.py",
        "draws.wishart_factor(columns, dimension - columns)",
        "draws.wishart_factor(columns, dimension)",
        blind=True,
    ),
    Mutant(
        "bridge-drift-at-order-one-over-d",
        _ + "bridge.py",
        "(1.0 - (2.0 - v * v) / dimension)",
        "(1.0 - (1.0 - v * v) / dimension)",
        blind=True,
    ),
]
