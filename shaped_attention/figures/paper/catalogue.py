"""The figures of the paper, and those beyond it, by name."""

from __future__ import annotations

from shaped_attention.figures.deferred import Functions
from shaped_attention.figures.recipes import Recipe

beyond = Functions("shaped_attention.figures.paper.beyond")
explosion = Functions("shaped_attention.figures.paper.explosion")
ingredients = Functions("shaped_attention.figures.paper.ingredients")
models = Functions("shaped_attention.figures.paper.models")
original = Functions("shaped_attention.figures.paper.original")
plots = Functions("shaped_attention.figures.paper.plots")
rare_events = Functions("shaped_attention.figures.paper.rare_events")

FIGURES: dict[str, Recipe] = {
    "1-left": Recipe(
        original.figure_1_left,
        plots.layer_curves,
        r"Transformers: $n=%(width)d$, $L=%(depth)d$, $\gamma=1/\sqrt{8}$, "
        r"$\tau_0=1$, $m=%(tokens)d$",
    ),
    "1-right": Recipe(
        original.figure_1_right,
        plots.density_panels,
        r"Last layer, chain and SDE: $n=%(width)d$, $L=%(depth)d$, $\gamma=1/\sqrt{8}$, "
        r"$\tau_0=1$, $m=%(tokens)d$",
    ),
    "2": Recipe(
        original.figure_2,
        plots.density_and_percentile,
        r"Shaped ReLU alone: $n=%(width)d$, $L=%(depth)d$, $\rho_0=0.2$, $c_+=0$, "
        r"$c_-=-1$, $m=%(tokens)d$",
    ),
    "3": Recipe(
        original.figure_3,
        plots.layer_curves,
        r"Ablations, to $|V|=10^8$: $n=%(width)d$, $L=%(depth)d$, "
        r"$\gamma=1/\sqrt{2}$, $m=%(tokens)d$",
    ),
    "4": Recipe(
        original.figure_4,
        plots.stopping_maps,
        r"First time an eigenvalue leaves $[10^{-4},10^4]$: $n=%(width)d$, "
        r"$V_{a,a}=100$, $m=%(tokens)d$",
    ),
    "eigenvalues": Recipe(
        beyond.figure_eigenvalues,
        plots.eigenvalue_paths,
        r"Largest eigenvalue, stopped at $|V|=10^5$: $n=L=%(width)d$, $\tau_0=1$, "
        r"$V_{a,a}=100$, $m=%(tokens)d$",
    ),
    "transformer": Recipe(
        beyond.figure_transformer,
        plots.family_panels,
        r"The blocks of a transformer: $\gamma=1/2$, $\tau_0=1$, $t=0.5$",
    ),
    "causal": Recipe(
        beyond.figure_causal,
        plots.family_panels,
        r"Causal and full attention: $\gamma=1/\sqrt{2}$, $\tau_0=1$, $t=0.5$",
    ),
    "heads": Recipe(
        beyond.figure_heads,
        plots.family_panels,
        r"Number of heads: $\gamma=1/\sqrt{2}$, $\tau_0=1$, $t=0.5$",
    ),
    "tokens": Recipe(
        beyond.figure_tokens,
        plots.density_panels,
        r"Number of tokens: $n=%(width)d$, $L=%(depth)d$, $\gamma=0.6$, $\tau_0=0.5$",
    ),
    "keys": Recipe(
        beyond.figure_keys,
        plots.density_panels,
        r"Key size: $n=%(width)d$, $L=%(depth)d$, $\gamma=0.6$, $\tau_0=0.5$, $m=%(tokens)d$",
    ),
    "ingredients": Recipe(
        ingredients.figure_ingredients,
        ingredients.ingredient_panels,
        r"What each ingredient does: $n=%(width)d$, $\gamma=1/\sqrt{8}$, $\tau_0=1$, "
        r"$m=%(tokens)d$",
    ),
    "explosion": Recipe(
        explosion.figure_explosion,
        explosion.passage_probabilities,
        r"Two tokens: $u=V_{1,1}-2V_{1,2}+V_{2,2}$ reaches %(level)g, or explodes",
        small=("--samples", "16", "--widths", "8,16", "--gammas", "0.6", "--tau0s", "0.5"),
    ),
    "models": Recipe(
        models.figure_models,
        models.model_curves,
        r"Public models at initialisation; grey: the same depths and widths with shaped attention",
        takes="about four minutes",
        small=("--models", "gpt2", "--tokens", "8", "--samples", "10"),
    ),
    "rare": Recipe(
        rare_events.figure_rare_events,
        plots.level_probabilities,
        r"Rare events: two tokens, $\gamma=0.35$, $\tau_0=3$, $t\leq 0.75$",
        takes="about four minutes",
        small=("--replicas", "50", "--runs", "2", "--levels", "3", "--widths", "32"),
    ),
}
"""Figures with a number are the paper's; the others go beyond it."""
