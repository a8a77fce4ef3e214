"""An installation that cannot be written to, for a user without a home, works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shaped_attention

KERNEL = """
import numpy as np
from shaped_attention.numerics import jit
from shaped_attention.numerics.operations import stacks
square = np.array([[[1.0, 0.0], [2.0, 1.0]]])
stacks.mirror(square)
print(jit.__file__, square[0, 0, 1])
"""
VERSION = """
import sys
from shaped_attention.commands.main import main
sys.argv = ["shaped-attention", "--version"]
main()
"""


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    """Run a program with a copy of the package whose folders for caches are regular files.

    Permissions do not bind the superuser; a file in the place of a folder does.
    """
    root = tmp_path_factory.mktemp("installation")
    package = root / "shaped_attention"
    source = Path(shaped_attention.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    nowhere = root / "file" / "home"
    nowhere.parent.touch()
    caches = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"), str(nowhere))
    settings = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(program):
        return subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | caches | settings,
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_the_version_is_printed(read_only):
    done = read_only(VERSION)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"shaped-attention, version {shaped_attention.__version__}\n"


def test_kernels_are_compiled_without_a_cache_and_a_warning_is_logged(read_only):
    done = read_only(KERNEL)
    assert done.returncode == 0, done.stderr
    path, value = done.stdout.split()
    assert "installation" in path
    assert value == "2.0"
    assert done.stderr.count("kernels are compiled again in every process") == 1
