"""The package where the calls of POSIX are missing, as on Windows.

The absence is simulated on a POSIX system. What only Windows can show (its locks, its paths, its
compiler's code) these tests do not see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios"}
NAMES = {
    "os": {
        "O_DIRECTORY", "chown", "fork", "getpgid", "getuid", "geteuid", "killpg", "mkfifo",
        "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "setsid",
        "statvfs", "sync", "sysconf", "uname", "wait", "waitpid",
    },
    "signal": {"SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "alarm", "pthread_sigmask", "setitimer"},
}  # fmt: skip


SCRIPT = f"""
import fcntl, os, shutil, signal, sys
# The libraries are those of this system: only the package meets what is missing.
import h5netcdf, llvmlite, pydantic, scipy.stats, torch, xarray

for module in {sorted(MODULES)}:
    sys.modules[module] = None
for name in {sorted(NAMES["os"])}:
    if hasattr(os, name):
        delattr(os, name)
for name in {sorted(NAMES["signal"])}:
    if hasattr(signal, name):
        delattr(signal, name)
shutil._use_fd_functions = False
opened, flushed, synced = os.open, os.fsync, []


def windows_open(path, *rest, **more):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied")
    return opened(path, *rest, **more)


def windows_fsync(descriptor):
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & 3 == os.O_RDONLY:
        raise OSError(9, "Bad file descriptor")
    synced.append(descriptor)
    flushed(descriptor)


os.open, os.fsync = windows_open, windows_fsync

import shaped_attention as sa
from shaped_attention.sweep import Sweep, run_sweep

layer = sa.ShapedAttention(0.5)
chain = sa.simulate_chain(layer, sa.equicorrelated(2, 0.2), width=20, depth=4, samples=8)
sa.save(chain, "chain.nc")
assert sa.load("chain.nc").identical(chain)
sweep = Sweep({{"tokens": 2, "width": 20, "depth": 4}}, {{"gamma": [0.3, 0.5]}}, samples=4, block=4,
              samplers=("chain",))
report = run_sweep(sweep, "store", progress=False)
assert report.left == report.failed == 0, report
assert sa.sweep.open_sweep("store").sizes["gamma"] == 2
print(len(synced))
"""


def test_a_chain_and_a_sweep_run_without_posix(tmp_path):
    """Folders cannot be opened, and files opened for reading cannot be flushed."""
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "script.py"],
        cwd=tmp_path, env=environment, text=True, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == 1
