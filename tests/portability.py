"""``python -m tests.portability``: the tests marked `portability` under several processor settings.

Other processors round differently: they have vectors of other lengths, no fused multiplication and
addition, or other kernels in their libraries. The switches of the compiler, torch, NumPy and the
BLAS libraries make one machine behave like several; a setting under which it behaves as it does by
itself is skipped. `--module benchmarks.speed` measures as they do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

_SHOWN = """
import scipy.linalg, torch
from threadpoolctl import threadpool_info
from shaped_attention.compiler.llvm import host
blas = {x["architecture"] for x in threadpool_info() if "architecture" in x}
print("bits of vectors in compiled code:", host().bits, "| torch:",
      torch.backends.cpu.get_cpu_capability(),
      "| OpenBLAS:", *blas)
"""

SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "AVX2": {
        "SHAPED_ATTENTION_CPU": "haswell:+sse2,+avx2,+fma,+bmi,+bmi2,+lzcnt,+popcnt,+f16c,+movbe",
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4",
    },
    "baseline": {
        "SHAPED_ATTENTION_CPU": "x86-64:+sse2",
        "ATEN_CPU_CAPABILITY": "default",
        "OPENBLAS_CORETYPE": "Prescott",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4,X86_V3",
    },
}
"""Environment variables of each setting, beyond those of the caller."""


def _vectors(setting: dict[str, str]) -> str:
    """What decides how a process computes under a setting."""
    shown = subprocess.run(
        [sys.executable, "-c", _SHOWN], env={**os.environ, **setting}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    return shown.stdout.strip()


def main() -> int:
    """Run the tests under all settings; 1 if a test fails under one of them."""
    parser = argparse.ArgumentParser("python -m tests.portability", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="default: all")
    parser.add_argument("--module", default="pytest", help="what to run in place of pytest")
    parser.add_argument("arguments", nargs="*", help="its arguments; default: -m portability")
    options = parser.parse_args()
    command = [sys.executable, "-m", options.module, *options.arguments]
    if not options.arguments and options.module == "pytest":
        files = sorted(Path(__file__).parent.glob("test_*.py"))
        marked = [str(file) for file in files if "mark.portability" in file.read_text("utf-8")]
        command += ["-m", "portability", *marked]

        command += ["--numprocesses", "auto", "--dist", "worksteal"]
    own, failed = _vectors({}), []
    for name in options.setting or list(SETTINGS):
        environment, began = {**os.environ, **SETTINGS[name]}, time.perf_counter()
        shown = _vectors(SETTINGS[name])
        print(f"== {name}: {shown}", flush=True)
        if SETTINGS[name] and shown == own:
            print("the vectors of this processor as it is", flush=True)
            continue
        if subprocess.run(command, env=environment, check=False).returncode:
            failed.append(name)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)
    print("failed under:", ", ".join(failed) if failed else "no setting")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
