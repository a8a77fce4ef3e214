"""The samplers: networks with real weights, the exact chain, the SDE, and their shared parts.

The samplers are `network`, `chain` and `sde`; `pathwise` differentiates their paths. Each checks
its arguments (`request`), composes the step of a layer (`steps`, `task`), passes it to one of the
`executors` (`tile_process`, `blas_process`, `torch_process`) and loops (`driver`, `chunks`).
`run_result` turns a run into a Dataset, and `continuation` continues it.
"""
