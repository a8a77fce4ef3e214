"""The version of the package, in one place, and the identity of all code that makes numbers."""

import functools
import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

__version__ = "0.2.0"


@functools.cache
def sources_digest() -> str:
    """Return a digest of all sources of the package, as this process first saw them."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of the packages that make the numbers of a result."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    return {
        "shaped_attention": __version__,
        **{name: version(name) for name in ("torch", "numpy", "scipy", "numba", "torchsde")},
        "python": platform.python_version(),
    }
