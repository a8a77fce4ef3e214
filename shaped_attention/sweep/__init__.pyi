from .engines import ExecutorEngine, InProcess, Processes, dask_engine
from .extension import extend_sweep
from .grid import Target
from .plan import plan_sweep
from .reading import open_sweep, sweep_distances, sweep_summary
from .run import resume_sweep, run_sweep
from .specification import Sweep
from .specification_faults import SweepFaultsError
from .toml import read_sweep

__all__ = [
    "ExecutorEngine",
    "InProcess",
    "Processes",
    "Sweep",
    "SweepFaultsError",
    "Target",
    "dask_engine",
    "extend_sweep",
    "open_sweep",
    "plan_sweep",
    "read_sweep",
    "resume_sweep",
    "run_sweep",
    "sweep_distances",
    "sweep_summary",
]
