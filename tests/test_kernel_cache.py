"""Compiled kernels are those of the sources, wherever they are kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shaped_attention

PROGRAM = """
import logging, sys
logging.basicConfig(format="%(message)s")
sys.path.insert(0, {root!r})
{before}
from shaped_attention.numerics.jit import kernel, scalar
from shaped_attention.numerics.probe import whole
print(whole(2.0))
"""

PARTS = {
    "inner": (
        "from shaped_attention.numerics.jit import kernel\n\n\n"
        "@kernel\ndef part(x):\n    return {} * x\n"
    ),
    "probe": (
        "from shaped_attention.numerics.inner import part\n"
        "from shaped_attention.numerics.jit import kernel\n\n\n"
        "@kernel\ndef whole(x):\n    return part(x)\n"
    ),
}

FULL = """
def full(*arguments):
    raise OSError(28, "No space left on device")
from numba.core.caching import FunctionCache
FunctionCache.save_overload = full
"""


@pytest.fixture
def package(tmp_path):
    """A copy of `numerics` with a kernel in one file that calls one of another file."""
    source = Path(shaped_attention.__file__).parent
    target = tmp_path / "shaped_attention"
    (target / "numerics").mkdir(parents=True)
    (target / "__init__.py").touch()
    shutil.copy(source / "numerics" / "jit.py", target / "numerics" / "jit.py")
    (target / "numerics" / "__init__.py").touch()
    return target


def run(package, factor, cache="", before=""):
    for name, text in PARTS.items():
        file, new = package / "numerics" / f"{name}.py", text.format(factor)
        if not file.exists() or file.read_text() != new:
            file.write_text(new)
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    if cache:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    program = PROGRAM.format(root=str(package.parent), before=before)
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment, cwd=package.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip


@pytest.mark.parametrize("shared", [True, False])
def test_an_edit_of_an_inlined_function_is_seen(shared, package, tmp_path):
    """Numba alone would serve the old kernel: the file of the outer function is the same."""
    cache = tmp_path / "cache" if shared else ""
    for factor, value in ((3.0, "6.0"), (5.0, "10.0"), (3.0, "6.0")):
        assert run(package, factor, cache).stdout.strip() == value
    kept = Path(cache) if shared else package / "numerics" / "__pycache__"
    folders = [folder for folder in kept.iterdir() if folder.name.startswith("kernels-")]
    assert len(folders) == 2
    assert all(list(folder.rglob("*.nbc")) for folder in folders)


def test_the_kernels_of_few_versions_are_kept(package):
    for factor in (1.0, 2.0, 3.0, 4.0, 5.0):
        run(package, factor)
    folders = list((package / "numerics" / "__pycache__").glob("kernels-*"))
    assert len(folders) == 3


def test_a_full_disk_is_a_warning(package):
    done = run(package, 3.0, before=FULL)
    assert done.stdout.strip() == "6.0"
    assert done.stderr.count("No space left on device") == 1
    assert "it is compiled again in the next process" in done.stderr
