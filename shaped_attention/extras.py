"""Libraries that only some features need: the extras of the package that install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "cluster": ("distributed",),
    "figures": ("PIL", "matplotlib", "seaborn"),
    "files": ("h5netcdf", "h5py"),
    "parquet": ("pyarrow",),
    "sweep": ("filelock", "numcodecs", "pandas", "zarr"),
    "trained": ("transformers",),
}
"""Libraries, by their names in imports, that an extra of `pyproject.toml` installs."""


class MissingLibraryError(ModuleNotFoundError):
    """A library of an extra is not installed; the message names the extra."""


@contextmanager
def extras() -> Iterator[None]:
    """Report a missing library of an extra in one sentence.

    Examples
    --------
    >>> with extras():
    ...     raise ModuleNotFoundError(name="seaborn")
    Traceback (most recent call last):
    shaped_attention.extras.MissingLibraryError: seaborn is not installed; the extra `figures` \
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
