"""The wheel as a user gets it: what is in it, and the main jobs in an environment of its own.

The sources are copied, built (source archive first, the wheel from that), installed with the
versions of constraints.txt, and run in a temporary folder outside the repository: nothing of the
checkout can help. Needs access to the dependencies; a few minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa
from tests.release import PACKAGES, ROOT, Installed, build

SMALL = ("--width", 40, "--depth", 30, "--samples", 64, "--network-samples", 16, "--no-progress")

pytestmark = pytest.mark.validation


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that goes with its contents: two gigabytes of installed dependencies."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        yield Path(name).resolve()


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    return build(folder)[0]


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Installed:
    place = Installed.create(folder / "venv", sys.executable)
    place.install(f"{wheel}[figures,files]", constraints=ROOT / "constraints.txt")
    return place


def test_the_wheel_has_every_module_and_data_file_and_nothing_else(wheel):
    """Equal sets, so that a file that is missing and a file that is too much are both found."""
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    modules = {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    data = {path for path in (ROOT / "shaped_attention" / "data").rglob("*") if path.is_file()}
    data |= set((ROOT / "symbolic" / "claims" / "statements").iterdir())
    data |= set((ROOT / "shaped_attention" / "numerics").rglob("*.cuh"))
    typed = {ROOT / package / "py.typed" for package in PACKAGES}
    typed |= set((ROOT / "shaped_attention").rglob("*.pyi"))
    wanted = {path.relative_to(ROOT).as_posix() for path in modules | data | typed}
    assert names - metadata == wanted
    assert {"shaped_attention/sphere/figures/__init__.py", "symbolic/claims/__init__.py"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in metadata)
    assert wheel.name == f"shaped_attention-{sa.__version__}-py3-none-any.whl"


def test_the_installed_package_is_the_wheel(installed):
    script = (
        "from importlib.metadata import version; import shaped_attention, symbolic;"
        "print(version('shaped-attention'), shaped_attention.__file__, symbolic.__file__)"
    )
    number, *files = installed.run("python", "-c", script).split()
    assert number == sa.__version__
    assert all(Path(file).is_relative_to(installed.bin.parent) for file in files)


def test_the_main_job_runs_there(installed):
    """Three samplers, comparison and figures from the shipped tokens; the results can be read."""
    out = ("--figures", "figures", "--results", "results")
    installed.run("shaped-attention", "compare", *SMALL, *out)
    for name, samples in {"network": 16, "chain": 64, "sde": 64}.items():
        with xr.open_dataset(installed.work / "results" / f"{name}.nc", engine="h5netcdf") as data:
            assert data.sizes["sample"] == samples
            assert np.isfinite(data["V"].values).all()
    assert json.loads((installed.work / "results" / "comparison.json").read_text())
    figures = {path.name for path in (installed.work / "figures").iterdir()}
    assert {"compare-trajectories.png", "compare-densities.svg"} <= figures


def test_the_other_commands_run_there(installed):
    """Histograms read the second data file; the derivation needs `symbolic` whole."""
    installed.run("shaped-attention", "sphere", "histograms", "--figures", "figures")
    assert (installed.work / "figures" / "sphere-histograms.png").stat().st_size > 0
    assert "claims" in installed.run("python", "-m", "symbolic", "--help")
    block = ("--block", "attention", "--tokens", 2)
    derived = installed.run("python", "-m", "symbolic", "derive", *block)
    assert "proven:" in derived
