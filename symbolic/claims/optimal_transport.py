"""Claims on optimal transport: maps, couplings, distances, the theorem of Brenier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product

from sympy import (
    Expr,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    Sum,
    Symbol,
    diff,
    expand,
    simplify,
    symbols,
)
from sympy.concrete.delta import deltasummation

from symbolic.claims.kinetic_energy import (
    T,
    X,
    energy,
    gaussian_mean,
    gaussian_velocity,
    moves_gaussians,
    shrinking_without_time,
)
from symbolic.claims.ledger import Finding, Verdict, at, imprecise, note, proven, refuted

Law = Mapping[Rational, Rational]
"""The masses of atoms."""

HALF = Rational(1, 2)
POINT: Law = {Integer(0): Integer(1)}
PAIR: Law = {Integer(-1): HALF, Integer(1): HALF}


def maps(first: Law, last: Law) -> Iterator[dict[Rational, Rational]]:
    """Yield every map of atoms that transports one law to the other."""
    for values in product(last, repeat=len(first)):
        image = {y: Integer(0) for y in last}
        for mass, y in zip(first.values(), values, strict=True):
            image[y] += mass
        if image == dict(last):
            yield dict(zip(first, values, strict=True))


def _monge() -> Finding:
    shifted = {Integer(1): HALF, Integer(4): HALF}
    between_pairs = list(maps(PAIR, shifted))
    return imprecise(
        f"of the maps of atoms {len(between_pairs)} transport one pair of equal masses to another; "
        "none transports a point mass to such a pair, and the infimum is over the empty set. A map "
        "T: X -> Y is meant (X x Y is a set, no map), and the infimum need not be attained",
        part_that_holds=len(between_pairs) == 2 and all(len(m) == 2 for m in between_pairs),
        part_that_fails=not list(maps(POINT, PAIR)),
    )


def coupling_of(transport: Mapping[Rational, Rational], first: Law, last: Law) -> Matrix:
    """Return the masses on pairs of atoms under (x, T(x)) with x from the first law."""
    return Matrix(
        len(first),
        len(last),
        lambda i, j: first[list(first)[i]] if transport[list(first)[i]] == list(last)[j] else 0,
    )


def couples(plan: Matrix, first: Law, last: Law) -> bool:
    """Return whether a plan is nonnegative with the two laws as its marginals."""
    rows = [sum(plan.row(i)) for i in range(plan.rows)]
    columns = [sum(plan.col(j)) for j in range(plan.cols)]
    return (
        all(entry >= 0 for entry in plan)
        and rows == list(first.values())
        and columns == list(last.values())
    )


MASSES, COSTS, IMAGE = map(IndexedBase, ("mu", "c", "T"))
"""Masses mu_i of atoms, costs c_ij, and the number T_i of the atom that atom i is sent to."""

FIRST, LAST = symbols("i j", integer=True, positive=True)
COUNT, OTHER_COUNT = symbols("m n", integer=True, positive=True)


def mass_of_the_graph() -> Expr:
    """Return the mass of the coupling (x, T(x)) on the pair of atoms i, j."""
    return MASSES[FIRST] * KroneckerDelta(IMAGE[FIRST], LAST)


def maps_are_couplings() -> list[bool]:
    """Check row sums, column sums and cost of (x, T(x)) for m and n atoms, symbols, and any T.

    T#mu = nu says that nu_j is the sum of the mu_i with T_i = j.
    """
    rows = deltasummation(mass_of_the_graph(), (LAST, 1, OTHER_COUNT), no_piecewise=True)
    image = Sum(MASSES[FIRST] * KroneckerDelta(IMAGE[FIRST], LAST), (FIRST, 1, COUNT))
    columns = Sum(mass_of_the_graph(), (FIRST, 1, COUNT))
    costs = mass_of_the_graph() * COSTS[FIRST, LAST]
    price = deltasummation(costs, (LAST, 1, OTHER_COUNT), no_piecewise=True)
    paid = MASSES[FIRST] * COSTS[FIRST, IMAGE[FIRST]]
    return [rows == MASSES[FIRST], columns == image, simplify(price - paid) == 0]


def _kantorovich() -> Finding:
    first: Law = {Integer(k): Rational(1, 4) for k in range(4)}
    last: Law = {Integer(5): HALF, Integer(7): Rational(1, 4), Integer(9): Rational(1, 4)}
    cost = Matrix(4, 3, lambda i, j: Symbol(f"c_{i}{j}"))
    facts = []
    for transport in maps(first, last):
        plan = coupling_of(transport, first, last)
        price = sum(first[x] * cost[i, list(last).index(transport[x])] for i, x in enumerate(first))
        facts.append(couples(plan, first, last))
        facts.append(expand(price - sum(plan.multiply_elementwise(cost))) == 0)
    product_plan = Matrix(1, 2, [HALF, HALF])
    return proven(
        "(x, T(x)) is a coupling if T#mu = nu, with the cost int c(x, T(x)) mu(dx): its marginals "
        "are mu and T#mu. So the infimum over couplings is at most that over maps. For m and n "
        "atoms, symbols, any masses, costs and T: sums over rows and columns, and the cost. For "
        "all laws the same by the change of variables int f d(S#mu) = int f o S dmu. Couplings "
        "are more, and always exist: a point mass and a pair have their product, and no map. The "
        f"{len(facts) // 2} maps from four atoms to three agree",
        *maps_are_couplings(),
        len(facts) == 24,
        *facts,
        couples(product_plan, POINT, PAIR) and not list(maps(POINT, PAIR)),
    )


def transport_cost(first: Sequence[Rational], last: Sequence[Rational], power: Rational) -> Expr:
    """Return the least mean of |x - y|^p between equally many atoms of equal masses.

    The best coupling is a permutation (Birkhoff).
    """
    return min(
        sum((abs(x - y) ** power for x, y in zip(first, order, strict=True)), Integer(0))
        for order in permutations(last)
    ) / len(first)


LAWS = [tuple(map(Integer, atoms)) for atoms in ((0, 0, 0), (0, 1, 5), (2, 2, 3), (-4, 0, 7))]


def triangle_holds(power: Rational, root: bool) -> bool:
    """Return whether W_p, or with root=False W_p^p, satisfies the triangle inequality on LAWS."""
    exponent = 1 / power if root else Integer(1)
    size = {
        (a, b): (transport_cost(a, b, power) ** exponent).evalf(30)
        for a, b in product(LAWS, repeat=2)
    }
    return all(size[a, c] <= size[a, b] + size[b, c] + 1e-20 for a, b, c in product(LAWS, repeat=3))


def _wasserstein_distance() -> Finding:
    powers = [Integer(1), Rational(3, 2), Integer(2), Integer(3)]
    ordered = all(
        transport_cost(a, b, power)
        == sum((abs(x - y) ** power for x, y in zip(sorted(a), sorted(b), strict=True)), Integer(0))
        / 3
        for power in powers
        for a, b in product(LAWS, repeat=2)
    )
    points = [transport_cost((Integer(a),), (Integer(b),), Integer(2)) for a, b in ((0, 1), (0, 2))]
    # Below p = 1: from 0 over half the mass at 1 to 1.
    small = transport_cost((Integer(0),) * 2, (Integer(0), Integer(1)), HALF) ** 2
    return imprecise(
        "on the line, three atoms and p = 1, 3/2, 2, 3: the increasing pairing is the best of all, "
        "and W_p, the root, satisfies the triangle inequality. The minimum itself does not: for "
        f"points at 0, 1, 2 and p = 2 it is {points[1]} > {points[0]} + {points[0]}; and the cost "
        "is d^p, not the distance d. Below p = 1 W_p fails: 1 > "
        f"{small} + {small} for point masses at 0, 1 and their mean",
        part_that_holds=ordered and all(triangle_holds(power, root=True) for power in powers),
        part_that_fails=bool(points[1] > 2 * points[0])
        and not triangle_holds(Integer(2), root=False)
        and bool(2 * small < 1),
    )


def _brenier() -> Finding:
    deviation = 1 - T / 2
    velocity = gaussian_velocity(Integer(0), deviation)
    potential = -(X**2) / (2 * (2 - T))
    covariance = Symbol("covariance", real=True)
    cost = 1 + Rational(1, 4) - 2 * covariance
    convex = X**2 / 4
    pushed = diff(convex, X)
    quarter = Rational(1, 4)
    attained = [gaussian_mean(f, Integer(0), Integer(1)) for f in (pushed**2, (pushed - X) ** 2)]
    steady = shrinking_without_time()
    fails = (
        simplify(velocity - diff(potential, X)) == 0
        and moves_gaussians(velocity, Integer(0), deviation)
        and simplify(diff(potential, X, 2) + 1 / (2 - T)) == 0
        and bool(steady > Rational(1, 4))
    )
    return refuted(
        "from N(0, 1) to N(0, 1/4) the optimal field is b_t = -x/(2 - t), with the concave "
        "potential -x^2/(2 (2 - t)). No convex phi works: (|x - y|^2)' = 2 <x - y, grad phi(x) - "
        "grad phi(y)> >= 0, so particles never approach. A field without time costs more: -log(2) "
        f"x costs {steady.evalf(4)} > W_2^2 = 1/4. The map is x/2 = (x^2/4)', x^2/4 convex",
        claim_fails=fails,
        correction_holds=attained == [quarter, quarter]
        and diff(convex, X, 2) > 0
        and cost.subs(covariance, HALF) == quarter
        and energy(velocity, Integer(0), deviation) == quarter,
    )


CLAIMS = [
    note(
        "monge-problem",
        "Monge: find a measurable transport map T: X x Y with T#mu = nu that minimises the "
        "infimum over such maps of int c(x, T(x)) mu(dx).",
        Verdict.IMPRECISE,
        _monge,
        at("004:86-87", r"T : X \times Y", r"\inf_{T: T_{\#}\mu = \nu} \int_X c(x, T(x))\mu(dx)"),
        corrected="T: X -> Y with T#mu = nu attains the infimum of int c(x, T(x)) mu(dx), if "
        "there is one: a point mass cannot be mapped to two points.",
        corrected_latex=r"T : X \to Y,\quad T_{\#}\mu = \nu",
        why="X x Y is a set, not a map from X to Y; and a map with T#mu = nu need not exist.",
    ),
    note(
        "kantorovich-relaxation",
        "Kantorovich: the infimum of int c dpi over the couplings pi of mu and nu relaxes the "
        "problem of Monge.",
        Verdict.PROVEN,
        _kantorovich,
        at("004:88", r"\inf_{\pi \in \Pi(\mu, \nu)} \int_{X \times Y} c(x, y)\pi(dx, dy)"),
    ),
    note(
        "wasserstein-distance",
        "If the cost is a distance, the least cost W_p^p = inf E d(x, y)^p is called p-Wasserstein "
        "distance.",
        Verdict.IMPRECISE,
        _wasserstein_distance,
        at(
            "004:92-94",
            r"W_p^p(\mu, \nu) = \inf_{\pi \in \Pi(\mu, \nu)} \mathbb{E}_{(x,y) \sim \pi} "
            r"[d(x,y)^p]",
        ),
        corrected="If d is a distance and p >= 1, W_p = (inf E d(x, y)^p)^(1/p) is the "
        "p-Wasserstein distance: the cost is d^p, and the root is the distance.",
        corrected_latex=r"W_p(\mu, \nu) = \left(\inf_{\pi \in \Pi(\mu, \nu)} "
        r"\mathbb{E}[d(x,y)^p]\right)^{1/p},"
        r"\ p \geq 1",
        why="W_p^p violates the triangle inequality (points 0, 1, 2: 4 > 1 + 1); its p-th root "
        "is the distance, for p >= 1.",
    ),
    note(
        "brenier-velocity",
        "Brenier: there is a unique convex potential phi such that the field b = grad phi solves "
        "the transport problem in continuous time.",
        Verdict.FALSE,
        _brenier,
        at("004:95", r"\varphi(x_t)", r"b(x_t) = \nabla \varphi(x_t)"),
        corrected="If mu has a density and second moments are finite, the optimal map for the "
        "cost |x - y|^2 is T = grad phi with phi convex, unique mu-almost everywhere. The "
        "velocity is b_t = (T - id) o T_t^(-1), T_t = (1 - t) id + t T.",
        corrected_latex=r"T = \nabla \varphi,\ \varphi \text{ convex}",
        why="The map, not the velocity, is the gradient of a convex function: a convex potential "
        "never lets particles approach.",
    ),
]
