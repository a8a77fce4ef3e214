from .derivatives import hvp, jvp, vjp
from .layers import Layers
from .low_rank import Factors
from .matrices import Matrix
from .rows import Rows
from .space import Space
from .spaces import Sum
from .tape import Tape

__all__ = ["Factors", "Layers", "Matrix", "Rows", "Space", "Sum", "Tape", "hvp", "jvp", "vjp"]
