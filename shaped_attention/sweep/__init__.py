"""Batch runs over grids of architectures and widths, which lose nothing when they are stopped.

A `Sweep` (or a TOML file, `read_sweep`) is cut into work units, blocks of samples of one cell and
sampler, each a pure function of the sweep and of integer keys. `run_sweep` hands them to an engine
and writes each into its place in a Zarr store; `open_sweep` reads the store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
