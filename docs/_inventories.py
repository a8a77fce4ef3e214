"""Links to the documentation of NumPy, PyTorch and xarray, without fetching anything.

Sphinx reads an inventory of names and places for each project. Theirs would be fetched from the
network at each build; these hold only the names that appear in signatures here.
"""

from __future__ import annotations

import zlib
from pathlib import Path

_GENERATED = "generated/$.html#$"
_REFERENCE = "reference/generated/$.html#$"

PROJECTS: dict[str, tuple[str, dict[str, str]]] = {
    "numpy": (
        "https://numpy.org/doc/stable/",
        {
            "numpy.ndarray": _REFERENCE,
            "numpy.random.Generator": "reference/random/generator.html#$",
        },
    ),
    "torch": (
        "https://docs.pytorch.org/docs/stable/",
        {"torch.Tensor": "tensors.html#$", "torch.nn.Module": _GENERATED},
    ),
    "xarray": (
        "https://docs.xarray.dev/en/stable/",
        {"xarray.Dataset": _GENERATED, "xarray.DataArray": _GENERATED},
    ),
}
"""By project: the address of its pages, and its classes with their places, $ for the name."""

OTHER_NAMES = {
    "numpy.random._generator.Generator": "numpy.random.Generator",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "xarray.core.dataarray.DataArray": "xarray.DataArray",
    "xarray.core.dataset.Dataset": "xarray.Dataset",
}
"""Public names of classes by the modules that define them, which signatures may have."""


def write_all(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories into a folder; return the mapping that Sphinx takes."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, (address, places) in PROJECTS.items():
        places = {name: place.replace("$", name) for name, place in places.items()}
        names = places | {
            other: places[name] for other, name in OTHER_NAMES.items() if name in places
        }
        lines = "".join(f"{name} py:class 1 {place} -\n" for name, place in sorted(names.items()))
        head = (
            f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
            "# The remainder of this file is compressed using zlib.\n"
        )
        path = folder / f"{project}.inv"
        path.write_bytes(head.encode() + zlib.compress(lines.encode()))
        mapping[project] = (address, str(path))
    return mapping
