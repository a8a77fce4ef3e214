"""The figures of self-attention on the sphere, by name: their data, drawing and options."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from shaped_attention.checks import check_choice, check_keywords
from shaped_attention.figures.recipes import Option, Recipe

if TYPE_CHECKING:
    import xarray as xr


def _recipe(data: str, plot: str, about: str, title: str, **rest: Any) -> Recipe:
    """Return a recipe whose plot is in this package, and its data in this or the one above."""
    return Recipe(f"shaped_attention.sphere.{data}", f"{__package__}.{plot}", about, title, **rest)


_BETAS = tuple(0.5 * k for k in range(19))
_CLOSE = "Two tokens are close if their cosine is at least 1 - delta; delta is in (0, 1)."

FIGURES: dict[str, Recipe] = {
    "phase": _recipe(
        "figures.phase:phase_diagram",
        "phase:phase_panels",
        "Probability that two tokens are close, starting from uniform tokens in each dimension.",
        "The more dimensions, the more sharply tokens meet when equiangular ones do\n"
        r"%(attention)s, $N$ = %(tokens)d, $\delta$ = %(delta)g",
        options={
            "dimensions": (2, 8, 32, 128, 512, 1024),
            "betas": _BETAS,
            "tokens": 32,
            "delta": Option(_CLOSE, 1e-3),
            "samples": 2**10,
            "tolerance": 1e-4,
            "normalised": True,
            "device": "cpu",
        },
        small={"samples": 10, "tokens": 4, "dimensions": (2, 9), "betas": (1.0, 4.0)},
        takes="Takes about ten minutes on 2 cores; the cost does not depend on the dimensions.",
    ),
    "metastability": _recipe(
        "figures.clusters:metastability",
        "clusters:metastability_strip",
        "Clusters over time from uniform tokens, with the same initial condition for each beta.",
        "Clusters form quickly, and merge after long times\n"
        r"%(attention)s, $d$ = %(dimension)d, $N$ = %(tokens)d: linked within $\delta$ = %(delta)g",
        options={
            "betas": (4.0, 9.0),
            "tokens": 32,
            "dimension": Option(
                "Dimension d of the space that contains the sphere; tokens are plotted for d = 2.",
                2,
            ),
            "delta": Option(_CLOSE.replace("close", "linked"), 1e-3),
            "samples": 32,
            "tolerance": 1e-3,
            "normalised": True,
        },
        small={"samples": 10, "tokens": 4, "betas": (1.0,), "tolerance": 0.1},
        takes="Takes half a minute on 2 cores.",
    ),
    "ensembles": _recipe(
        "figures.phase:ensemble_phase",
        "phase:phase_panels",
        "Probability that two tokens are close, for random matrices and uniform tokens.",
        r"Large $\beta$ keeps tokens apart only where $V = Q^\top K$, not where $V$ is independent"
        "\n"
        r"random matrices: %(attention)s, $d$ = %(dimension)d, $N$ = %(tokens)d, "
        r"$\delta$ = %(delta)g",
        options={
            "ensembles": Option(
                "Ensembles of matrices, one per panel.",
                ("ginibre", "wigner-psd", "ginibre-gradient", "wigner-gradient"),
            ),
            "betas": _BETAS,
            "tokens": 32,
            "dimension": 128,
            "delta": Option(_CLOSE, 1e-3),
            "samples": Option(
                "Number of samples; all values of beta share matrices and tokens.", 64
            ),
            "tolerance": 1e-3,
            "normalised": True,
            "scale": Option("Scale factor s > 0 of Q and K.", 1.0),
        },
        small={"samples": 10, "dimension": 8, "tokens": 6, "betas": (1.0, 4.0)},
        takes="Takes two minutes on 2 cores.",
    ),
    "energy": _recipe(
        "figures.clusters:energy_curves",
        "clusters:energy_panels",
        "Energies over time under attention normalised by its sum (SA) or not (USA), and under SA "
        "with V = -I, from the same uniform tokens.",
        "SA and USA raise the energy of tokens towards that of one cluster; $V = -I$ lowers it\n"
        "$N$ = %(tokens)d, $d$ = %(dimension)d; mean, and 5 to 95 %% of %(samples)d uniform starts",
        options={
            "betas": (1.0, 4.0, 9.0),
            "tokens": 32,
            "dimension": 3,
            "samples": 50,
            "tolerance": 1e-4,
        },
        small={"samples": 10, "tokens": 4, "betas": (1.0,), "tolerance": 0.1},
        takes="Takes half a minute on 2 cores.",
    ),
    "mean-field": _recipe(
        "figures.mean_field:figure_mean_field",
        "mean_field:mean_field_figure",
        "The mean field on the circle, paths of tokens, and the W2 distance of N tokens from it.",
        "The more tokens, the closer they are to the mean field\n"
        "%(attention)s on the circle; bars: two standard errors",
        options={
            "betas": (2.0, 20.0),
            "sizes": Option(
                "Numbers of tokens N whose distance from the density is measured.",
                (16, 32, 64, 128, 256, 512, 1024),
            ),
            "particles": Option("Number of tokens whose paths are plotted over each density.", 24),
            "samples": Option("Number of samples for each N.", 32),
            "time": Option("Time at which the distance is measured.", 1.0),
            "cells": Option("Number of cells of the density, at least 8.", 512),
            "normalised": True,
        },
        small={"samples": 10, "betas": (2.0,), "sizes": (8, 16, 32), "cells": 64},
        takes="Takes half a minute on 2 cores.",
    ),
    "encoder-decoder": _recipe(
        "figures.encoder_decoder:encoder_and_decoder",
        "encoder_decoder:encoder_decoder_panels",
        "How tokens meet by position under full and causal attention, and the shaped SDE of both.",
        "Tokens of a decoder mostly meet later; in the shaped SDE their drift depends on position\n"
        r"%(attention)s, $N$ = %(tokens)d, $\delta$ = %(delta)g; shaped SDE: "
        r"$\gamma$ = %(gamma)g, $\tau_0$ = %(tau0)g",
        options={
            "betas": (1.0, 9.0),
            "dimensions": (2, 64),
            "tokens": 16,
            "delta": Option(_CLOSE, 1e-3),
            "samples": 256,
            "tolerance": 1e-3,
            "normalised": True,
            "gamma": Option("Weight of the attention branch of the shaped SDE.", 0.5),
            "tau0": Option("Temperature of the shaped SDE.", 1.0),
            "horizon": Option("Final time of the shaped SDE.", 1.0),
            "step": Option("Step of the shaped SDE.", 0.01),
        },
        small={
            "samples": 10,
            "tokens": 4,
            "betas": (1.0,),
            "dimensions": (2, 3),
            "tolerance": 0.1,
            "horizon": 0.1,
        },
        takes="Takes two minutes on 2 cores.",
    ),
    "mixture": _recipe(
        "figures.mixture:mixture",
        "mixture:mixture_panels",
        "Number, masses and angles of the clusters at one time, and tokens on the circle compared "
        "with the mean field.",
        r"More clusters remain at larger $\beta$"
        "\n"
        r"Clusters at $t$ = %(time)g: %(attention)s, $\delta$ = %(delta)g; mean field at "
        r"$t$ = %(density_time)g",
        options={
            "betas": (4.0, 9.0, 16.0),
            "sizes": Option("Numbers of tokens N.", (32, 64, 128)),
            "dimensions": (2, 3, 4),
            "time": Option("Time at which clusters are counted.", 30.0),
            "density_time": Option(
                "Time at which tokens are compared with the mean field on the circle.", 3.0
            ),
            "particles": Option("Number of tokens that are compared with the mean field.", 1024),
            "delta": Option(_CLOSE.replace("close", "linked"), 0.01),
            "samples": 256,
            "tolerance": 1e-3,
            "normalised": True,
        },
        small={
            "samples": 10,
            "betas": (4.0,),
            "sizes": (8,),
            "dimensions": (2, 3),
            "particles": 16,
            "tolerance": 0.1,
        },
        takes="Takes two minutes on 2 cores.",
    ),
    "noise": _recipe(
        "figures.noise:clustering_with_noise",
        "noise:noise_panels",
        "Mean cosine and fraction of close pairs over time, for several noise levels.",
        "Attraction gathers tokens at one point, value matrices of mean 0 at two opposite ones\n"
        r"$N$ = %(tokens)d, $\beta$ = %(beta)g, $\gamma$ = %(gamma).2g, $\tau_0$ = %(tau0)g",
        options={
            "dimensions": (2, 512),
            "sigmas": Option("Strengths sigma of the noise.", (0.0, 0.5, 1.0, 2.0)),
            "tokens": 16,
            "beta": Option("Inverse temperature beta of softmax attention (SA, V = I).", 1.0),
            "horizon": Option("Final time, rounded to a multiple of the step.", 6.0),
            "step": Option("Step h between layers.", 0.04),
            "delta": Option(_CLOSE, 0.01),
            "samples": Option(
                "Number of initial conditions, one path of noisy_chain for each.", 256
            ),
            "network_samples": Option(
                "Number of explicit networks, which start from the first initial conditions.",
                32,
            ),
            "shaped_width": Option("Width n >= N of the shaped chain.", 64),
            "shaped_samples": Option(
                "Number of samples of the shaped chain, all from one initial condition in R^n.", 64
            ),
            "gamma": Option(
                "Weight of the attention branch of the shaped chain, which ends at time "
                "gamma^2 l / n = horizon.",
                0.5**0.5,
            ),
            "tau0": Option("Temperature of the shaped chain.", 1.0),
        },
        small={
            "samples": 16,
            "network_samples": 8,
            "dimensions": (2, 16),
            "sigmas": (0.5,),
            "horizon": 0.8,
            "shaped_width": 16,
        },
        takes="Takes a minute on 2 cores.",
    ),
    "antipode": _recipe(
        "figures.antipode:antipode_probability",
        "antipode:antipode_curves",
        "Probability that two tokens end as antipodes, by quadrature and from simulated paths.",
        r"Value matrices of mean 0: two tokens with cosine %(cosine)g at first end as antipodes",
        options={
            "dimensions": Option(
                "Dimensions d of the space that contains the sphere, one per curve.",
                (2, 3, 4, 8, 16, 32),
            ),
            "betas": tuple(round(0.1 * k, 1) for k in range(41)),
            "marks": Option(
                "Inverse temperatures at which paths are simulated.", (1.0, 2.0, 3.0, 4.0)
            ),
            "cosine": Option("Initial cosine, strictly between -1 and 1.", 0.0),
            "samples": Option("Number of paths of noisy_chain, up to time 10 d.", 1000),
            "step": Option("Step h between layers.", 0.1),
        },
        small={"samples": 20, "dimensions": (2, 4), "betas": (0.5, 1.5), "marks": (1.5,)},
        takes="Takes a minute on 2 cores.",
    ),
    "speeds": _recipe(
        "figures.speeds:normalisation_speeds",
        "speeds:speed_curves",
        "How fast tokens approach each other, for each place of the norm.",
        "The place of the norm decides whether tokens meet exponentially fast\n"
        r"SA, $N$ = %(tokens)d, $d$ = %(dimension)d, Mix-LN switches at $t$ = %(until)g",
        options={
            "betas": (1.0, 4.0),
            "tokens": 64,
            "dimension": 4096,
            "until": Option("Time > 0 at which Mix-LN switches from Post-LN to Pre-LN.", 3.0),
            "samples": 16,
            "tolerance": 1e-5,
        },
        small={"samples": 10, "tokens": 4, "dimension": 16, "betas": (1.0,), "tolerance": 1e-3},
        takes="Takes half a minute on 2 cores.",
    ),
    "histograms": _recipe(
        "trained:inner_products",
        "histograms:inner_product_histograms",
        "Distribution of the cosines of tokens in each layer of a trained model.",
        "The first layers of %(model)s bring tokens together: cosines of %(tokens)d tokens",
        options={},
        small={},
        takes="Takes a few seconds.",
    ),
}
"""Figures drawn from the data of `shaped_attention.sphere`."""


def figure_data(name: str, **options: Any) -> xr.Dataset:
    """Compute the data of a figure of self-attention on the sphere.

    Parameters
    ----------
    name
        Name of the figure, as in ``shaped-attention sphere NAME``:

        - "phase": `probability` (dimension, beta, time) that two tokens are close, starting from
          uniform tokens, and `curve` (beta), the time at which equiangular tokens are this close;
        - "ensembles": the same probability (ensemble, beta, time) for the random matrices of
          `TokenAttention.random`;
        - "metastability": `clusters`, `order` and `gap` (beta, time, sample), that is
          `cluster_count`, `order_parameter` and `spectral_gap`, and in dimension 2 the `angle`
          (beta, time, token) of each token of the first sample;
        - "energy": `energy` (kind, beta, time, sample) under SA, USA (at e^{-beta} times the time)
          and SA with V = -I, and its extremes over all laws, `uniform` and `dirac` (beta);
        - "mean-field": the variables of `mean_field` and `mean_field_distance` for each beta, and
          `path` (beta, time, particle), the angles of tokens;
        - "encoder-decoder": by mask (full, causal), dimension, beta and position, `joined`, the
          time from which a token stays close to the first one (infinite if it does not), its mean
          `cosine` with the first one over time, `clusters` (time, sample), and, for the shaped SDE
          from the same law of starts, `drift` and `diffusion` of V_aa at t = 0 and `shaped_square`
          (shaped_time, position), the mean squared cosine with the first token;
        - "mixture": `clusters`, and `mass` and `gap` (cluster), the masses of the clusters and, on
          the circle, the angles between neighbours, each in decreasing order, by dimension, size
          and beta; `fastest_mode` (beta) of the mean field, and distribution functions of angles,
          `mean_field` and `tokens_below` (beta, angle);
        - "noise": the mean cosine and the fraction of close pairs (measure) of noisy chains and
          networks, the flow and the shaped chain, with bands and standard errors;
        - "antipode": the `probability` (dimension, beta) that two tokens end as antipodes, its
          `threshold` (dimension), and the share `simulated` (dimension, mark) of paths with its
          standard `error`;
        - "speeds": `gap` (beta, scheme, time), 1 - cosine of equiangular tokens that start
          orthogonal, and `simulated` (beta, scheme, mark), its mean in flows from uniform tokens;
        - "histograms": the variables of `inner_products`.
    options
        Options of the command, written with underscores, with the defaults that its ``--help``
        shows; also `times`, increasing times >= 0, for figures that show several times.

    Returns
    -------
    xarray.Dataset that can be saved, loaded and run again like every result.

    Raises
    ------
    ValueError
        If the name or an option is unknown, or outside its range.
    """
    check_choice("name", name, FIGURES)
    function = resolve_name(FIGURES[name].data)
    check_keywords(function, options)
    data: xr.Dataset = function(**options)
    return data
