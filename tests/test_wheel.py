"""The wheel as a user gets it: what is in it, and the main jobs in an environment of its own.

The sources are copied, built (source archive first, the wheel from that), installed with the
versions of constraints.txt, and run in a temporary folder outside the repository: nothing of the
checkout can help. Needs access to the dependencies; a few minutes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import shaped_attention as sa

ROOT = Path(__file__).parents[1]
PACKAGES = ("shaped_attention", "symbolic")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
OF_THE_ROOT = {"build", "dist", "results", "figures", "site"}
"""Folders that are left out there alone."""
SMALL = ("--width", 40, "--depth", 30, "--samples", 64, "--network-samples", 16, "--no-progress")

pytestmark = pytest.mark.validation


def call(*command: object, cwd: Path) -> str:
    """Standard output of a command that must succeed; its output is shown if it does not."""
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, text=True, check=False, capture_output=True)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def left_out(folder: str, names: list[str]) -> set[str]:
    """Which of these names in a folder are not copied."""
    own = OF_THE_ROOT.intersection(names) if Path(folder) == ROOT else set()
    return own | LEFT_OUT(folder, names)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that goes with its contents: two gigabytes of installed dependencies."""
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        yield Path(name).resolve()


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """The wheel, from a copy of the sources, so that no old build folder gets into it."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=left_out)
    call(sys.executable, "-m", "build", "--outdir", folder / "dist", source, cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@dataclass(frozen=True)
class Installed:
    """A fresh environment with the wheel, and an empty folder to work in."""

    bin: Path
    work: Path

    def run(self, program: str, *arguments: object) -> str:
        return call(self.bin / program, *arguments, cwd=self.work)


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Installed:
    venv.create(folder / "venv", with_pip=True)
    place = Installed(folder / "venv" / "bin", folder / "work")
    place.work.mkdir()
    constraints = ROOT / "constraints.txt"
    pip = ("-m", "pip", "install", "--quiet", "--constraint", constraints)
    place.run("python", *pip, f"{wheel}[figures,files]")
    return place


def test_the_wheel_has_every_module_and_data_file_and_nothing_else(wheel):
    """Equal sets, so that a file that is missing and a file that is too much are both found."""
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    modules = {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    data = {path for path in (ROOT / "shaped_attention" / "data").rglob("*") if path.is_file()}
    data |= set((ROOT / "symbolic" / "claims" / "statements").iterdir())
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
