"""The operations of descriptions, a file for each or for a few of one kind.

A file has all faces of its operations: the function of torch tensors, what it does to matrices of a
trace and to tangents, its emission as code, and library routines on stacks of matrices. `registry`
says which faces an operation must have. All files of this folder are imported here, which registers
their operations.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

for _path in sorted(Path(__file__).parent.glob("*.py")):
    if _path.stem != "__init__":
        import_module(f"{__name__}.{_path.stem}")
