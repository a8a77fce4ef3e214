"""Catalogue of the figures of self-attention on the sphere, by name."""

from __future__ import annotations

from shaped_attention.figures.deferred import Deferred
from shaped_attention.figures.recipes import Recipe


def _in(place: str) -> Deferred:
    return Deferred(f"shaped_attention.sphere.{place}")


clustering_with_noise = _in("figures.clustering_with_noise:clustering_with_noise")
energy_curves = _in("figures.clusters_and_energy:energy_curves")
ensemble_phase = _in("figures.random_matrices:ensemble_phase")
figure_mean_field = _in("propagation_of_chaos:figure_mean_field")
inner_products = _in("trained:inner_products")
metastability = _in("figures.clusters_and_energy:metastability")
phase_diagram = _in("figures.phase_diagram:phase_diagram")

energy_panels = _in("plots.clusters:energy_panels")
ensemble_panels = _in("plots.phase:ensemble_panels")
inner_product_histograms = _in("plots.trained:inner_product_histograms")
mean_field_figure = _in("plots.mean_field:mean_field_figure")
metastability_strip = _in("plots.clusters:metastability_strip")
noise_panels = _in("plots.noise:noise_panels")
phase_panels = _in("plots.phase:phase_panels")

FIGURES: dict[str, Recipe] = {
    "phase": Recipe(
        phase_diagram,
        phase_panels,
        r"Tokens that have met: %(attention)s, $N$ = %(tokens)d, $\delta$ = %(delta)g",
        "About ten minutes on 2 cores; the cost does not depend on the dimensions.",
        ("--samples", "10", "--tokens", "4", "--dimensions", "2,9", "--betas", "1,4"),
    ),
    "metastability": Recipe(
        metastability,
        metastability_strip,
        r"%(attention)s, $d$ = %(dimension)d, $N$ = %(tokens)d: linked within $\delta$ = %(delta)g",
        "Half a minute on 2 cores.",
        ("--samples", "10", "--tokens", "8"),
    ),
    "ensembles": Recipe(
        ensemble_phase,
        ensemble_panels,
        r"Random matrices: %(attention)s, $d$ = %(dimension)d, $N$ = %(tokens)d, "
        r"$\delta$ = %(delta)g",
        "Two minutes on 2 cores.",
        ("--samples", "10", "--dimension", "8", "--tokens", "6", "--betas", "1,4"),
    ),
    "energy": Recipe(
        energy_curves,
        energy_panels,
        "Energy of %(tokens)d tokens from uniform starts, $d$ = %(dimension)d",
        "Half a minute on 2 cores.",
        ("--samples", "10", "--tokens", "8"),
    ),
    "mean-field": Recipe(
        figure_mean_field,
        mean_field_figure,
        "%(attention)s on the circle: density and particles, and how far apart they are",
        "Half a minute on 2 cores.",
        ("--samples", "10", "--sizes", "8,16,32", "--cells", "64"),
    ),
    "noise": Recipe(
        clustering_with_noise,
        noise_panels,
        r"Clustering with random value matrices: $N$ = %(tokens)d, $\beta$ = %(beta)g",
        "A minute on 2 cores.",
        ("--samples", "16", "--network-samples", "8", "--dimensions", "2,16"),
    ),
    "histograms": Recipe(
        inner_products,
        inner_product_histograms,
        "Cosines of %(tokens)d tokens in every layer of a trained model",
        "A few seconds.",
        (),
    ),
}
