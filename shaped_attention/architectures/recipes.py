"""Initialisations of people's code: the standard deviation of each matrix, by layer and size.

Matrices are q, k, v and o for queries, keys, values and the output of attention; g, u and d for
the gate, the first and the last matrix of the MLP, as in `parameter_names`; outside of layers w is
the embedding, p positions, y types, h a head that is not tied, and f what is in front of the head
of a masked model. Formulas know L (depth), l (number of the layer, from 0), n (width), fan_in, and
std (the configuration's own standard deviation).
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from shaped_attention.architectures.model import LayerStds
from shaped_attention.architectures.parameter_names import NAMES
from shaped_attention.checks import argument_error

_EXACT = 5.0
"""A normal law that is truncated at more standard deviations is taken for a normal one."""


class Law(NamedTuple):
    """A normal law: a formula for its standard deviation, and at how many of these it is cut."""

    formula: str
    cut: float | None = None

    @property
    def factor(self) -> float:
        """What the cut leaves of the standard deviation; 1 if the law is as good as normal."""
        from scipy.stats import truncnorm

        if self.cut is None or self.cut > _EXACT:
            return 1.0
        return float(truncnorm.std(-self.cut, self.cut))

    def approximation(self, matrices: str) -> str:
        """Say that Gaussian weights take the place of these."""
        return (
            f"{matrices} follow a normal law of standard deviation {self.formula}, truncated at "
            f"{self.cut:g} standard deviations; Gaussian weights of {self.factor:.4g} times that "
            "have the same variance"
        )


class Recipe(NamedTuple):
    """Laws of matrices by their letters; those of others are the library's.

    The logits are multiplied by `multiplier`. Only some `families` may have it, if these are named,
    or only those with a gated MLP.
    """

    source: str
    laws: Mapping[str, Law]
    multiplier: str = "1"
    families: tuple[str, ...] = ()
    gated: bool = False


RECIPES = {
    "library-5.0": Recipe(
        "transformers 5.0 to 5.14, whose c_proj is not scaled by 1/sqrt(2 L)",
        {"od": Law("std")}, families=("gpt2",),
    ),
    "gpt2": Recipe(
        "openai/gpt-2, src/model.py, and the paper's factor of residual layers",
        {"qkvguwyhf": Law("0.02"), "p": Law("0.01"), "od": Law("0.02/sqrt(2*L)")},
    ),
    "olmo-normal": Recipe(
        "allenai/OLMo, init_fn normal with its default init_std and no cutoff",
        {"qkvogudwpyhf": Law("0.02")},
    ),
    "olmo-mitchell": Recipe(
        "allenai/OLMo, init_fn mitchell",
        {"qkvguwpyhf": Law("1/sqrt(n)", 3.0), "od": Law("1/sqrt(2*fan_in*(l+1))", 3.0)},
    ),
    # The cuts of matrices of layers, -2 and 2, are 100 standard deviations or more; w3 is u.
    "torchtitan": Recipe(
        "pytorch/torchtitan, init_weights of Llama 3 with depth_init",
        {"qkvgpyf": Law("0.02"), "oud": Law("0.02/sqrt(2*(l+1))"), "w": Law("1"),
         "h": Law("1/sqrt(n)", 3.0)},
        gated=True,
    ),
    "standard": Recipe(
        "the standard parametrisation of Yang et al., Tensor Programs V, table 3: variance 1/n, "
        "from 0.02 at the base width",
        {"qkvogudfh": Law("0.02*sqrt(base/n)"), "wpy": Law("0.02")},
    ),
    "mup": Recipe(
        "Yang et al., Tensor Programs V, table 8, from 0.02 at the base width; heads keep their "
        "size, and 1/sqrt(d) in the logits of attention",
        {"qkvogudf": Law("0.02*sqrt(base/n)"), "wpyh": Law("0.02")}, multiplier="base/n",
    ),
}  # fmt: skip
"""Recipes by name."""

BASED = ("standard", "mup")
"""Recipes that need a base width."""

_NAMES = [f"{name}:base=WIDTH" if name in BASED else name for name in RECIPES]
_KNOWN = f"'library', {', '.join(map(repr, _NAMES))}, or NAME=FORMULA"


class Initial(NamedTuple):
    """Standard deviations of each layer, and of matrices outside of layers by their letters.

    Factor of the logits; what is not Gaussian; the recipe in words; whether the library's law is
    left for any matrix; at how many standard deviations of the law before the cut the recipe cuts
    the matrices that it names, infinity if it does not.
    """

    layers: list[LayerStds]
    outside: dict[str, float]
    multiplier: float
    approximations: tuple[str, ...]
    table: tuple[str, ...]
    of_library: bool
    cuts: Mapping[str, float] = {}


def initial(
    init: str | None, family: str, tied: bool, own: Mapping[str, float],
    sizes: Mapping[str, float], fans: Mapping[str, int],
) -> Initial:  # fmt: skip
    """Return the standard deviations of a model's matrices.

    `init` is the name of a recipe, "NAME=FORMULA, ..." for matrices by the ends of their names, of
    which the last that fits holds, or None. `family` is the `model_type`; `own` are the library's
    standard deviations by letters, `fans` numbers of inputs that are not n, and `sizes` L, n, std.
    """
    laws = {letter: Law(repr(std)) for letter, std in own.items()}
    if init in (None, "library"):
        one = LayerStds(*(own[x] for x in "qkvogud"))
        return Initial([one] * int(sizes["L"]), dict(own), 1.0, (), (), True)
    if not isinstance(init, str):
        raise argument_error("init", _KNOWN, init)
    if family not in NAMES:
        raise ValueError(f"init cannot be given for model_type={family!r}, without known names")
    names = matrices(family, tied)
    present = "".join(names.values())
    if "=" in init and init.partition(":")[0] not in BASED:
        recipe, options = Recipe("given", _given(init, names)), dict[str, float]()
    else:
        recipe, options = _recipe(init, family, present)
    chosen = {x: law for letters, law in recipe.laws.items() for x in letters}
    laws |= {x: law for x, law in chosen.items() if x in laws}
    values = {}
    for letter, law in laws.items():
        place = {**sizes, **options, "fan_in": fans.get(letter, sizes["n"])}
        layers = range(int(sizes["L"])) if letter in "qkvogud" else ()
        places, factor = [place | {"l": k} for k in layers] or [place], law.factor
        values[letter] = [factor * value_of(law.formula, x) for x in places]
    for name, letters in names.items():
        if len({tuple(values[x]) for x in letters}) > 1:
            raise ValueError(
                f"init={init!r} has different laws for the parts of {name}, which is one parameter "
                f"of {family}: this is not covered"
            )
    table = [f"initialisation {init}: {recipe.source}"]
    for law in dict.fromkeys(laws[x] for x in present):
        of = {name: values[x[0]] for name, x in names.items() if laws[x[0]] == law}
        table.append(_line(law, of))
    multiplier = value_of(recipe.multiplier, {**sizes, **options})
    if recipe.multiplier != "1":
        table.append(f"logits x {recipe.multiplier} = {multiplier:.4g}")
    rows = zip(*(values[x] for x in "qkvogud"), strict=True)
    return Initial(
        [LayerStds(*row) for row in rows],
        {x: numbers[0] for x, numbers in values.items() if x not in "qkvogud"}, multiplier,
        _approximations(laws, names), tuple(table), not {*present} <= chosen.keys(),
        {x: law.cut if law.cut and law.factor < 1.0 else math.inf for x, law in chosen.items()},
    )  # fmt: skip


def matrices(family: str, tied: bool) -> dict[str, str]:
    """Return the letters of each parameter of a family by name, in layers without the number."""
    names = NAMES[family]
    outside = {names.embedding: "w", names.positions: "p", names.types: "y"}
    outside |= {names.transform[0]: "f"} if names.transform else {}
    outside |= {} if tied else {names.head: "h"}
    return {name: x for name, x in {**names.matrices, **outside}.items() if name}


def _recipe(init: str, family: str, present: str) -> tuple[Recipe, dict[str, float]]:
    """Return the recipe of a name, and the values of its options."""
    name, _, words = init.partition(":")
    recipe, base = RECIPES.get(name), re.fullmatch(r"base=([1-9]\d*)", words)
    if recipe is None or (base is None if name in BASED else ":" in init):
        raise argument_error("init", _KNOWN, init)
    if recipe.families and family not in recipe.families:
        what = f"is for {', '.join(recipe.families)}; the library's own is as in other versions"
        raise ValueError(f"init={init!r} {what} for model_type={family!r}")
    if recipe.gated and "g" not in present:
        raise ValueError(f"init={init!r} is for gated MLPs; {family} has none")
    return recipe, {"base": float(base[1])} if base else {}


def _given(init: str, names: Mapping[str, str]) -> dict[str, Law]:
    """Return the laws of "NAME=FORMULA, ..." by letter."""
    laws: dict[str, Law] = {}
    for word in init.split(","):
        name, _, formula = (x.strip() for x in word.partition("="))
        name = name.removesuffix(".weight")
        ends = [x for x in names if f".{x}".endswith(f".{name}")]
        found = [name] if name in names else ends
        if not found or not name:
            raise ValueError(
                f"init names {name!r}, which is no matrix of this model; it has {', '.join(names)}"
            )
        laws |= {letter: Law(formula) for x in found for letter in names[x]}
    return laws


def _approximations(laws: Mapping[str, Law], names: Mapping[str, str]) -> tuple[str, ...]:
    cut: dict[Law, list[str]] = {}
    for name, letters in names.items():
        if laws[letters[0]].factor != 1.0:
            cut.setdefault(laws[letters[0]], []).append(name)
    return tuple(law.approximation(", ".join(found)) for law, found in cut.items())


def _line(law: Law, of: Mapping[str, list[float]]) -> str:
    """Return the line of a table for the matrices with a law, and their standard deviations."""
    numbers = [x for values in of.values() for x in values]
    low, high = f"{min(numbers):.3g}", f"{max(numbers):.3g}"
    text = low if low == high else f"{low} to {high}"
    known = "" if text == law.formula else f" = {text}"
    cut = "" if law.cut is None else f", truncated at {law.cut:g} standard deviations"
    return f"{law.formula}{known}{cut}: {', '.join(of)}"


_OPERATIONS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Pow: operator.pow,
}  # fmt: skip


def value_of(formula: str, names: Mapping[str, float]) -> float:
    """Return the value of a formula; raise ValueError unless it is a positive finite number."""

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=name) if name in names:
                return float(names[name])
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -value(inner)
            case ast.BinOp(left=a, op=sign, right=b) if type(sign) in _OPERATIONS:
                return float(_OPERATIONS[type(sign)](value(a), value(b)))
            case ast.Call(func=ast.Name(id="sqrt"), args=[inner], keywords=[]):
                return math.sqrt(value(inner))
        raise ValueError(f"{ast.unparse(node)} is unknown")

    try:
        number = value(ast.parse(formula, mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError) as error:
        what = f"a formula in {', '.join(names)}, sqrt, numbers, + - * / ** and parentheses"
        raise ValueError(f"{argument_error('init', what, formula)} ({error})") from None
    if not 0.0 < number < math.inf:
        raise ValueError(f"init has {formula} = {number:g}; it must be positive and finite")
    return number
