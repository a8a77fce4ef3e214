"""Old public names: they work for one release, with a warning that names the new one.

The policy is on the page `docs/deprecations.md`, which lists the tables below.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

OLD_NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "shaped_attention": {
        "BlockReport": (
            "shaped_attention.statistics.block_checks.report:BlockReport",
            "the result of sa.check_block",
        ),
        "Explanation": (
            "shaped_attention.samplers.explain:Explanation",
            "the result of sa.explain",
        ),
        "ExplosionLaw": (
            "shaped_attention.theory.explosion.law:ExplosionLaw",
            "the result of sa.explosion_law",
        ),
        "rope_angles": ("shaped_attention.blocks.rotations:rope_angles", "sa.Rope.angles_of"),
        **{
            name: (f"shaped_attention.statistics.stopping:{name}", f"sa.stopping.{name}")
            for name in (
                "exit_times",
                "explosion_curve",
                "explosion_curves",
                "explosion_probability",
                "stopping_map",
                "tilted_probability",
            )
        },
        "summary_table": (
            "shaped_attention.architectures.verdict:summary_table",
            "sa.verdict(summary, table=True)",
        ),
        "half_vectorise": ("shaped_attention.numerics.covariance:vech", "sa.vech"),
        **{
            name: (f"shaped_attention.models.scores:{name}", f"sa.scores.{name}")
            for name in ("initial_spectrum", "leading_directions", "score_form", "truncation_cost")
        },
    },
    "shaped_attention.sphere": {
        **{
            name: (f"shaped_attention.sphere.theory:{name}", f"sa.sphere.theory.{name}")
            for name in ("equiangular_cosine", "final_rate", "meeting_time")
        },
        "token_flow": ("shaped_attention.sphere.flow:sphere_flow", "sphere.sphere_flow"),
        "random_tokens": (
            "shaped_attention.sphere.old_names:random_tokens",
            "sphere.uniform_start(..., reduced=False)",
        ),
        "noisy_network": (
            "shaped_attention.sphere.old_names:noisy_network",
            "sphere.sphere_network(..., sigma=...)",
        ),
        "circle_distance_to_density": (
            "shaped_attention.sphere.old_names:circle_distance_to_density",
            "sphere.circle_wasserstein2(angles, density=...)",
        ),
        "common_noise_drift": (
            "shaped_attention.sphere.old_names:common_noise_drift",
            "sphere.SphereAttention.gram_field",
        ),
        "angle_field": (
            "shaped_attention.sphere.old_names:angle_field",
            "sphere.SphereAttention.angle_field",
        ),
        "equiangular_field": (
            "shaped_attention.sphere.theory:equiangular_field",
            "sphere.SphereAttention.gram_field",
        ),
        "relu_mlp": (
            "shaped_attention.sphere.old_names:relu_mlp",
            "sphere.TokenAttention(..., mlp=(inner, outer, bias))",
        ),
        "random_attention": (
            "shaped_attention.sphere.old_names:random_attention",
            "sphere.TokenAttention.random",
        ),
        "phase_diagram": (
            "shaped_attention.sphere.figures.phase:phase_diagram",
            "sphere.figure_data('phase', ...)",
        ),
        "ensemble_phase": (
            "shaped_attention.sphere.figures.phase:ensemble_phase",
            "sphere.figure_data('ensembles', ...)",
        ),
        "metastability": (
            "shaped_attention.sphere.figures.clusters:metastability",
            "sphere.figure_data('metastability', ...)",
        ),
        "energy_curves": (
            "shaped_attention.sphere.figures.clusters:energy_curves",
            "sphere.figure_data('energy', ...)",
        ),
        "clustering_with_noise": (
            "shaped_attention.sphere.figures.noise:clustering_with_noise",
            "sphere.figure_data('noise', ...)",
        ),
    },
    "shaped_attention.sweep": {},
}
"""By module and old name: the object as "module:attribute", and what to write instead."""


def with_old_names(module: str, getattr_: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that also finds its old names, and warns.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     name = __import__("shaped_attention").half_vectorise.__name__
    >>> name, str(caught[0].message)
    ('vech', 'shaped_attention.half_vectorise is deprecated; use sa.vech')
    """
    names = OLD_NAMES[module]

    def find(name: str) -> Any:
        if name not in names:
            return getattr_(name)
        address, instead = names[name]
        warnings.warn(
            f"{module}.{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=2
        )
        place, _, attribute = address.partition(":")
        return getattr(importlib.import_module(place), attribute)

    return find


def renamed_arguments(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that accepts old names of arguments, given as ``old="new"``, and warns.

    Raises
    ------
    TypeError
        When the decorated function is called with both names.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old, new in new_names.items():
                if old not in kwargs:
                    continue
                warnings.warn(
                    f"{function.__name__}: the argument {old} is deprecated; use {new}",
                    DeprecationWarning,
                    stacklevel=2,
                )
                if new in kwargs:
                    raise TypeError(f"{function.__name__} got both {old} and {new}; use {new}")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
