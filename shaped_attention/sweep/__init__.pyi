from .file import SweepFileError
from .reading import open_sweep, sweep_distances, sweep_status, sweep_summary
from .run import run_sweep
from .specification import Sweep, SweepFaultsError
from .toml import read_sweep

__all__ = [
    "Sweep",
    "SweepFaultsError",
    "SweepFileError",
    "open_sweep",
    "read_sweep",
    "run_sweep",
    "sweep_distances",
    "sweep_status",
    "sweep_summary",
]
