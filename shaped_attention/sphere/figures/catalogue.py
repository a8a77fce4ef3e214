"""The figures of self-attention on the sphere, by name."""

from __future__ import annotations

from shaped_attention.figures.recipes import Recipe
from shaped_attention.sphere.figures.clustering_with_noise import clustering_with_noise
from shaped_attention.sphere.figures.clusters_and_energy import energy_curves, metastability
from shaped_attention.sphere.figures.phase_diagram import phase_diagram
from shaped_attention.sphere.figures.random_matrices import ensemble_phase
from shaped_attention.sphere.plots.clusters import energy_panels, metastability_strip
from shaped_attention.sphere.plots.mean_field import mean_field_figure
from shaped_attention.sphere.plots.noise import noise_panels
from shaped_attention.sphere.plots.phase import ensemble_panels, phase_panels
from shaped_attention.sphere.plots.trained import inner_product_histograms
from shaped_attention.sphere.propagation_of_chaos import figure_mean_field
from shaped_attention.sphere.trained import inner_products

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
