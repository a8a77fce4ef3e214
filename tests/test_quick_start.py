"""What starts quickly: help texts, the import, and a first chain load only what they use."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

HEAVY = {
    "dask", "llvmlite", "matplotlib", "pandas", "scipy", "seaborn", "sympy", "torch", "torchsde",
    "transformers", "xarray",
}  # fmt: skip
"""Libraries that take a tenth of a second or more to load."""

REPORT = "import sys; print('loaded:', *sys.modules, file=sys.stderr)"


def loaded(code, limit):
    """Run Python code in a new process, and return the modules that it loaded.

    The time is printed; the limit in seconds is far from it, as machines are busy at times.
    """
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", f"import atexit\n@atexit.register\ndef _():\n {REPORT}\n{code}"],
        capture_output=True, text=True, timeout=limit, check=True,
    )  # fmt: skip
    print(f"{code!r}: {time.perf_counter() - began:.2f} s")
    return set(done.stderr.rsplit("loaded: ", maxsplit=1)[1].split())


def test_importing_loads_nothing_heavy():
    assert loaded("import shaped_attention", 3.0) & HEAVY == set()
    assert loaded("import pandas", 60.0) >= {"pandas"}


def test_help_and_version_load_nothing_heavy():
    """Of the program, its commands and a group, in one process."""
    places = ["--help", "compare --help", "model --help", "show --help", "sweep --help"]
    code = "from contextlib import suppress\nfrom shaped_attention.commands.main import main\n"
    for place in [*places, "--version"]:
        code += f"with suppress(SystemExit):\n main({place.split()!r})\n"
    assert loaded(code, 6.0) & HEAVY == set()


CHAIN = (
    "import shaped_attention as sa\n"
    "sa.simulate_chain([sa.ShapedAttention(0.35, 1.0), sa.ShapedMLP(0.35)],"
    " sa.equicorrelated(4, 0.2), width=64, depth=16, samples=128)"
)


def test_a_chain_loads_what_it_uses():
    """What draws, reads files, integrates or measures distances is not loaded, nor is torch."""
    needless = {
        "matplotlib", "seaborn", "sympy", "torch", "torchsde", "transformers",
        "scipy.integrate", "scipy.optimize", "scipy.stats",
    }  # fmt: skip
    modules = loaded(CHAIN, 600.0)
    assert "llvmlite" in modules
    assert modules & needless == set()
    assert not any(name.startswith("shaped_attention.statistics") for name in modules)
    # Negative control: real weights are torch's.
    assert "torch" in loaded(CHAIN.replace("simulate_chain", "simulate_network"), 600.0)


@pytest.mark.parametrize(
    ("setting", "code", "threads"),
    [
        ({"OMP_NUM_THREADS": "1"}, "", 1),
        ({}, "import torch; torch.set_num_threads(1)", 1),
        ({}, "", len(os.sched_getaffinity(0))),
    ],
)
def test_number_of_threads_is_the_one_asked_for(setting, code, threads):
    """By OMP_NUM_THREADS, or of torch where it is loaded."""
    kept = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    code += "\nfrom shaped_attention.numerics.threads import thread_count as f\nprint(f('cpu'))"
    done = subprocess.run([sys.executable, "-c", code], env=kept | setting,
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    assert int(done.stdout) == threads
