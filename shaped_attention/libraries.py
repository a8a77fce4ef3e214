"""The libraries under the package: those of the extras, torch, and the versions of a result.

Torch is imported on first use, since compiled code on the CPU does not need it: modules that
`simulate_chain` loads import `torch` and `Tensor` from here. A type checker sees torch's own.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False  # A checker takes it for true; without `typing`, whose import takes time.
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.3.0"

EXTRAS = {
    "cluster": ("distributed",),
    "figures": ("matplotlib", "seaborn"),
    "files": ("h5netcdf", "h5py"),
    "sweep": ("pydantic",),
    "trained": ("transformers",),
}
"""Libraries, by their names in imports, that an extra of `pyproject.toml` installs."""


class MissingLibraryError(ModuleNotFoundError):
    """An optional library is not installed; the message names the extra that provides it."""


@contextmanager
def extras() -> Iterator[None]:
    """Report a missing library of an extra in one sentence.

    Examples
    --------
    >>> with extras():
    ...     raise ModuleNotFoundError(name="seaborn")
    Traceback (most recent call last):
    shaped_attention.libraries.MissingLibraryError: seaborn is not installed; the extra `figures` \
installs it: pip install "shaped-attention[figures]", or all extras: pip install \
"shaped-attention[all]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        for extra, libraries in EXTRAS.items():
            if library in libraries and not isinstance(error, MissingLibraryError):
                raise MissingLibraryError(
                    f"{library} is not installed; the extra `{extra}` installs it: pip install "
                    f'"shaped-attention[{extra}]", or all extras: pip install '
                    '"shaped-attention[all]"',
                    name=error.name,
                ) from error
        raise


def lazily(module: str, find: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`: it reports a missing library and suggests near names.

    `find` returns what has a public name, and raises AttributeError.
    """

    @extras()
    def getattr_(name: str) -> Any:
        try:
            return find(name)
        except AttributeError:
            if name in sys.modules[module].__all__:
                raise  # The module of a public name failed: a fault of its own, not of the name.
            from difflib import get_close_matches

            names = [] if name.startswith("_") else sys.modules[module].__all__
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}") from None

    return getattr_


@functools.cache
def sources_digest() -> str:
    """Return a digest of all sources of the package, as this process first saw them."""
    import hashlib

    folder, digest = Path(__file__).parent, hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Return the versions of the packages that make the numbers of a result."""
    return dict(_versions())


@functools.cache
def _versions() -> dict[str, str]:
    import platform
    from importlib.metadata import version

    return {
        "shaped_attention": __version__,
        **{name: version(name) for name in ("torch", "numpy", "scipy", "llvmlite", "torchsde")},
        "python": platform.python_version(),
    }


if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
else:

    class _Module:
        """Torch, each name looked up when it is used."""

        def __getattr__(self, name: str) -> Any:
            # An abstract class asks each of its attributes for this, and so would load torch.
            if name == "__isabstractmethod__":
                raise AttributeError(name)
            import torch

            return getattr(torch, name)

    class _TensorType(type):
        """The type of the stand-in for `torch.Tensor`: without torch nothing is a tensor."""

        real: type | None = None

        def __instancecheck__(cls, value: object) -> bool:
            real = _TensorType.real
            if real is None:
                if "torch" not in sys.modules:
                    return False
                # Blocks until a thread that is importing torch has finished.
                import torch

                real = _TensorType.real = torch.Tensor
            return isinstance(value, real)

    class Tensor(metaclass=_TensorType):
        """A placeholder for `torch.Tensor` in annotations and in `isinstance`."""

    torch = _Module()
