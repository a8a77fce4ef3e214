"""An installation that cannot be written to, for a user without a home, works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shaped_attention

CHAIN = """
import shaped_attention as sa
run = sa.simulate_chain(sa.ShapedAttention(0.5), sa.equicorrelated(3, 0.2), width=40, depth=2,
                        samples=2, progress=False)
print(sa.__file__, bool(run.V.notnull().all()))
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
    caches = dict.fromkeys(("HOME", "XDG_CACHE_HOME"), str(nowhere))
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


def test_a_chain_runs_without_a_cache(read_only):
    done = read_only(CHAIN)
    assert done.returncode == 0, done.stderr
    path, finite = done.stdout.split()
    assert "installation" in path
    assert finite == "True"
