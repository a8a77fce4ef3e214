"""Shape checks at run time, and fixtures that all tests share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook

# Numba's cache notices a change of a kernel's own file, not of the files whose code it inlines.
# So the tests keep their compiled kernels in a folder named after all of the sources.
_ROOT = Path(__file__).parents[1]
_SOURCES = sorted((_ROOT / "shaped_attention" / "kernels").glob("*.py"))
_DIGEST = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()[:16]
numba.config.CACHE_DIR = str(_ROOT / ".pytest_cache" / f"kernels-{_DIGEST}")

# Array shapes in annotations are checked while the tests run (never in the kernels, which numba
# compiles). The hook must be there before the modules are first imported.
_CHECKED = [
    "blocks",
    "chain",
    "covariance",
    "draws",
    "ensemble",
    "euler",
    "limit",
    "network",
    "sde",
]
install_import_hook([f"shaped_attention.{name}" for name in _CHECKED], "beartype.beartype")


@pytest.fixture(autouse=True)
def global_generators_untouched() -> Iterator[None]:
    """No test, and so no function of the package, may move numpy's or torch's generator."""
    before = np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
    yield
    assert np.random.get_state()[1].tobytes() == before[0]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[1])
