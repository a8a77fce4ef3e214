"""Catalogue of the figures of self-attention on the sphere, by name."""

from __future__ import annotations

from shaped_attention.figures.deferred import Functions
from shaped_attention.figures.recipes import Recipe

clusters = Functions("shaped_attention.sphere.figures.clusters_and_energy")
ensembles = Functions("shaped_attention.sphere.figures.random_matrices")
mean_field = Functions("shaped_attention.sphere.propagation_of_chaos")
noise = Functions("shaped_attention.sphere.figures.clustering_with_noise")
phase = Functions("shaped_attention.sphere.figures.phase_diagram")
trained = Functions("shaped_attention.sphere.trained")
cluster_plots = Functions("shaped_attention.sphere.plots.clusters")
mean_field_plots = Functions("shaped_attention.sphere.plots.mean_field")
noise_plots = Functions("shaped_attention.sphere.plots.noise")
phase_plots = Functions("shaped_attention.sphere.plots.phase")
trained_plots = Functions("shaped_attention.sphere.plots.trained")

FIGURES: dict[str, Recipe] = {
    "phase": Recipe(
        phase.phase_diagram,
        phase_plots.phase_panels,
        r"Tokens that have met: %(attention)s, $N$ = %(tokens)d, $\delta$ = %(delta)g",
        "About ten minutes on 2 cores; the cost does not depend on the dimensions.",
        ("--samples", "10", "--tokens", "4", "--dimensions", "2,9", "--betas", "1,4"),
    ),
    "metastability": Recipe(
        clusters.metastability,
        cluster_plots.metastability_strip,
        r"%(attention)s, $d$ = %(dimension)d, $N$ = %(tokens)d: linked within $\delta$ = %(delta)g",
        "Half a minute on 2 cores.",
        ("--samples", "10", "--tokens", "4", "--betas", "1", "--tolerance", "0.1"),
    ),
    "ensembles": Recipe(
        ensembles.ensemble_phase,
        phase_plots.ensemble_panels,
        r"Random matrices: %(attention)s, $d$ = %(dimension)d, $N$ = %(tokens)d, "
        r"$\delta$ = %(delta)g",
        "Two minutes on 2 cores.",
        ("--samples", "10", "--dimension", "8", "--tokens", "6", "--betas", "1,4"),
    ),
    "energy": Recipe(
        clusters.energy_curves,
        cluster_plots.energy_panels,
        "Energy of %(tokens)d tokens from uniform starts, $d$ = %(dimension)d",
        "Half a minute on 2 cores.",
        ("--samples", "10", "--tokens", "4", "--betas", "1", "--tolerance", "0.1"),
    ),
    "mean-field": Recipe(
        mean_field.figure_mean_field,
        mean_field_plots.mean_field_figure,
        "%(attention)s on the circle: density and particles, and how far apart they are",
        "Half a minute on 2 cores.",
        ("--samples", "10", "--betas", "2", "--sizes", "8,16,32", "--cells", "64"),
    ),
    "noise": Recipe(
        noise.clustering_with_noise,
        noise_plots.noise_panels,
        r"Clustering with random value matrices: $N$ = %(tokens)d, $\beta$ = %(beta)g",
        "A minute on 2 cores.",
        (
            "--samples",
            "16",
            "--network-samples",
            "8",
            "--dimensions",
            "2,16",
            "--sigmas",
            "0.5",
            "--horizon",
            "0.8",
            "--shaped-width",
            "16",
        ),
    ),
    "histograms": Recipe(
        trained.inner_products,
        trained_plots.inner_product_histograms,
        "Cosines of %(tokens)d tokens in every layer of a trained model",
        "A few seconds.",
        (),
    ),
}
