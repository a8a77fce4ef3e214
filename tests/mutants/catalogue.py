"""All mutants."""

from __future__ import annotations

from tests.mutants.architectures import ARCHITECTURES
from tests.mutants.attention import ATTENTION
from tests.mutants.audit import AUDIT
from tests.mutants.blocks import BLOCKS
from tests.mutants.configurations import CONFIGURATIONS
from tests.mutants.derived_limits import DERIVED_LIMITS
from tests.mutants.engine import ENGINE
from tests.mutants.estimates import ESTIMATES
from tests.mutants.explosion import EXPLOSION
from tests.mutants.lazy import LAZY
from tests.mutants.mutant import Mutant
from tests.mutants.reverse import REVERSE
from tests.mutants.rows import ROWS
from tests.mutants.sphere import SPHERE
from tests.mutants.stopping import STOPPING
from tests.mutants.sweeps import SWEEPS
from tests.mutants.symbols import SYMBOLS
from tests.mutants.training import TRAINING

MUTANTS: list[Mutant] = [
    *ARCHITECTURES,
    *ATTENTION,
    *AUDIT,
    *BLOCKS,
    *DERIVED_LIMITS,
    *CONFIGURATIONS,
    *ROWS,
    *REVERSE,
    *ENGINE,
    *ESTIMATES,
    *STOPPING,
    *EXPLOSION,
    *LAZY,
    *SPHERE,
    *SWEEPS,
    *SYMBOLS,
    *TRAINING,
]
