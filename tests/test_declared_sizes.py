"""Files that declare more than they hold: refused, or shown, before anything is allocated."""

from __future__ import annotations

import io
import subprocess
import sys

import h5py
import numpy as np
import pytest

import shaped_attention as sa

HUGE = 2**40


def npy_of(shape, dtype="<f8"):
    """A .npy file that has a header and no numbers."""
    stream = io.BytesIO()
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


def huge_npy(folder):
    (folder / "huge.npy").write_bytes(npy_of((2**20, 2**17)))
    return folder / "huge.npy"


def huge_netcdf(folder):
    with h5py.File(folder / "huge.nc", "w") as file:
        file.create_dataset("V", (2**20, 2**17), "f8", chunks=(1024, 1024))
    return folder / "huge.nc"


READ = {
    "npy": (huge_npy, sa.read_tokens),
    "netCDF": (huge_netcdf, sa.load),
}


@pytest.mark.parametrize("name", READ)
def test_a_terabyte_is_refused(name, tmp_path):
    make, read = READ[name]
    path = make(tmp_path)
    message = rf"must declare at most max_bytes={2**33} bytes; it declares {HUGE}$"
    with pytest.raises(ValueError, match=message):
        read(path)


def test_the_limit_is_an_argument(tmp_path):
    """At the size of the array it is read, one byte below it is not."""
    tokens = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "tokens.npy", tokens)
    assert np.array_equal(sa.read_tokens(tmp_path / "tokens.npy", max_bytes=96), tokens)
    with pytest.raises(ValueError, match="max_bytes=95 bytes"):
        sa.read_tokens(tmp_path / "tokens.npy", max_bytes=95)


def test_show_reads_headers(tmp_path):
    """A terabyte is shown, in an address space of 8 GiB; the arrays of a result are not read."""
    path = huge_netcdf(tmp_path)
    program = (
        "import resource; from shaped_attention.commands.main import main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33))\n"
        f"main(['show', {str(path)!r}], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1TB" in done.stdout.replace(" ", "")
