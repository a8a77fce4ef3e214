"""The figures of the paper, and those beyond it, by name."""

from __future__ import annotations

from typing import Any

from shaped_attention.figures.recipes import Option, Recipe


def _recipe(data: str, plot: str, about: str, title: str, **rest: Any) -> Recipe:
    """Return a recipe whose functions are in modules of this package."""
    return Recipe(f"{__package__}.{data}", f"{__package__}.{plot}", about, title, **rest)


_GAMMAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_WIDTHS = (64, 256, 1024)
_OF_WIDTH_200 = {"tokens": 4, "width": 200, "depth": 100, "samples": 2**15}
_SMALL = {"width": 20, "depth": 10, "samples": 30, "tokens": 2}

FIGURES: dict[str, Recipe] = {
    "1-left": _recipe(
        "original:figure_1_left",
        "plots:layer_curves",
        "Correlation of two tokens against the layer: shaped, unshaped, and unshaped Pre-LN.",
        "Unshaped transformers collapse their tokens, shaped ones do not\n"
        r"$n=%(width)d$, $L=%(depth)d$, $\gamma=1/\sqrt{8}$, $\tau_0=1$, $m=%(tokens)d$",
        options={"tokens": 4, "width": 200, "depth": 150, "samples": 2**12},
        small=_SMALL,
    ),
    "1-right": _recipe(
        "original:figure_1_right",
        "law_plots:density_panels",
        "Samples of rho_01 and V_01 at the last layer: chain and SDE (also figure 7).",
        "The SDE has nearly the law of the last layer\n"
        r"$n=%(width)d$, $L=%(depth)d$, $\gamma=1/\sqrt{8}$, $\tau_0=1$, $m=%(tokens)d$",
        options={"tokens": 4, "width": 200, "depth": 150, "samples": 2**15},
        small=_SMALL,
    ),
    "2": _recipe(
        "original:figure_2",
        "law_plots:density_and_percentile",
        "Samples of rho_01 for several gamma, MLP only, chain and SDE; c_+ = 0, c_- = -1.",
        "Large $\\gamma$ spreads the correlation of two tokens, with a shaped ReLU only\n"
        r"$n=%(width)d$, $L=%(depth)d$, $\rho_0=0.2$, $c_+=0$, $c_-=-1$, $m=%(tokens)d$",
        options={
            "gammas": Option(
                "Weights of the MLP branch, each in [0, 1].  [default: 1/sqrt L,0.25,0.5,0.75,1]",
                None,
            ),
            "tokens": 2,
            "width": 300,
            "depth": 100,
            "samples": 2**15,
        },
        small=_SMALL | {"gammas": (0.3, 1.0)},
    ),
    "3": _recipe(
        "original:figure_3",
        "plots:layer_curves",
        "Mean |rho| and median |V_ab| against the layer, with one modification of attention "
        "removed.",
        "Without one of its three changes, attention collapses or grows without bound\n"
        r"$n=%(width)d$, $L=%(depth)d$, $\gamma=1/\sqrt{2}$, $m=%(tokens)d$; stopped at $|V|=10^8$",
        options={"tokens": 4, "width": 300, "depth": 150, "samples": 2**13},
        small=_SMALL,
    ),
    "4": _recipe(
        "original:figure_4",
        "plots:stopping_maps",
        "Times at which an eigenvalue leaves [10^-4, 10^4], capped at 1, over gamma and tau_0.",
        r"From $V_{a,a}=100$ the SDE leaves $[10^{-4},10^4]$ long before the chain"
        "\n"
        r"exit of an eigenvalue of $V$: $n=%(width)d$, $m=%(tokens)d$",
        options={
            "gammas": _GAMMAS,
            "tau0s": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
            "tokens": 4,
            "width": 200,
            "samples": 100,
        },
        small={"gammas": (0.3,), "tau0s": (1.0, 2.0), "width": 20, "samples": 10, "tokens": 2},
    ),
    "schematic": _recipe(
        "schematic:figure_schematic",
        "schematic:schematic_panels",
        "Network, exact chain and SDE: what each consists of, how they are related, and paths.",
        "The chain has the law of the network at every width; the SDE is the limit of both",
        options={"width": 48, "samples": 512},
        small={"width": 12, "samples": 10},
    ),
    "eigenvalues": _recipe(
        "beyond:figure_eigenvalues",
        "plots:eigenvalue_paths",
        "Largest eigenvalue of V against time from V_aa = 100, where n = 200 is far from the "
        "limit (figures 4, 8).",
        r"From $V_{a,a}=100$ the SDE explodes long before a chain of width %(width)d grows"
        "\n"
        r"stopped at $|V|=10^5$: $L=%(width)d$, $\tau_0=1$, $m=%(tokens)d$",
        options={"gammas": (0.02, 0.05, 0.2), "tokens": 4, "width": 200, "samples": 100},
        small={"gammas": (0.1,), "width": 20, "samples": 10, "tokens": 2},
    ),
    "tokens": _recipe(
        "beyond:figure_tokens",
        "law_plots:density_panels",
        "Effect of the number of tokens m: rho_01 and V_01 for m = 2, 4, 8 and 16.",
        "The law of two tokens hardly depends on how many others there are\n"
        r"$n=%(width)d$, $L=%(depth)d$, $\gamma=0.6$, $\tau_0=0.5$",
        options=_OF_WIDTH_200
        | {"tokens": Option("Numbers of tokens m.", (2, 4, 8, 16)), "samples": 2**14},
        small=_SMALL | {"tokens": (2, 3)},
    ),
    "keys": _recipe(
        "beyond:figure_keys",
        "law_plots:key_panels",
        "Effect of the key size n_k: none in the limit, and little at finite width.",
        "The key size has no effect in the limit, and little at finite width\n"
        r"$n=%(width)d$, $L=%(depth)d$, $\gamma=0.6$, $\tau_0=0.5$, $m=%(tokens)d$",
        options=_OF_WIDTH_200,
        small=_SMALL,
    ),
    "ingredients": _recipe(
        "ingredients:figure_ingredients",
        "ingredients:ingredient_panels",
        "Mean cosine of two tokens against the layer, for plain and for shaped transformers.",
        "Plain transformers collapse their tokens whatever the ingredients, shaped ones do not\n"
        r"$n=%(width)d$, $\gamma=1/\sqrt{8}$, $\tau_0=1$, $m=%(tokens)d$",
        options={"tokens": 8, "width": 128, "depth": 128, "samples": 256},
        small={"tokens": 3, "width": 16, "depth": 6, "samples": 10},
    ),
    "explosion": _recipe(
        "explosion:figure_explosion",
        "explosion:passage_probabilities",
        "Probability of an explosion by time T for two tokens: the exact law and chains.",
        "Chains approach the exact law of the limit from below as they get wider\n"
        r"two tokens: probability that $u=V_{0,0}-2V_{0,1}+V_{1,1}$ reaches %(level)g, or explodes",
        options={
            "gammas": (0.35, 0.6),
            "tau0s": (0.5, 1.0),
            "widths": _WIDTHS,
            "level": Option("Level of u = V_11 - 2 V_12 + V_22, which is 1.6 initially.", 10.0),
            "horizon": Option("Largest time.", 1.0),
            "samples": Option("Number of chains of each width.", 2**14),
        },
        small={"gammas": (0.6,), "tau0s": (0.5,), "widths": (16, 32), "samples": 30},
    ),
    "collapse": _recipe(
        "collapse:figure_collapse",
        "collapse:collapse_panels",
        "Mean cosine of two tokens by layer at initialisation: the law that a configuration "
        "predicts, models made by the transformers library, and shaped attention of the same "
        "sizes.",
        "Tokens of untrained transformers align layer by layer; with shaped attention they do not\n"
        "bands: 5–95 %% of samples of the law",
        options={
            "models": Option(
                "Names of shipped configurations, or llama-WIDTH.",
                ("gpt2", "llama-1024"),
                tuple[str, ...],
            ),
            "tokens": 64,
            "samples": Option("Number of samples of each law.", 200),
            "networks": Option("Number of models made by the transformers library.", 8),
        },
        small={"models": ("llama-64",), "tokens": 3, "samples": 10, "networks": 2},
        takes="Takes about four minutes.",
    ),
    "widths": _recipe(
        "collapse:figure_widths",
        "collapse:width_panels",
        "Mean cosine of two tokens after the 32 layers of a Llama, against its width and its "
        "initializer_range.",
        r"A Llama collapses where initializer_range $\times\ \sqrt{\mathrm{width}}$ is below 1",
        options={
            "widths": Option("Widths of the models.", (256, 512, 1024, 2048, 4096)),
            "ranges": Option("Values of initializer_range.", (0.01, 0.02, 0.04)),
            "tokens": 32,
            "samples": 10,
        },
        small={"widths": (64, 128), "ranges": (0.02, 0.1), "tokens": 3, "samples": 10},
        takes="Takes about three minutes.",
    ),
    "gradients": _recipe(
        "gradients:figure_gradients",
        "gradients:gradient_panels",
        "Norms of the gradients of W_V by layer: shaped layers, pre-norm and post-norm.",
        "Gradients of shaped layers are alike at every depth, and differ more between networks as "
        "L/n grows;\nthose of pre-norm are largest in the first layers\n"
        r"$n=%(width)d$, $m=%(tokens)d$",
        options={
            "ratios": Option("Ratios L / n of depth to width.", (0.125, 0.5, 1.0)),
            "tokens": 4,
            "width": 64,
            "samples": 200,
        },
        small={"ratios": (0.25, 0.5), "tokens": 2, "width": 16, "samples": 30},
    ),
    "learning-rate": _recipe(
        "learning_rates:figure_learning_rate",
        "learning_rates:learning_rate_panels",
        "Loss after a few steps of SGD against the learning rate: widths to 10^6, depths to 64.",
        "The best learning rate moves with the width unless the parametrisation is muP,\n"
        r"and with the depth unless branches have the weight $1/\sqrt{L}$",
        options={
            "widths": (100, 10_000, 1_000_000),
            "rates": Option("Learning rates at all widths.  [default: 10^-8 to 3.16]", None),
            "depths": Option("Depths L that are compared at one width.", (4, 16, 64)),
            "depth_rates": Option("Learning rates at all depths.  [default: 0.000316 to 1]", None),
            "depth_width": Option("Width at which depths are compared.", 48),
            "steps": Option("Number of training steps.", 3),
            "samples": 12,
        },
        small={
            "widths": (16, 32),
            "rates": (0.01, 0.1),
            "depths": (1, 2),
            "depth_rates": (0.01, 0.1),
            "depth_width": 16,
            "steps": 2,
            "samples": 10,
        },
        takes="Takes about four minutes.",
    ),
    "tangent-kernel": _recipe(
        "tangent_kernels:figure_tangent_kernel",
        "tangent_kernels:kernel_panels",
        "Samples of the neural tangent kernel divided by their mean, and its second moment against "
        "L/n.",
        "When depth grows with the width, the tangent kernel stays random however wide the network"
        "\n"
        r"shaped attention, $\gamma=1/\sqrt{2}$, $\tau_0=1$",
        options={
            "ratios": Option("Ratios L / n of depth to width.", (0.1, 0.3, 0.6, 1.0)),
            "widths": (16, 64, 256),
            "tokens": Option("Numbers of tokens; densities are shown for the first.", (1,)),
            "samples": 2000,
        },
        small={"ratios": (0.25, 0.5), "widths": (8, 16), "tokens": (1, 2), "samples": 30},
    ),
    "independent-gradients": _recipe(
        "independent_gradients:figure_independent_gradients",
        "independent_gradients:independence_panels",
        "A step of SGD with gradients that go back through W^T, or through an independent matrix.",
        "Norms of gradients at initialisation do not tell an independent matrix from $W^\\top$; "
        "the step does\n"
        r"pre-norm shaped attention, branches of weight $1/\sqrt{L}$, $\eta=%(rate)g$",
        options={
            "widths": (64, 4096),
            "depths": Option("Depths L; the largest is also shown layer by layer.", (2, 8, 32)),
            "rate": Option("Learning rate of the step, for N(0, 1) weights.", 0.05),
            "samples": 400,
        },
        small={"widths": (16, 32), "depths": (1, 2), "samples": 10},
    ),
    "explosion-map": _recipe(
        "explosion_map:figure_explosion_map",
        "explosion_map:explosion_maps",
        "Probability that the limit ever explodes, over gamma and tau_0: exact law and paths.",
        r"Two tokens never explode once $\gamma^2 \geq H/2$; more tokens still do "
        r"($H=%(heads)d$)",
        options={
            "gammas": tuple(round(0.05 * k, 2) for k in range(2, 20)),
            "tau0s": (0.1, 0.2, 0.4, 0.8, 1.6, 3.2),
            "tokens": Option("Numbers of tokens of the paths.", (2, 4)),
            "heads": Option("Number H of heads.", 1),
            "steps": Option(
                "Number of steps of the clock up to t = 10 / k, k = gamma^2 (2 - gamma^2).", 400
            ),
            "samples": Option("Number of paths of each cell.", 512),
        },
        small={
            "gammas": (0.3, 0.6),
            "tau0s": (0.5, 1.0),
            "tokens": (2,),
            "steps": 20,
            "samples": 30,
        },
        takes="Takes about four minutes.",
    ),
    "models": _recipe(
        "models:figure_models",
        "models:model_curves",
        "Ten public configurations at the default initialisation of the transformers library: "
        "cosine and effective rank of 64 tokens by layer.",
        r"At the library's default initialisation some models lose the rank of their tokens, "
        "others keep it",
        options={
            "models": Option(
                "Names of shipped configurations.  [default: all]", None, tuple[str, ...]
            ),
            "tokens": 64,
            "samples": 16,
        },
        small={"models": ("gpt2",), "tokens": 3, "samples": 10},
        takes="Takes about four minutes.",
    ),
    "speed": _recipe(
        "speed:figure_speed",
        "speed:speed_curves",
        "Time of a layer and of a sample against the width, for networks, chains and SDE.",
        "An exact chain of attention costs the same at every width",
        options={
            "measurements": Option(
                "File written by `python -m benchmarks.widths --json FILE`, or 'shipped'.",
                "shipped",
            ),
        },
        small={},
        random=False,
    ),
}
"""Figures with a number are the paper's; the others go beyond it."""
