"""Batch runs over grids of architectures and widths, which lose nothing when they are stopped.

A `Sweep` (or a TOML file, `read_sweep`) is cut into work units, blocks of samples of one cell and
sampler, each a pure function of the sweep and of integer keys. `run_sweep` hands them to an engine
and writes each into its place in a Zarr store; `open_sweep` reads the store.
"""

from shaped_attention.sweep.engines import ExecutorEngine, InProcess, Processes, dask_engine
from shaped_attention.sweep.faults import SweepFaultsError
from shaped_attention.sweep.plan import plan_sweep
from shaped_attention.sweep.reading import open_sweep, sweep_distances, sweep_summary
from shaped_attention.sweep.run import resume_sweep, run_sweep
from shaped_attention.sweep.specification import Sweep, Target
from shaped_attention.sweep.toml import read_sweep

__all__ = [
    "ExecutorEngine",
    "InProcess",
    "Processes",
    "Sweep",
    "SweepFaultsError",
    "Target",
    "dask_engine",
    "open_sweep",
    "plan_sweep",
    "read_sweep",
    "resume_sweep",
    "run_sweep",
    "sweep_distances",
    "sweep_summary",
]
