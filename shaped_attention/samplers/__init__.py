"""The samplers: networks with real weights, the exact chain, the SDE, and what they share.

`network`, `chain` and `sde` are the three; `pathwise` differentiates their paths. Each checks its
arguments (`request`), composes the step of a layer (`steps`, `task`), gives it to one of the
`executors` (`tile_process`, `blas_process`, `torch_process`) and loops (`driver`, `chunks`).
`run_result` makes a Dataset of a run, and `continuation` goes on from it.
"""
