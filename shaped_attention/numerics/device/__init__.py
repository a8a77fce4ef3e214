"""Programs on a CUDA device: a step's instructions as the source of one kernel for many steps.

``operations.cuh`` has the operations, ``paths.cuh`` the steps of a path and ``kernels.cuh`` what
the host launches. `source` writes what differs from layer to layer, `launch` compiles and calls it.
"""
