"""How a library stores the matrices of a block: under which names, and which of them as one."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Stored:
    """Matrices of a block that take the same rows.

    A block asks for products with matrices of N(0, 1) entries, and multiplies its branch by what
    makes up for that. With a matrix W of standard deviation s and a bias b of the library it is
    given (x W + b / c) / s, where the block, but not the library, has divided x by c.

    Attributes
    ----------
    members
        Numbers of the products of the block's branch that each parameter holds, by its name.
    std
        Standard deviation s of the entries.
    sections
        Of a parameter in which the library stores several matrices, the products of each, by name.
    biases
        Names of biases, by that of the parameter to whose product they are added.
    divisor
        c.
    norm_bias
        Name of the bias of the LayerNorm in front of the matrices; empty without.
    by_inputs
        Whether they are stored as (inputs, outputs), rather than (outputs, inputs).
    """

    members: dict[str, list[int]]
    std: float = 1.0
    sections: dict[str, list[list[int]]] = field(default_factory=dict)
    biases: dict[str, str] = field(default_factory=dict)
    divisor: float = 1.0
    norm_bias: str = ""
    by_inputs: bool = False

    @property
    def products(self) -> list[int]:
        """All products, in the order of the branch."""
        return sorted(number for members in self.members.values() for number in members)
