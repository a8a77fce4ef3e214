"""The wheel has every module, stub and data file of the two packages, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("shaped_attention", "symbolic")
UNUSED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "results", "*.egg-info")


@pytest.mark.validation
def test_the_wheel_has_every_module_and_data_file_and_nothing_else(tmp_path):
    """Equal sets, so that a file that is missing and a file that is too much are both found."""
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=UNUSED)
    build = (sys.executable, "-m", "build", "--outdir", tmp_path, source)
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packed = {name for name in names if name.split("/")[0] in PACKAGES}
    files = {path for package in PACKAGES for path in (source / package).rglob("*")}
    assert packed == {path.relative_to(source).as_posix() for path in files if path.is_file()}
    assert len(packed) < len(names)  # the metadata and the licence
