"""Batch runs over grids of architectures and widths; an interrupt loses no finished work.

A `Sweep` (or a TOML file, `read_sweep`) is divided into work units. A unit is a block of samples of
one cell and sampler, and a pure function of the sweep and of integer keys. `run_sweep` hands the
units to an executor and writes each into one SQLite file; `open_sweep` reads the file.
"""

import lazy_loader

from shaped_attention.libraries import lazily

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = lazily(__name__, __getattr__)
